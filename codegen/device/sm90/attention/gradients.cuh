// Owns what the two kernels of attention's backward pass share: the shape of a head, and what they make of a
// pair of products: probabilities and the gradients of scores.
#pragma once

#include "codegen/device/sm90/attention/dropout.cuh"
#include "codegen/device/sm90/attention/parts.cuh"

// Sites that a kernel may lack: values of a query that its scores and their gradients are made of.
struct R0;
struct R1;
struct R2;
struct R3;
struct M;  // whether dropout keeps a probability

using Element = Config::Element;
enum : int {
  kRank = E::kRank,
  kBatch = kRank - 2,
  kConsumers = Config::consumers,
  kStages = Config::stages,
  kHead = Config::head,    // a multiple of 16
  kValue = Config::value,  // the same
  kHeadLines = lines_of(kHead),
  kValueLines = lines_of(kValue),
  kRowValues = Config::row_values,
};
enum : bool { kPlain = Config::plain };

// The values of the query at `at`. Plain scores take the first with the sign and the base of their exponent.
// With dropout that keeps p' = p * weight, dS = p (dP * weight - delta) is p' (dP - delta / weight).
template <class First, class Second, class Third, class Fourth, class Params, class At, int kCount>
FUSOR_DEVICE void row_values(const Params& p, const At& at, float (&values)[kCount]) {
  if constexpr (kRowValues > 0) values[0] = First::template apply<1>(p.r0, at, 1)[0];
  if constexpr (kRowValues > 1) values[1] = Second::template apply<1>(p.r1, at, 1)[0];
  if constexpr (kRowValues > 2) values[2] = Third::template apply<1>(p.r2, at, 1)[0];
  if constexpr (kRowValues > 3) values[3] = Fourth::template apply<1>(p.r3, at, 1)[0];
  if constexpr (kPlain) values[0] *= -1.4426950408889634f;  // -log2(e)
  if constexpr (Config::drops) {
    values[0] += p.kept_log2;
    if constexpr (kRowValues > 1) values[1] *= p.kept_inverse;
  }
}

// Site E of two neighbours; `row(i)` is value i of their queries.
template <class Site, class Args, class At, class Loads, class Row>
FUSOR_DEVICE auto apply_pair(const Args& args, const At& at, int count, const Loads& loads,
                             const Vec<float, 2>& score, const Vec<float, 2>& gradient, const Row& row) {
  if constexpr (kRowValues == 0)
    return Site::template apply<2>(args, at, count, loads, score, gradient);
  else if constexpr (kRowValues == 1)
    return Site::template apply<2>(args, at, count, loads, score, gradient, row(0));
  else if constexpr (kRowValues == 2)
    return Site::template apply<2>(args, at, count, loads, score, gradient, row(0), row(1));
  else if constexpr (kRowValues == 3)
    return Site::template apply<2>(args, at, count, loads, score, gradient, row(0), row(1), row(2));
  else
    return Site::template apply<2>(args, at, count, loads, score, gradient, row(0), row(1), row(2), row(3));
}

// Probabilities as they are multiplied, where the graph rounds them before it makes gradients of them.
template <class Element, int kCount>
FUSOR_DEVICE void round_as_packed(const u32 (&words)[kCount / 2], float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    PairConversion<Element>::widen(words[i], values[2 * i], values[2 * i + 1]);
}
