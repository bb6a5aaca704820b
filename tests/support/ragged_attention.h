// Owns attention over sequences that lie one behind the other, for tests: the graph, the numbers that say
// where sequences are, and NaN wherever none is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "frontend/graph_builder.h"

namespace fusor::test {

struct RaggedCase {
  std::vector<int64_t> queries, keys;  ///< of each sequence
  int64_t heads = 2, shared_heads = 2, head = 64, value = 64;
  int64_t gap = 0;    ///< rows between sequences
  int64_t shift = 0;  ///< elements in front of the first one
  bool is_causal = false;
  bool has_lengths = true;  ///< else what is behind a sequence's last row counts as zeros
  DataType type = DataType::bf16;
  bool leaves_scores = false;  ///< gradients of scores are a result, too, of all rows

  int64_t batch() const { return static_cast<int64_t>(queries.size()); }
};

/// Elements at which sequences begin, and behind the last one.
inline std::vector<int64_t> ragged_starts(const std::vector<int64_t>& lengths, int64_t row, int64_t gap,
                                          int64_t shift) {
  std::vector<int64_t> starts{shift};
  for (const int64_t length : lengths) starts.push_back(starts.back() + (length + gap) * row);
  return starts;
}

inline int64_t longest(const std::vector<int64_t>& lengths) {
  return std::max<int64_t>(2, *std::ranges::max_element(lengths));
}

/// Inputs are q, k and v, each one axis; where they begin, "q_start" ... (o and the statistics: "o_start",
/// "stats_start"); and "seq_len_q", "seq_len_kv". Results are o and stats. Heads that share keys are an axis
/// of their own.
inline Graph ragged_attention(const RaggedCase& c) {
  GraphBuilder g("ragged");
  const int64_t members = c.heads / c.shared_heads;
  const auto starts = [&](const std::string& name) {
    return g.input(name + "_start", {c.batch() + 1}, DataType::i64);
  };
  const auto load = [&](const std::string& name, const std::vector<int64_t>& lengths, int64_t of_group,
                        int64_t head) {
    const int64_t row = c.shared_heads * of_group * head;
    const Tensor x = g.input(name, {ragged_starts(lengths, row, c.gap, c.shift).back()}, c.type);
    return g.ragged_load(x, starts(name), {c.batch(), c.shared_heads, of_group, longest(lengths), head},
                         {of_group * head, head, row, 1});
  };
  const auto store = [&](const std::string& name, const Tensor& x, int64_t head, DataType type) {
    const int64_t row = c.heads * head;
    g.output(g.ragged_store(x, starts(name), ragged_starts(c.queries, row, c.gap, 0).back(),
                            {members * head, head, row, 1}, {.type = type}, true),
             {.name = name, .type = type});
  };
  const auto length = [&](const char* name) { return g.input(name, {c.batch(), 1, 1, 1, 1}, DataType::i32); };
  const Tensor q = load("q", c.queries, members, c.head), k = load("k", c.keys, 1, c.head);
  Tensor v = load("v", c.keys, 1, c.value);
  Tensor score = g.mul(g.matmul(q, g.transpose(k, {0, 1, 2, 4, 3})),
                       g.constant(1 / std::sqrt(static_cast<double>(c.head))));
  const Tensor nothing = g.constant(-std::numeric_limits<double>::infinity());
  const auto row = [&] { return g.gen_index(score, 3); };
  const auto key = [&] { return g.gen_index(score, 4); };
  if (c.has_lengths) {
    const Tensor of_queries = length("seq_len_q"), of_keys = length("seq_len_kv");
    score =
        g.binary_select(score, nothing, g.logical_and(g.cmp_lt(row(), of_queries), g.cmp_lt(key(), of_keys)));
    // As products with lengths do: a probability of 0 times NaN is NaN.
    v = g.binary_select(v, g.constant(0), g.cmp_lt(g.gen_index(v, 3), of_keys));
  }
  if (c.is_causal) score = g.binary_select(score, nothing, g.cmp_ge(row(), key()));
  const Tensor largest = g.reduce(score, ReductionMode::max, {4});
  const Tensor exponential = g.exp(g.sub(score, g.max(largest, g.constant(-3e38))));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {4});
  const Tensor divisor = g.binary_select(sum, g.constant(1), g.cmp_neq(sum, g.constant(0)));
  store("stats", g.add(largest, g.log(sum)), 1, DataType::f32);
  store("o", g.matmul(g.div(exponential, divisor, {.type = c.type}), v), c.value, c.type);
  return g.finish();
}

/// The same by the op, whose heads are one axis.
inline Graph ragged_attention_by_op(const RaggedCase& c) {
  GraphBuilder g("ragged_by_op");
  const auto starts = [&](const std::string& name) {
    return g.input(name + "_start", {c.batch() + 1}, DataType::i64);
  };
  const auto load = [&](const std::string& name, const std::vector<int64_t>& lengths, int64_t heads,
                        int64_t head) {
    const int64_t row = heads * head;
    const Tensor x = g.input(name, {ragged_starts(lengths, row, c.gap, c.shift).back()}, c.type);
    return g.ragged_load(x, starts(name), {c.batch(), heads, longest(lengths), head}, {head, row, 1});
  };
  const auto store = [&](const std::string& name, const Tensor& x, int64_t head, DataType type) {
    const int64_t row = c.heads * head;
    g.output(g.ragged_store(x, starts(name), ragged_starts(c.queries, row, c.gap, 0).back(), {head, row, 1},
                            {.type = type}, true),
             {.name = name, .type = type});
  };
  SdpaOptions options{.attributes = {.attn_scale = 1 / std::sqrt(static_cast<double>(c.head)),
                                     .right_bound = c.is_causal ? 0 : -1,
                                     .padding_mask = true}};
  const Tensor q = load("q", c.queries, c.heads, c.head), k = load("k", c.keys, c.shared_heads, c.head),
               v = load("v", c.keys, c.shared_heads, c.value);
  options.seq_len_q = g.input("seq_len_q", {c.batch(), 1, 1, 1}, DataType::i32);
  options.seq_len_kv = g.input("seq_len_kv", {c.batch(), 1, 1, 1}, DataType::i32);
  const SdpaResults results = g.sdpa_fwd(q, k, v, options);
  store("stats", results.stats, 1, DataType::f32);
  store("o", results.o, c.value, c.type);
  return g.finish();
}

/// The backward pass of the same: inputs are q, k, v and dy, the logarithms of sums "stats" and the row sums
/// "delta", both dense; results are dq, dk and dv, with starts of their own.
inline Graph ragged_gradients(const RaggedCase& c) {
  GraphBuilder g("ragged_gradients");
  const int64_t members = c.heads / c.shared_heads, queries = longest(c.queries);
  const auto length = [&](const char* name) { return g.input(name, {c.batch(), 1, 1, 1, 1}, DataType::i32); };
  const Tensor of_queries = length("seq_len_q"), of_keys = length("seq_len_kv");
  const auto load = [&](const std::string& name, const std::vector<int64_t>& lengths, int64_t of_group,
                        int64_t head, const Tensor& existing) {
    const int64_t row = c.shared_heads * of_group * head;
    const Tensor x = g.input(name, {ragged_starts(lengths, row, c.gap, c.shift).back()}, c.type);
    const Tensor loaded = g.ragged_load(x, g.input(name + "_start", {c.batch() + 1}, DataType::i64),
                                        {c.batch(), c.shared_heads, of_group, longest(lengths), head},
                                        {of_group * head, head, row, 1});
    return g.binary_select(loaded, g.constant(0), g.cmp_lt(g.gen_index(loaded, 3), existing));
  };
  const auto store = [&](const std::string& name, const Tensor& x, const std::vector<int64_t>& lengths,
                         int64_t of_group, int64_t head) {
    const int64_t row = c.shared_heads * of_group * head;
    g.output(g.ragged_store(x, g.input(name + "_start", {c.batch() + 1}, DataType::i64),
                            ragged_starts(lengths, row, c.gap, 0).back(), {of_group * head, head, row, 1},
                            {.type = c.type}, true),
             {.name = name, .type = c.type});
  };
  const auto sums = [&](const char* name) {
    return g.input(name, {c.batch(), c.shared_heads, members, queries, 1}, DataType::f32);
  };
  const auto across = [&](const Tensor& x) { return g.transpose(x, {0, 1, 2, 4, 3}); };
  const auto of_group = [&](const Tensor& x) {
    return members == 1 ? x : g.reduce(x, ReductionMode::add, {2});
  };
  const Tensor q = load("q", c.queries, members, c.head, of_queries),
               k = load("k", c.keys, 1, c.head, of_keys), v = load("v", c.keys, 1, c.value, of_keys),
               dy = load("dy", c.queries, members, c.value, of_queries);
  const double scale = 1 / std::sqrt(static_cast<double>(c.head));
  const Tensor nothing = g.constant(-std::numeric_limits<double>::infinity());
  Tensor score = g.mul(g.matmul(q, across(k)), g.constant(scale));
  const auto row = [&] { return g.gen_index(score, 3); };
  const auto key = [&] { return g.gen_index(score, 4); };
  score =
      g.binary_select(score, nothing, g.logical_and(g.cmp_lt(row(), of_queries), g.cmp_lt(key(), of_keys)));
  if (c.is_causal) score = g.binary_select(score, nothing, g.cmp_ge(row(), key()));
  const Tensor p = g.exp(g.sub(score, sums("stats")));
  const Tensor ds = g.mul(g.mul(p, g.sub(g.matmul(dy, across(v)), sums("delta"))), g.constant(scale));
  const Tensor rounded = g.identity(ds, {.type = c.type}), weights = g.identity(p, {.type = c.type});
  if (c.leaves_scores) g.output(rounded, {.name = "ds", .type = c.type});
  store("dq", g.matmul(rounded, k), c.queries, members, c.head);
  store("dk", of_group(g.matmul(across(rounded), q)), c.keys, 1, c.head);
  store("dv", of_group(g.matmul(across(weights), dy)), c.keys, 1, c.value);
  return g.finish();
}

using EditInput = std::function<void(const std::string&, const std::function<void(std::byte*)>&)>;

template <class T>
void put_input(const EditInput& edit, const std::string& name, const std::vector<T>& values) {
  edit(name, [&](std::byte* bytes) { std::memcpy(bytes, values.data(), values.size() * sizeof(T)); });
}

/// Where an input's rows begin, and NaN in those that do not exist.
inline void put_rows(const RaggedCase& c, const EditInput& edit, const std::string& name,
                     const std::vector<int64_t>& lengths, int64_t row) {
  const std::vector<int64_t> starts = ragged_starts(lengths, row, c.gap, c.shift);
  put_input(edit, name + "_start", starts);
  edit(name, [&](std::byte* bytes) {
    std::vector<bool> exists(static_cast<size_t>(starts.back()), false);
    for (size_t i = 0; i < lengths.size(); ++i)
      for (int64_t at = starts[i]; at < starts[i] + lengths[i] * row; ++at)
        exists[static_cast<size_t>(at)] = true;
    const uint16_t nan = 0x7fff;
    for (size_t at = 0; at < exists.size(); ++at)
      if (!exists[at]) std::memcpy(bytes + 2 * at, &nan, 2);
  });
}

inline void put_lengths(const RaggedCase& c, const EditInput& edit) {
  put_input(edit, "seq_len_q", std::vector<int32_t>(c.queries.begin(), c.queries.end()));
  put_input(edit, "seq_len_kv", std::vector<int32_t>(c.keys.begin(), c.keys.end()));
}

/// Gives `edit` each input of ragged_attention that is not random, and q, k and v, of which rows that do not
/// exist become NaN.
inline void fill_ragged(const RaggedCase& c, const EditInput& edit) {
  put_rows(c, edit, "q", c.queries, c.heads * c.head);
  put_rows(c, edit, "k", c.keys, c.shared_heads * c.head);
  put_rows(c, edit, "v", c.keys, c.shared_heads * c.value);
  put_input(edit, "o_start", ragged_starts(c.queries, c.heads * c.value, c.gap, 0));
  put_input(edit, "stats_start", ragged_starts(c.queries, c.heads, c.gap, 0));
  if (c.has_lengths) put_lengths(c, edit);
}

/// Fills the inputs of ragged_gradients likewise.
inline void fill_ragged_gradients(const RaggedCase& c, const EditInput& edit) {
  put_rows(c, edit, "q", c.queries, c.heads * c.head);
  put_rows(c, edit, "k", c.keys, c.shared_heads * c.head);
  put_rows(c, edit, "v", c.keys, c.shared_heads * c.value);
  put_rows(c, edit, "dy", c.queries, c.heads * c.value);
  put_input(edit, "dq_start", ragged_starts(c.queries, c.heads * c.head, c.gap, 0));
  put_input(edit, "dk_start", ragged_starts(c.keys, c.shared_heads * c.head, c.gap, 0));
  put_input(edit, "dv_start", ragged_starts(c.keys, c.shared_heads * c.value, c.gap, 0));
  put_lengths(c, edit);
}

}  // namespace fusor::test
