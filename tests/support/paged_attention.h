// Owns attention over a cache in pages, in the three ways in which it is asked for: by the op, by the op over
// loaded pages, and written out over loaded pages as cuDNN's front-end does.
#pragma once

#include <cmath>
#include <limits>

#include "frontend/graph_builder.h"

namespace fusor::test {

struct PagedCase {
  enum class Form { op, loads, written_out };
  Form form = Form::op;
  int64_t batch = 1, heads = 8, shared_heads = 2, queries = 1, page = 16, keys = 256, head = 64;
  bool has_lengths = true, is_causal = false;
  bool heads_within_rows = false;  ///< [page, row, head, element] in memory
  DataType type = DataType::bf16;

  int64_t listed() const { return (keys + page - 1) / page; }  ///< pages of a sequence
  int64_t pages() const { return batch * listed() + 1; }
};

/// Inputs are q, k, v (containers), tables [batch, 1, listed, 1] "table_k" and "table_v", and "lengths".
inline Graph paged_attention(const PagedCase& c) {
  GraphBuilder g("paged");
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
  const int64_t row = c.heads_within_rows ? c.shared_heads * c.head : c.head;
  const int64_t head = c.heads_within_rows ? c.head : c.page * c.head;
  const Strides strides{c.shared_heads * c.page * c.head, head, row, 1};
  const auto container = [&](const char* name) {
    return g.input(name, {c.pages(), c.shared_heads, c.page, c.head}, c.type, {.strides = strides});
  };
  const auto table = [&](const char* name) {
    return g.input(name, {c.batch, 1, c.listed(), 1}, DataType::i32);
  };
  const Tensor k = container("k"), v = container("v");
  const Tensor pages_k = table("table_k"), pages_v = table("table_v");
  Tensor lengths, queries;
  if (c.has_lengths) lengths = g.input("lengths", {c.batch, 1, 1, 1}, DataType::i32);
  const auto loaded = [&](const Tensor& x, const Tensor& pages) {
    PagedCacheOptions options{.max_seq_len = c.keys};
    if (c.has_lengths) options.lengths = lengths;
    return g.paged_cache_load(x, pages, options);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(c.head));
  if (c.form == PagedCase::Form::written_out) {
    // Heads in groups that share keys.
    const int64_t group = c.heads / c.shared_heads;
    const Dims of_keys{c.batch, c.shared_heads, 1, c.head, c.keys},
        of_values{c.batch, c.shared_heads, 1, c.keys, c.head};
    const Tensor queries_of_groups = g.reshape(q, {c.batch, c.shared_heads, group, c.queries, c.head});
    const Tensor across = g.reshape(g.transpose(loaded(k, pages_k), {0, 1, 3, 2}), of_keys);
    Tensor s = g.mul(g.matmul(queries_of_groups, across), g.constant(scale));
    if (c.has_lengths) {
      const Tensor nothing = g.constant(-std::numeric_limits<double>::infinity());
      const Tensor is_there = g.cmp_lt(g.gen_index(s, 4), g.reshape(lengths, {c.batch, 1, 1, 1, 1}));
      s = g.binary_select(s, nothing, is_there);
    }
    const Tensor largest = g.max(g.reduce(s, ReductionMode::max, {4}), g.constant(-3e38));
    const Tensor exponential = g.exp(g.sub(s, largest));
    const Tensor sum = g.reduce(exponential, ReductionMode::add, {4});
    const Tensor divisor = g.binary_select(sum, g.constant(1), g.cmp_neq(sum, g.constant(0)));
    const Tensor values = g.reshape(loaded(v, pages_v), of_values);
    g.output(g.matmul(g.div(exponential, divisor), values), {.name = "o", .type = c.type});
    return g.finish();
  }
  SdpaOptions options{.attributes = {.attn_scale = scale}};
  options.attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
  if (c.is_causal) options.attributes.right_bound = 0;
  if (c.has_lengths) {
    options.attributes.padding_mask = true;
    options.seq_len_q = g.input("query_lengths", {c.batch, 1, 1, 1}, DataType::i32);
    options.seq_len_kv = lengths;
  }
  if (c.form == PagedCase::Form::loads) {
    g.output(g.sdpa_fwd(q, loaded(k, pages_k), loaded(v, pages_v), options).o, {.name = "o", .type = c.type});
    return g.finish();
  }
  options.attributes.max_seq_len_kv = c.keys;
  options.page_table_k = pages_k;
  options.page_table_v = pages_v;
  g.output(g.sdpa_fwd(q, k, v, options).o, {.name = "o", .type = c.type});
  return g.finish();
}

}  // namespace fusor::test
