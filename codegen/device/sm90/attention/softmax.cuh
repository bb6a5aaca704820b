// Owns the online softmax of attention: of a thread's two rows, the largest score so far, the sum of
// exponentials, and the factor by which earlier sums shrink (Milakov and Gimelshein, "Online normalizer
// calculation for softmax").
#pragma once

#include "codegen/device/base/pointwise.cuh"

// No score: of a key that a row does not see, of a row that has seen none.
FUSOR_DEVICE float no_score() { return __int_as_float(0xff800000); }
// What the score of a key becomes that a row does not see.
template <bool kSoftens>
FUSOR_DEVICE float hidden_score() {
  return kSoftens ? no_score() : 0;
}

// A row lies in the four lanes of a quad.
FUSOR_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
FUSOR_DEVICE float quad_sum(float x) {
  x = x + __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Scores s stand for exp2(s * factor). The largest exponential of a row is 2^kMost, and sums are of these.
template <int kMost>
struct SoftmaxUpTo {
  float factor;
  float largest[2], sum[2];  // the sum: this thread's share

  __device__ void begin() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = no_score();
      sum[half] = 0;
    }
  }
  // With a score of row `half` that has no key: one lane of the quad counts it.
  __device__ void begin_with(int half, float sink) {
    largest[half] = sink;
    sum[half] = threadIdx.x % 4 == 0 && sink != no_score() ? float(1 << kMost) : 0;
  }

  // Turns the scores of a block into exponentials; `shrink` is what sums of earlier blocks are multiplied by.
  template <int kCount>
  __device__ void add(float (&scores)[kCount], float (&shrink)[2]) {
    float highest[2] = {largest[0], largest[1]};
#pragma unroll
    for (int i = 0; i < kCount; ++i) highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = quad_max(highest[half]);
      // A row that has seen nothing yet: all its exponentials are zero.
      base[half] = highest[half] == no_score() ? 0 : -highest[half] * factor;
      shrink[half] = exp2_short(multiply_add(largest[half], factor, base[half]));
      largest[half] = highest[half];
      sum[half] *= shrink[half];
      if constexpr (kMost > 0) base[half] += kMost;
    }
    float part[2][2] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int half = i / 2 % 2;
      scores[i] = exp2_short(multiply_add(scores[i], factor, base[half]));
      part[half][i % 2] += scores[i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] += part[half][0] + part[half][1];
  }

  __device__ void end() {
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] = quad_sum(sum[half]);
  }
};

using OnlineSoftmax = SoftmaxUpTo<0>;

// In place of a softmax where there is none: scores multiply values as they are.
struct NoSoftmax {
  float factor;
  float largest[2], sum[2];

  __device__ void begin() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = 0;
      sum[half] = 1;
    }
  }
  __device__ void begin_with(int, float) {}
  template <int kCount>
  __device__ void add(float (&)[kCount], float (&shrink)[2]) {
    shrink[0] = shrink[1] = 1;
  }
  __device__ void end() {}
};
template <bool kSoftens, int kMost>
struct RowsOf {
  using Type = SoftmaxUpTo<kMost>;
};
template <int kMost>
struct RowsOf<false, kMost> {
  using Type = NoSoftmax;
};
// What is kept of two rows while their keys pass.
template <bool kSoftens, int kMost = 0>
using SoftmaxOrNone = typename RowsOf<kSoftens, kMost>::Type;
