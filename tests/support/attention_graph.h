// Owns attention as a user writes it by hand, forward and backward, for tests: matmuls, masks and a softmax
// of simpler ops.
#pragma once

#include <cmath>
#include <limits>

#include "frontend/graph_builder.h"

namespace fusor::test {

enum class Mask { none, causal, bottom_right, window };

struct AttentionCase {
  int64_t batch = 1, heads = 1, shared_heads = 1, queries = 64, keys = 64, head = 64, value = 64;
  Mask mask = Mask::none;
  DataType type = DataType::bf16;
};

/// Keys that a window leaves in front of the diagonal, itself included.
inline constexpr int64_t kWindow = 70;

/// `score` is what becomes of the first product; finish() puts softmax and second product behind it.
struct AttentionGraph {
  GraphBuilder g{"attention"};
  AttentionCase c;
  Tensor score;

  /// A scale that is not known is a scalar of each run.
  enum class Scale { known, positive, any };
  explicit AttentionGraph(const AttentionCase& case_, Scale scale = Scale::known) : c(case_) {
    const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
    const int64_t plane = c.head * c.keys;
    const Tensor k = g.input("k", {c.batch, c.shared_heads, c.head, c.keys}, c.type,
                             {.strides = Strides{c.shared_heads * plane, plane, 1, c.head}});
    const Tensor product = g.matmul(q, k);
    score = g.mul(product, factor(scale));
  }

  Tensor factor(Scale scale) {
    if (scale == Scale::known) return g.constant(1 / std::sqrt(static_cast<double>(c.head)));
    const Tensor given = g.scalar("scale", DataType::f32);
    return scale == Scale::any ? given : g.max(given, g.constant(1e-30));
  }
  Tensor row() { return g.gen_index(score, 2); }
  Tensor key() { return g.gen_index(score, 3); }
  Tensor nothing() { return g.constant(-std::numeric_limits<double>::infinity()); }
  void keep(const Tensor& condition) { score = g.binary_select(score, nothing(), condition); }
  /// Queries see keys of their own documents, whose numbers are inputs.
  void keep_documents() {
    keep(g.cmp_eq(g.input("of_queries", {c.batch, 1, c.queries, 1}, DataType::i32),
                  g.input("of_keys", {c.batch, 1, 1, c.keys}, DataType::i32)));
  }
  void mask() {
    const auto shift = static_cast<double>(c.keys - c.queries);
    if (c.mask == Mask::causal || c.mask == Mask::window) keep(g.cmp_ge(row(), key()));
    if (c.mask == Mask::bottom_right) keep(g.cmp_le(key(), g.add(row(), g.constant(shift, DataType::i32))));
    if (c.mask == Mask::window)
      keep(g.cmp_lt(g.sub(row(), key()), g.constant(static_cast<double>(kWindow), DataType::i32)));
  }

  /// Scores of keys that a query does not see become zero.
  void keep_or_zero() { score = g.binary_select(score, g.constant(0), g.cmp_ge(row(), key())); }

  /// Values are multiplied by the scores, without a softmax.
  Graph finish_plain() {
    const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
    g.output(g.matmul(score, v), {.name = "o", .type = c.type});
    return g.finish();
  }

  /// `weight`: of probabilities, which the result is divided by.
  Graph finish(bool with_statistics = false, double weight = 1) {
    const Tensor largest = g.reduce(score, ReductionMode::max, {3});
    const Tensor exponential = g.exp(g.sub(score, largest));
    const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
    const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
    if (with_statistics) g.output(g.add(g.log(sum), largest), {.name = "logsumexp", .type = DataType::f32});
    const DataType result = is_fp8(c.type) ? DataType::f32 : c.type;
    Tensor p = g.div(exponential, sum);
    if (weight != 1) p = g.mul(p, g.constant(weight));
    Tensor o = g.matmul(p, v);
    if (weight != 1) o = g.mul(o, g.constant(1 / weight));
    g.output(o, {.name = "o", .type = result});
    Graph graph = g.finish();
    // Without which no engine multiplies fp8 as such.
    if (is_fp8(c.type)) graph.precision = Precision::allow_short_sums;
    return graph;
  }
};

/// The op, for operands of fp8: its probabilities are weighted.
inline Graph attention_in_fp8(const AttentionCase& c, const SdpaAttributes& attributes,
                              bool with_statistics = false) {
  GraphBuilder g("attention_in_fp8", Precision::allow_short_sums);
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, DataType::f8_e4m3);
  const Tensor k = g.input("k", {c.batch, c.shared_heads, c.keys, c.head}, DataType::f8_e4m3);
  const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, DataType::f8_e4m3);
  const SdpaResults forward = g.sdpa_fwd(q, k, v, {.attributes = attributes});
  g.output(forward.o, {.name = "o", .type = DataType::f32});
  if (with_statistics) g.output(forward.stats, {.name = "stats", .type = DataType::f32});
  return g.finish();
}

/// Attention of fp8 as cudnn-frontend writes it: factors of one element in memory, a score that no row falls
/// below, and the largest probability and result, which the next call's factors are made of.
inline Graph quantised_attention(const AttentionCase& c) {
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  const auto factor = [&](const char* name) { return g.input(name, {1, 1, 1, 1}, DataType::f32); };
  graph.score = g.mul(g.mul(graph.score, factor("descale_q")), factor("descale_k"));
  graph.mask();
  const Tensor best = g.reduce(graph.score, ReductionMode::max, {3});
  const Tensor largest = g.max(best, g.constant(-3e38));
  const Tensor exponential = g.exp(g.sub(graph.score, largest));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
  const Tensor divisor = g.binary_select(sum, g.constant(1), g.cmp_neq(sum, g.constant(0)));
  g.output(g.add(best, g.log(sum)), {.name = "stats", .type = DataType::f32});
  const Tensor p = g.div(exponential, divisor);
  g.output(g.reduce(p, ReductionMode::amax, {0, 1, 2, 3}), {.name = "amax_s", .type = DataType::f32});
  const Tensor scaled = g.mul(p, factor("scale_s"), {.type = c.type});
  const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
  const Tensor o = g.mul(g.mul(g.matmul(scaled, v), factor("descale_s")), factor("descale_v"));
  g.output(g.reduce(o, ReductionMode::amax, {0, 1, 2, 3}), {.name = "amax_o", .type = DataType::f32});
  g.output(g.mul(o, factor("scale_o")), {.name = "o", .type = c.type});
  Graph finished = g.finish();
  finished.precision = Precision::allow_short_sums;
  return finished;
}

/// Attention under a mask and nothing else.
inline Graph attention(const AttentionCase& c, bool with_statistics = false) {
  AttentionGraph graph(c);
  graph.mask();
  return graph.finish(with_statistics);
}

/// The same, scaled by a number that is known in each run only.
inline Graph attention_of_given_scale(const AttentionCase& c, AttentionGraph::Scale scale) {
  AttentionGraph graph(c, scale);
  graph.mask();
  return graph.finish(true);
}

/// Queries and values whose rows are adjacent in memory, keys whose head is not.
inline Graph transposed_attention(const AttentionCase& c) {
  GraphBuilder g("transposed");
  const auto across = [&](int64_t rows, int64_t columns, int64_t heads) {
    return Strides{heads * rows * columns, rows * columns, 1, rows};
  };
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type,
                           {.strides = across(c.queries, c.head, c.heads)});
  const Tensor k = g.input("k", {c.batch, c.heads, c.head, c.keys}, c.type);
  const Tensor v = g.input("v", {c.batch, c.heads, c.keys, c.value}, c.type,
                           {.strides = across(c.keys, c.value, c.heads)});
  const Tensor score = g.matmul(q, k);
  const Tensor exponential = g.exp(g.sub(score, g.reduce(score, ReductionMode::max, {3})));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
  g.output(g.matmul(g.div(exponential, sum), v), {.name = "o", .type = c.type});
  return g.finish();
}

/// The backward pass: probabilities from the forward pass's log-sum-exp, gradients of scores, and what is
/// made of both. `scored` is what a test makes of the score, and of the gradient that comes back to it.
struct AttentionBackwardGraph {
  GraphBuilder g{"attention_backward"};
  AttentionCase c;
  Tensor q, k, v, dy, product, score, gradient, probability;

  DataType products = DataType::f32;  ///< what q k and dy v are rounded to

  explicit AttentionBackwardGraph(const AttentionCase& case_, bool is_scaled = true,
                                  DataType products_ = DataType::f32)
      : c(case_), products(products_) {
    q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
    k = g.input("k", {c.batch, c.heads, c.keys, c.head}, c.type);
    v = g.input("v", {c.batch, c.heads, c.keys, c.value}, c.type);
    dy = g.input("dy", {c.batch, c.heads, c.queries, c.value}, c.type);
    product = g.matmul(q, transposed(k), {.type = products});
    score = is_scaled ? g.mul(product, g.constant(scale())) : product;
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(c.head)); }
  Tensor transposed(const Tensor& x) { return g.transpose(x, {0, 1, 3, 2}); }
  void keep(const Tensor& condition) {
    score = g.binary_select(score, g.constant(-std::numeric_limits<double>::infinity()), condition);
  }
  /// Queries see keys of their own documents, whose numbers are inputs.
  void keep_documents() {
    keep(g.cmp_eq(g.input("of_queries", {c.batch, 1, c.queries, 1}, DataType::i32),
                  g.input("of_keys", {c.batch, 1, 1, c.keys}, DataType::i32)));
  }
  void mask() {
    if (c.mask == Mask::none) return;
    const Tensor row = g.gen_index(score, 2), key = g.gen_index(score, 3);
    const double shift = c.mask == Mask::bottom_right ? static_cast<double>(c.keys - c.queries) : 0.0;
    keep(g.cmp_le(key, g.add(row, g.constant(shift, DataType::i32))));
    if (c.mask == Mask::window)
      keep(g.cmp_lt(g.sub(row, key), g.constant(static_cast<double>(kWindow), DataType::i32)));
  }
  /// exp(score - log-sum-exp), and its gradient.
  void differentiate() {
    const Tensor o = g.input("o", {c.batch, c.heads, c.queries, c.value}, c.type);
    const Tensor stats = g.input("stats", {c.batch, c.heads, c.queries, 1}, DataType::f32);
    const Tensor delta = g.reduce(g.mul(dy, o), ReductionMode::add, {3});
    probability = g.exp(g.sub(score, stats));
    gradient = g.mul(probability, g.sub(g.matmul(dy, transposed(v), {.type = products}), delta));
  }
  Graph finish() {
    g.output(g.mul(g.matmul(gradient, k), g.constant(scale())), {.name = "dq", .type = c.type});
    g.output(g.mul(g.matmul(transposed(gradient), q), g.constant(scale())), {.name = "dk", .type = c.type});
    g.output(g.matmul(transposed(probability), dy), {.name = "dv", .type = c.type});
    return g.finish();
  }
};

inline Graph attention_backward(const AttentionCase& c) {
  AttentionBackwardGraph graph(c);
  graph.mask();
  graph.differentiate();
  return graph.finish();
}

/// The gradients as cudnn-frontend writes them, behind a forward pass: a scale that multiplies
/// gradients of scores, too, a mask behind the statistics, probabilities that are rounded for one product
/// only.
/// With lengths, "seq_len_q" and "seq_len_kv" are inputs. With dropout, row sums are multiplied by the share
/// that is kept, and gradients divided by it.
inline Graph gradients_in_primitives(const AttentionCase& c, bool given_scale = true,
                                     bool has_lengths = false, double dropout = 0) {
  AttentionBackwardGraph graph(c, false);
  GraphBuilder& g = graph.g;
  const Tensor scale = given_scale ? g.scalar("scale", DataType::f32) : g.constant(graph.scale());
  const auto length = [&](const char* name) { return g.input(name, {c.batch, 1, 1, 1}, DataType::i32); };
  const Tensor of_queries = has_lengths ? length("seq_len_q") : Tensor(),
               of_keys = has_lengths ? length("seq_len_kv") : Tensor();
  const auto keep_lengths = [&] {
    if (has_lengths)
      graph.keep(g.logical_and(g.cmp_lt(g.gen_index(graph.score, 2), of_queries),
                               g.cmp_lt(g.gen_index(graph.score, 3), of_keys)));
  };
  const double share = 1 - dropout;
  const Tensor seed = dropout > 0 ? g.scalar("seed", DataType::i64) : Tensor(),
               offset = dropout > 0 ? g.scalar("offset", DataType::i64) : Tensor();
  // A mask for each pass, as two graphs of a client have it.
  const auto random = [&] {
    return dropout > 0 ? g.rng({c.batch, c.heads, c.queries, c.keys}, seed, offset,
                               {.distribution = Distribution::bernoulli, .probability = share})
                       : Tensor();
  };
  const auto kept = [&](const Tensor& x, const Tensor& mask) { return dropout > 0 ? g.mul(x, mask) : x; };
  const auto divided = [&](const Tensor& x) { return dropout > 0 ? g.mul(x, g.constant(1 / share)) : x; };
  graph.score = g.mul(graph.product, scale);
  keep_lengths();
  graph.mask();
  const Tensor masked = graph.score;
  const Tensor largest = g.max(g.reduce(masked, ReductionMode::max, {3}), g.constant(-3e38));
  const Tensor exponential = g.exp(g.sub(masked, largest));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
  const Tensor divisor = g.binary_select(sum, g.constant(1), g.cmp_neq(sum, g.constant(0)));
  const Tensor probability = divided(kept(g.div(exponential, divisor), random()));
  const Tensor o = g.output(g.matmul(probability, graph.v), {.name = "o", .type = c.type});
  const Tensor stats = g.output(g.add(largest, g.log(sum)), {.name = "stats", .type = DataType::f32});
  const Tensor product = g.reduce(g.mul(graph.dy, o), ReductionMode::add, {3});
  const Tensor delta = g.output(dropout > 0 ? g.mul(product, g.constant(share)) : product,
                                {.name = "delta", .type = DataType::f32});
  // A product of its own, as the other graph of a client has it.
  graph.score = g.mul(g.matmul(graph.q, graph.transposed(graph.k)), scale);
  keep_lengths();
  graph.score = g.sub(graph.score, has_lengths ? g.max(stats, g.constant(-3e38)) : stats);
  graph.mask();
  const Tensor p = g.exp(graph.score);
  const Tensor mask = random();
  const Tensor rounded = g.identity(divided(kept(p, mask)), {.type = c.type});
  g.output(g.matmul(graph.transposed(rounded), graph.dy), {.name = "dv", .type = c.type});
  const Tensor dp = g.matmul(graph.dy, graph.transposed(graph.v));
  const Tensor ds = g.mul(divided(g.mul(g.sub(kept(dp, mask), delta), p)), scale, {.type = c.type});
  g.output(g.matmul(graph.transposed(g.identity(ds, {.type = c.type})), graph.q),
           {.name = "dk", .type = c.type});
  g.output(g.matmul(ds, graph.k), {.name = "dq", .type = c.type});
  return g.finish();
}

/// The op's attributes of a case, of which a share of the probabilities is dropped.
inline SdpaAttributes attributes_of(const AttentionCase& c, double dropout = 0) {
  SdpaAttributes attributes{.attn_scale = 1 / std::sqrt(static_cast<double>(c.head))};
  if (c.mask != Mask::none) attributes.right_bound = 0;
  if (c.mask == Mask::window) attributes.left_bound = kWindow;
  if (c.mask == Mask::bottom_right) attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
  attributes.dropout_probability = dropout;
  return attributes;
}

/// Options with what dropout needs, if it is asked for.
inline SdpaOptions with_seed(GraphBuilder& g, const SdpaAttributes& attributes) {
  SdpaOptions options{.attributes = attributes};
  if (attributes.dropout_probability == 0) return options;
  options.seed = g.scalar("seed", DataType::i64);
  options.offset = g.scalar("offset", DataType::i64);
  return options;
}

/// The op, forward, with statistics.
inline Graph attention_with_dropout(const AttentionCase& c, const SdpaAttributes& attributes) {
  GraphBuilder g("attention_with_dropout");
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
  const Tensor k = g.input("k", {c.batch, c.shared_heads, c.keys, c.head}, c.type);
  const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
  const SdpaResults forward = g.sdpa_fwd(q, k, v, with_seed(g, attributes));
  g.output(forward.o, {.name = "o", .type = c.type});
  g.output(forward.stats, {.name = "stats", .type = DataType::f32});
  return g.finish();
}

/// Both passes of the op, so that probabilities are those of a softmax. `bias`: dims of a bias, whose
/// gradient is asked for, too; `blocks`: dims of a block mask. None where empty.
inline Graph attention_and_gradients(const AttentionCase& c, const SdpaAttributes& attributes,
                                     const Dims& bias = {}, const Dims& blocks = {}) {
  GraphBuilder g("attention_and_gradients");
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
  const Tensor k = g.input("k", {c.batch, c.shared_heads, c.keys, c.head}, c.type);
  const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
  const Tensor dy = g.input("dy", {c.batch, c.heads, c.queries, c.value}, c.type);
  SdpaOptions options = with_seed(g, attributes);
  if (!bias.empty()) options.bias = g.input("bias", bias, c.type);
  if (!blocks.empty()) options.block_mask = g.input("blocks", blocks, DataType::u8);
  const SdpaResults forward = g.sdpa_fwd(q, k, v, options);
  const Tensor o = g.output(forward.o, {.name = "o", .type = c.type});
  const Tensor stats = g.output(forward.stats, {.name = "stats", .type = DataType::f32});
  const SdpaGradients back = g.sdpa_bwd(q, k, v, o, dy, stats, options);
  g.output(back.dq, {.name = "dq", .type = c.type});
  g.output(back.dk, {.name = "dk", .type = c.type});
  g.output(back.dv, {.name = "dv", .type = c.type});
  if (!bias.empty()) g.output(back.dbias, {.name = "dbias", .type = c.type});
  return g.finish();
}

}  // namespace fusor::test
