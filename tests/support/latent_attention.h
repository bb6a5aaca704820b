// Owns attention over a latent cache, as DeepSeek-V2 decodes: heads share rows whose first elements are the
// values. For tests.
#pragma once

#include <cmath>
#include <limits>

#include "frontend/graph_builder.h"

namespace fusor::test {

struct LatentCase {
  /// How scores are asked for: one product, or a sum of two products of slices of the cache.
  enum class Form { one, sum };
  Form form = Form::one;
  int64_t batch = 2, heads = 16, keys = 300, value = 512, rope = 64;
  bool has_lengths = false, has_sink = false, has_statistics = false;
  bool scaled_queries = false;  ///< queries are computed in front of the product
  DataType type = DataType::bf16;

  int64_t head() const { return value + rope; }
};

/// Inputs are q [batch, heads, head], or its two parts, cache [batch, keys, head], lengths and sinks.
inline Graph latent_attention(const LatentCase& c) {
  GraphBuilder g("latent");
  const Tensor cache = g.input("cache", {c.batch, c.keys, c.head()}, c.type);
  const Tensor values = g.slice(cache, {0, 0, 0}, {c.batch, c.keys, c.value});
  const auto across = [&](const Tensor& x) { return g.transpose(x, {0, 2, 1}); };
  Tensor s;
  if (c.form == LatentCase::Form::one) {
    Tensor q = g.input("q", {c.batch, c.heads, c.head()}, c.type);
    if (c.scaled_queries) q = g.mul(q, g.constant(0.5), {.type = c.type});
    s = g.matmul(q, across(cache));
  } else {
    const Tensor rope = g.slice(cache, {0, 0, c.value}, {c.batch, c.keys, c.head()});
    const Tensor first = g.matmul(g.input("q_nope", {c.batch, c.heads, c.value}, c.type), across(values));
    s = g.add(first, g.matmul(g.input("q_rope", {c.batch, c.heads, c.rope}, c.type), across(rope)));
  }
  s = g.mul(s, g.constant(1 / std::sqrt(192.0)));
  if (c.has_lengths) {
    const Tensor whole = g.input("lengths", {c.batch, 1, 1}, DataType::i32);
    const Tensor length = g.mul(g.add(whole, g.constant(5, DataType::i32)), g.constant(30, DataType::i32));
    s = g.binary_select(s, g.constant(-std::numeric_limits<double>::infinity()),
                        g.cmp_lt(g.gen_index(s, 2), length));
  }
  Tensor largest = g.reduce(s, ReductionMode::max, {2}), sink;
  if (c.has_sink) {
    sink = g.input("sink", {1, c.heads, 1}, DataType::f32);
    largest = g.max(largest, sink);
  }
  const Tensor exponential = g.exp(g.sub(s, largest));
  Tensor sum = g.reduce(exponential, ReductionMode::add, {2});
  if (c.has_sink) sum = g.add(sum, g.exp(g.sub(sink, largest)));
  const Tensor p = g.div(exponential, sum, {.type = c.type});
  g.output(g.matmul(p, values), {.name = "o", .type = c.type});
  if (c.has_statistics) g.output(g.add(g.log(sum), largest), {.name = "logsumexp", .type = DataType::f32});
  return g.finish();
}

}  // namespace fusor::test
