// Owns the test that attention is one kernel however a user says it: by hand, or as the op.
#include <gtest/gtest.h>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/planner/planner.h"
#include "codegen/text/expr_emitter.h"
#include "tests/backend/engines/ask.h"
#include "tests/support/attention_graph.h"
#include "tests/support/structure.h"

namespace fusor {
namespace {

using test::AttentionCase;
using test::AttentionGraph;
using test::Mask;

// The structure of the kernel of the attention engine's first candidate for the graph's one fusion.
std::string structure_of(const Graph& graph) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Graph expanded = expand(graph);
  const FoldedGraph folded = fold_views(expanded);
  const std::vector<std::vector<int>> groups = partition(expanded, folded);
  EXPECT_EQ(groups.size(), 1);
  const Fusion fusion = make_fusion(expanded, folded, groups.front());
  const Support support = test::supports(attention_engine(), fusion, device);
  EXPECT_TRUE(support) << to_string(support.refusal.value_or(Refusal{}));
  if (!support) return {};
  const EngineConfig config = test::candidates(attention_engine(), fusion, device).front().config;
  const Lowered lowered = test::lower(attention_engine(), fusion, config, device);
  return structure_hash(*std::get<Launch>(lowered.steps.at(0)).source);
}

Graph by_op(const AttentionCase& c, const SdpaAttributes& attributes) {
  GraphBuilder g("op");
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
  const Tensor k = g.input("k", {c.batch, c.heads, c.keys, c.head}, c.type);
  const Tensor v = g.input("v", {c.batch, c.heads, c.keys, c.value}, c.type);
  g.output(g.sdpa_fwd(q, k, v, {.attributes = attributes}).o, {.name = "o", .type = c.type});
  return g.finish();
}

TEST(Attention, IsOneKernelByHandAndAsAnOp) {
  const AttentionCase c{.heads = 2};
  EXPECT_EQ(structure_of(test::attention(c)), structure_of(by_op(c, {.attn_scale = 0.125})));
}

TEST(Attention, IsOneKernelHoweverASoftmaxIsDivided) {
  enum class Way { quotient, reciprocal, logarithm };
  const auto divided = [](Way way) {
    AttentionGraph graph({.heads = 2});
    GraphBuilder& g = graph.g;
    const Tensor largest = g.reduce(graph.score, ReductionMode::max, {3});
    const Tensor exponential = g.exp(g.sub(graph.score, largest));
    const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
    const Tensor p = way == Way::quotient     ? g.div(exponential, sum)
                     : way == Way::reciprocal ? g.mul(g.reciprocal(sum), exponential)
                                              : g.exp(g.sub(graph.score, g.add(largest, g.log(sum))));
    const Tensor v = g.input("v", {1, 1, 64, 64}, DataType::bf16);
    g.output(g.matmul(p, v), {.name = "o", .type = DataType::bf16});
    return g.finish();
  };
  const std::string structure = structure_of(divided(Way::quotient));
  EXPECT_EQ(structure_of(divided(Way::reciprocal)), structure);
  EXPECT_EQ(structure_of(divided(Way::logarithm)), structure);
}

TEST(Attention, IsOneKernelForAScaleOfEachRun) {
  using Scale = test::AttentionGraph::Scale;
  const AttentionCase c{.heads = 2, .mask = Mask::causal};
  const std::string known = structure_of(test::attention(c, true));
  EXPECT_EQ(structure_of(test::attention_of_given_scale(c, Scale::positive)), known);
  // One of any sign is an op of the score.
  EXPECT_NE(structure_of(test::attention_of_given_scale(c, Scale::any)), known);
}

// As cudnn-frontend writes them.
TEST(Attention, GradientsAreTheSameKernelsForAScaleOfEachRun) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const AttentionCase c{.heads = 2, .queries = 200, .keys = 200, .mask = Mask::causal};
  const auto given =
      test::structures_of(test::gradients_in_primitives(c), attention_backward_engine(), device);
  ASSERT_FALSE(given.empty());
  EXPECT_EQ(given, test::structures_of(test::gradients_in_primitives(c, false), attention_backward_engine(),
                                       device));
}

TEST(Attention, IsOneKernelInFp8AsAnOp) {
  AttentionGraph by_hand({.heads = 2, .type = DataType::f8_e4m3});
  EXPECT_EQ(structure_of(by_hand.finish(false, 256)),
            structure_of(test::attention_in_fp8({.heads = 2, .shared_heads = 2}, {.attn_scale = 0.125})));
}

// Lengths are told to the kernel, and are no op of the score: scales stay plain, blocks behind them are
// skipped.
TEST(Attention, LengthsAreNoPartOfTheScore) {
  const AttentionCase c{.batch = 8, .heads = 16, .queries = 2048, .keys = 2048};
  GraphBuilder g("lengths");
  const SdpaOptions options{.attributes = {.attn_scale = 0.125, .right_bound = 0, .padding_mask = true},
                            .seq_len_q = g.input("a", {c.batch, 1, 1, 1}, DataType::i32),
                            .seq_len_kv = g.input("b", {c.batch, 1, 1, 1}, DataType::i32)};
  const auto rows = [&](const char* name) {
    return g.input(name, {c.batch, c.heads, c.queries, c.head}, c.type);
  };
  g.output(g.sdpa_fwd(rows("q"), rows("k"), rows("v"), options).o, {.name = "o", .type = c.type});
  const std::string text = source(build(g.finish(), DeviceInfo::named("H200"), {.compile = false}));
  EXPECT_NE(text.find("limited = true"), std::string::npos);
  EXPECT_NE(text.find("plain_scores = true"), std::string::npos);
}

TEST(Attention, LengthsAreNoPartOfTheGradientsSite) {
  const AttentionCase c{.batch = 8, .heads = 16, .shared_heads = 16, .queries = 2048, .keys = 2048};
  const Graph graph = test::gradients_in_primitives(c, true, true);
  const std::string text = source(build(graph, DeviceInfo::named("H200"), {.compile = false}));
  const size_t backward = text.find("attention_backward_keys");
  ASSERT_NE(backward, std::string::npos);
  EXPECT_NE(text.find("limited = true", backward), std::string::npos);
  EXPECT_EQ(text.find("limited = false"), std::string::npos);
  EXPECT_EQ(text.find(" plain = false"), std::string::npos);
}

// Probabilities by hand: a bernoulli mask that multiplies, or a select; `is_given`: the scale is a number of
// each run.
Graph dropped_by_hand(const AttentionCase& c, bool selects, bool is_given = false) {
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  const Tensor exponential = g.exp(g.sub(graph.score, g.reduce(graph.score, ReductionMode::max, {3})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {3}));
  const Tensor kept = g.rng(p.dims, g.scalar("seed", DataType::i64), g.scalar("offset", DataType::i64),
                            {.distribution = Distribution::bernoulli, .probability = 0.9});
  const Tensor scale =
      is_given ? g.max(g.scalar("kept", DataType::f32), g.constant(1e-30)) : g.constant(1 / 0.9);
  const Tensor scaled = g.mul(p, scale);
  const Tensor dropped = selects ? g.binary_select(scaled, g.constant(0), kept) : g.mul(scaled, kept);
  g.output(g.matmul(dropped, g.input("v", {c.batch, c.heads, c.keys, c.value}, c.type)),
           {.name = "o", .type = c.type});
  return g.finish();
}

TEST(Attention, DropoutIsTheSameKernelByHandAndAsAnOp) {
  const AttentionCase c{.heads = 2, .shared_heads = 2};
  GraphBuilder g("op");
  const SdpaOptions options = test::with_seed(g, {.attn_scale = 0.125, .dropout_probability = 0.1});
  const auto rows = [&](const char* name) {
    return g.input(name, {c.batch, c.heads, c.queries, c.head}, c.type);
  };
  g.output(g.sdpa_fwd(rows("q"), rows("k"), rows("v"), options).o, {.name = "o", .type = c.type});
  const std::string op = structure_of(g.finish());
  EXPECT_NE(op, "");
  EXPECT_NE(op, structure_of(by_op(c, {.attn_scale = 0.125})));
  EXPECT_EQ(op, structure_of(dropped_by_hand(c, true)));
  EXPECT_EQ(op, structure_of(dropped_by_hand(c, false)));
  EXPECT_EQ(op, structure_of(dropped_by_hand(c, false, true)));
}

// As cudnn-frontend writes a sink beside lengths: a reduction of no axis, a maximum whose NaN is replaced,
// and values that a condition of rows alone hides.
TEST(Attention, ASinkBesideLengthsIsOneKernel) {
  const AttentionCase c{.batch = 8, .heads = 16, .shared_heads = 16, .queries = 2048, .keys = 2048};
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  const Tensor keys = g.input("keys", {c.batch, 1, 1, 1}, DataType::i32),
               queries = g.input("queries", {c.batch, 1, 1, 1}, DataType::i32),
               sink = g.input("sink", {1, c.heads, 1, 1}, DataType::f32);
  graph.keep(g.logical_and(g.cmp_lt(graph.row(), queries), g.cmp_lt(graph.key(), keys)));
  const Tensor same = g.reduce_to(graph.score, ReductionMode::max, graph.score.dims);
  const Tensor largest = g.max(g.reduce(same, ReductionMode::max, {3}), sink);
  const Tensor guarded = g.binary_select(largest, g.constant(0), g.cmp_eq(largest, largest));
  const Tensor exponential = g.exp(g.sub(graph.score, guarded));
  const Tensor sum = g.add(g.reduce(exponential, ReductionMode::add, {3}), g.exp(g.sub(sink, largest)));
  const Tensor v = g.input("v", {c.batch, c.heads, c.keys, c.value}, c.type);
  const Tensor number = g.gen_index(g.input("shape", {1, 1, c.keys, 1}, DataType::i32), 2);
  const Tensor existing = g.binary_select(v, g.constant(0), g.cmp_lt(number, keys), {.type = c.type});
  g.output(g.add(largest, g.log(sum)), {.name = "stats", .type = DataType::f32});
  g.output(g.matmul(g.div(exponential, sum), existing), {.name = "o", .type = c.type});
  const Plan plan = build(g.finish(), DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention");
  const std::string text = source(plan);
  for (const char* part : {"limited = true", "has_sink = true", "plain_scores = true", "ragged_maps"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

// The condition of dropout is no part of the gradients' site: scores stay plain, and blocks that a mask hides
// are skipped.
TEST(Attention, DropoutIsNoPartOfTheGradientsSite) {
  const AttentionCase c{
      .batch = 2, .heads = 4, .shared_heads = 2, .queries = 512, .keys = 512, .mask = Mask::causal};
  const Graph graph = test::attention_and_gradients(c, test::attributes_of(c, 0.1));
  const std::string text = source(build(graph, DeviceInfo::named("H200"), {.compile = false}));
  EXPECT_NE(text.find("attention_backward_keys"), std::string::npos);
  EXPECT_EQ(text.find("drops = false"), std::string::npos);
  EXPECT_EQ(text.find("plain = false"), std::string::npos);
  EXPECT_EQ(text.find("plain_scores = false"), std::string::npos);
  EXPECT_EQ(text.find("upper = 0"), std::string::npos);
}

// cudnn-frontend writes dropout as rng, select and a product with a scale: a constant or an operand of the
// run.
TEST(Attention, DropoutInPrimitivesLeavesTheScoresPlain) {
  const AttentionCase c{.batch = 2, .heads = 16, .queries = 2048, .keys = 2048, .mask = Mask::causal};
  for (const bool given_scale : {true, false}) {
    const Graph graph = test::gradients_in_primitives(c, given_scale, false, 0.25);
    const std::string text = source(build(graph, DeviceInfo::named("H200"), {.compile = false}));
    EXPECT_NE(text.find("attention_forward"), std::string::npos);
    EXPECT_NE(text.find("attention_backward_keys"), std::string::npos);
    EXPECT_EQ(text.find("drops = false"), std::string::npos);
    EXPECT_EQ(text.find(" plain = false"), std::string::npos);
  }
}

TEST(Attention, TakesTheOpWithItsMasks) {
  const AttentionCase c{.heads = 2, .queries = 100, .keys = 140};
  EXPECT_NE(structure_of(by_op(c, {.attn_scale = 0.125, .right_bound = 0})), "");
  EXPECT_NE(structure_of(by_op(c, {.attn_scale = 0.125, .left_bound = 30, .right_bound = 0})), "");
  EXPECT_NE(structure_of(by_op(c, {.alibi_mask = true})), "");
}

TEST(Attention, TakesSlopesOfHeadsThatShareKeys) {
  GraphBuilder g;
  const Tensor q = g.input("q", {1, 8, 256, 64}, DataType::bf16);
  const Tensor k = g.input("k", {1, 2, 256, 64}, DataType::bf16),
               v = g.input("v", {1, 2, 256, 64}, DataType::bf16);
  const SdpaOptions options{.attributes = {.right_bound = 0, .alibi_mask = true}};
  const Plan plan = build(g.finish({g.sdpa_fwd(q, k, v, options).o}), DeviceInfo::named("H200"),
                          BuildOptions{.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention");
}

}  // namespace
}  // namespace fusor
