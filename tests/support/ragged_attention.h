// Owns attention over sequences that lie one behind the other, for tests: the graph, the numbers that say
// where sequences are, and NaN wherever none is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/ceil_div.h"
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
  bool ends_together = false;   ///< a causal diagonal ends with the last query and key of a sequence
  bool leaves_scores = false;   ///< gradients of scores are a result, too, of all rows
  bool has_one_length = false;  ///< by the op: queries and keys of a sequence have the same, one tensor
  bool is_padded = false;       ///< by the op: tensors are dense, with as many rows as the longest sequence

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
  Tensor shift;
  if (c.has_lengths) {
    const Tensor of_queries = length("seq_len_q"), of_keys = length("seq_len_kv");
    if (c.ends_together) shift = g.sub(of_keys, of_queries);
    score =
        g.binary_select(score, nothing, g.logical_and(g.cmp_lt(row(), of_queries), g.cmp_lt(key(), of_keys)));
    // As products with lengths do: a probability of 0 times NaN is NaN.
    v = g.binary_select(v, g.constant(0), g.cmp_lt(g.gen_index(v, 3), of_keys));
  }
  if (c.is_causal)
    score = g.binary_select(score, nothing, g.cmp_ge(c.ends_together ? g.add(row(), shift) : row(), key()));
  const Tensor largest = g.reduce(score, ReductionMode::max, {4});
  const Tensor exponential = g.exp(g.sub(score, g.max(largest, g.constant(-3e38))));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {4});
  const Tensor divisor = g.binary_select(sum, g.constant(1), g.cmp_neq(sum, g.constant(0)));
  store("stats", g.add(largest, g.log(sum)), 1, DataType::f32);
  store("o", g.matmul(g.div(exponential, divisor, {.type = c.type}), v), c.value, c.type);
  return g.finish();
}

/// A graph of the op's, whose heads are one axis: its operands, its results, and what it is told.
struct RaggedOpGraph {
  const RaggedCase& c;
  GraphBuilder g;

  Tensor starts(const std::string& name) { return g.input(name + "_start", {c.batch() + 1}, DataType::i64); }
  Tensor load(const std::string& name, const std::vector<int64_t>& lengths, int64_t heads, int64_t head) {
    const Dims dims{c.batch(), heads, longest(lengths), head};
    if (c.is_padded) return g.input(name, dims, c.type);
    const int64_t row = heads * head;
    const Tensor x = g.input(name, {ragged_starts(lengths, row, c.gap, c.shift).back()}, c.type);
    return g.ragged_load(x, starts(name), dims, {head, row, 1});
  }
  void store(const std::string& name, const Tensor& x, const std::vector<int64_t>& lengths, int64_t heads,
             int64_t head, DataType type) {
    const int64_t row = heads * head, reach = ragged_starts(lengths, row, c.gap, 0).back();
    const Tensor y =
        c.is_padded ? x : g.ragged_store(x, starts(name), reach, {head, row, 1}, {.type = type}, true);
    g.output(y, {.name = name, .type = type});
  }
  SdpaOptions options() {
    const auto length = [&](const char* name) { return g.input(name, {c.batch(), 1, 1, 1}, DataType::i32); };
    SdpaOptions told;
    told.attributes.attn_scale = 1 / std::sqrt(static_cast<double>(c.head));
    if (c.ends_together) told.attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
    if (c.is_causal) told.attributes.right_bound = 0;
    told.attributes.padding_mask = true;
    told.seq_len_q = told.seq_len_kv = length("seq_len_q");
    if (!c.has_one_length) told.seq_len_kv = length("seq_len_kv");
    return told;
  }
};

/// The same by the op.
inline Graph ragged_attention_by_op(const RaggedCase& c) {
  RaggedOpGraph of{c, GraphBuilder("ragged_by_op")};
  const Tensor q = of.load("q", c.queries, c.heads, c.head), k = of.load("k", c.keys, c.shared_heads, c.head),
               v = of.load("v", c.keys, c.shared_heads, c.value);
  const SdpaResults results = of.g.sdpa_fwd(q, k, v, of.options());
  of.store("stats", results.stats, c.queries, c.heads, 1, DataType::f32);
  of.store("o", results.o, c.queries, c.heads, c.value, c.type);
  return of.g.finish();
}

/// The op over padded tensors, in a window of so many keys, beside a mask of blocks, "blocks".
inline Graph padded_attention_of_blocks(RaggedCase c, int64_t window) {
  c.is_padded = true;
  RaggedOpGraph of{c, GraphBuilder("padded_blocks")};
  const Tensor q = of.load("q", c.queries, c.heads, c.head), k = of.load("k", c.keys, c.shared_heads, c.head),
               v = of.load("v", c.keys, c.shared_heads, c.value);
  SdpaOptions told = of.options();
  told.attributes.left_bound = window;
  const auto blocks = [](const std::vector<int64_t>& lengths) { return ceil_div(longest(lengths), 128); };
  told.block_mask = of.g.input("blocks", {1, 1, blocks(c.queries), blocks(c.keys)}, DataType::u8);
  const SdpaResults results = of.g.sdpa_fwd(q, k, v, told);
  of.store("stats", results.stats, c.queries, c.heads, 1, DataType::f32);
  of.store("o", results.o, c.queries, c.heads, c.value, c.type);
  return of.g.finish();
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
  const auto last_key = [&] { return c.ends_together ? g.add(row(), g.sub(of_keys, of_queries)) : row(); };
  if (c.is_causal) score = g.binary_select(score, nothing, g.cmp_ge(last_key(), key()));
  const Tensor p = g.exp(g.sub(score, sums("stats")));
  const Tensor ds = g.mul(g.mul(p, g.sub(g.matmul(dy, across(v)), sums("delta"))), g.constant(scale));
  const Tensor rounded = g.identity(ds, {.type = c.type}), weights = g.identity(p, {.type = c.type});
  if (c.leaves_scores) g.output(rounded, {.name = "ds", .type = c.type});
  store("dq", g.matmul(rounded, k), c.queries, members, c.head);
  store("dk", of_group(g.matmul(across(rounded), q)), c.keys, 1, c.head);
  store("dv", of_group(g.matmul(across(weights), dy)), c.keys, 1, c.value);
  return g.finish();
}

/// Gradients by the op; of the forward pass, o lies like dy, and "stats" is dense.
inline Graph ragged_gradients_by_op(const RaggedCase& c) {
  RaggedOpGraph of{c, GraphBuilder("ragged_gradients_by_op")};
  const Tensor q = of.load("q", c.queries, c.heads, c.head), k = of.load("k", c.keys, c.shared_heads, c.head),
               v = of.load("v", c.keys, c.shared_heads, c.value),
               o = of.load("o", c.queries, c.heads, c.value), dy = of.load("dy", c.queries, c.heads, c.value);
  const Tensor stats = of.g.input("stats", {c.batch(), c.heads, longest(c.queries), 1}, DataType::f32);
  const SdpaGradients made = of.g.sdpa_bwd(q, k, v, o, dy, stats, of.options());
  of.store("dq", made.dq, c.queries, c.heads, c.head, c.type);
  of.store("dk", made.dk, c.keys, c.shared_heads, c.head, c.type);
  of.store("dv", made.dv, c.keys, c.shared_heads, c.value, c.type);
  return of.g.finish();
}

using EditInput = std::function<void(const std::string&, const std::function<void(std::byte*)>&)>;

template <class T>
void put_input(const EditInput& edit, const std::string& name, const std::vector<T>& values) {
  edit(name, [&](std::byte* bytes) { std::memcpy(bytes, values.data(), values.size() * sizeof(T)); });
}

/// NaN in 16-bit elements of an input that belong to no row.
inline void put_nan(const EditInput& edit, const std::string& name, const std::vector<bool>& exists) {
  edit(name, [&](std::byte* bytes) {
    const uint16_t nan = 0x7fff;
    for (size_t at = 0; at < exists.size(); ++at)
      if (!exists[at]) std::memcpy(bytes + 2 * at, &nan, 2);
  });
}

/// Where an input's rows begin, and NaN in those that do not exist.
inline void put_rows(const RaggedCase& c, const EditInput& edit, const std::string& name,
                     const std::vector<int64_t>& lengths, int64_t row) {
  const std::vector<int64_t> starts = ragged_starts(lengths, row, c.gap, c.shift);
  put_input(edit, name + "_start", starts);
  std::vector<bool> exists(static_cast<size_t>(starts.back()), false);
  for (size_t i = 0; i < lengths.size(); ++i) std::fill_n(exists.begin() + starts[i], lengths[i] * row, true);
  put_nan(edit, name, exists);
}

/// NaN behind the rows that exist of a padded input.
inline void put_padding(const EditInput& edit, const std::string& name, const std::vector<int64_t>& lengths,
                        int64_t heads, int64_t head) {
  std::vector<bool> exists;
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < heads; ++i) {
      exists.insert(exists.end(), static_cast<size_t>(length * head), true);
      exists.insert(exists.end(), static_cast<size_t>((longest(lengths) - length) * head), false);
    }
  put_nan(edit, name, exists);
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

/// Fills the inputs of padded_attention_of_blocks likewise: every third block is hidden.
inline void fill_padded_of_blocks(const RaggedCase& c, const EditInput& edit) {
  put_padding(edit, "q", c.queries, c.heads, c.head);
  put_padding(edit, "k", c.keys, c.shared_heads, c.head);
  put_padding(edit, "v", c.keys, c.shared_heads, c.value);
  put_lengths(c, edit);
  std::vector<uint8_t> blocks(
      static_cast<size_t>(ceil_div(longest(c.queries), 128) * ceil_div(longest(c.keys), 128)));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = i % 3 != 1 ? 1 : 0;
  put_input(edit, "blocks", blocks);
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

/// Fills the inputs of ragged_gradients_by_op likewise. Probabilities are below 1 with these statistics.
inline void fill_ragged_gradients_by_op(const RaggedCase& c, const EditInput& edit) {
  const auto rows = static_cast<size_t>(c.batch() * c.heads * longest(c.queries));
  put_input(edit, "stats", std::vector<float>(rows, std::log(static_cast<float>(longest(c.keys))) + 0.5F));
  if (c.is_padded) {
    for (const auto& [name, head] :
         {std::pair("q", c.head), std::pair("o", c.value), std::pair("dy", c.value)})
      put_padding(edit, name, c.queries, c.heads, head);
    for (const auto& [name, head] : {std::pair("k", c.head), std::pair("v", c.value)})
      put_padding(edit, name, c.keys, c.shared_heads, head);
    put_lengths(c, edit);
    return;
  }
  fill_ragged_gradients(c, edit);
  put_rows(c, edit, "o", c.queries, c.heads * c.value);
}

}  // namespace fusor::test
