// Owns the tests that matmuls have the batch axes of what is around them.
#include "backend/planner/rewrites/products/split_batches.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::SizeIs;
using testing::StartsWith;

// Attention of batched matmuls with three axes, and a mask of each sequence, as many models have it.
// `merges_rows`: queries are scaled in front of the product, and the softmax is taken in merged batches.
Graph attention(int64_t length, bool splits_heads, bool merges_rows) {
  constexpr int64_t kBatch = 2, kHeads = 3, kHead = 64;
  GraphBuilder g;
  const auto heads = [&](const char* name) {
    if (!splits_heads) return g.input(name, {kBatch * kHeads, length, kHead}, DataType::bf16);
    const Tensor x = g.input(name, {kBatch, length, kHeads * kHead}, DataType::bf16);
    const Tensor split = g.transpose(g.reshape(x, {kBatch, length, kHeads, kHead}), {0, 2, 1, 3});
    return g.reshape(split, {kBatch * kHeads, length, kHead});
  };
  const Tensor q = heads("q"), k = heads("k"), v = heads("v");
  const Tensor scale = g.constant(0.125), kt = g.transpose(k, {0, 2, 1});
  const Tensor scaled =
      merges_rows ? g.matmul(g.mul(q, scale, {.type = DataType::bf16}), kt) : g.mul(g.matmul(q, kt), scale);
  const Tensor scores = g.add(g.reshape(scaled, {kBatch, kHeads, length, length}),
                              g.input("mask", {kBatch, 1, 1, length}, DataType::f32));
  const Dims merged{kBatch * kHeads, length, length};
  const Tensor p =
      merges_rows ? g.softmax(g.reshape(scores, merged)).y : g.reshape(g.softmax(scores).y, merged);
  const Tensor o = g.matmul(p, v);
  const Tensor split = g.transpose(g.reshape(o, {kBatch, kHeads, length, kHead}), {0, 2, 1, 3});
  g.output(g.reshape(split, {kBatch, length, kHeads * kHead}), {.name = "o", .type = DataType::bf16});
  return g.finish();
}

// The graph is planned in one valid form, with the values that it says.
void expect_sound(const Graph& graph) {
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

TEST(SplitBatches, AttentionOfMergedHeadsIsOneFusion) {
  for (const bool splits_heads : {false, true})
    for (const bool merges_rows : {false, true}) {
      const Graph graph = attention(128, splits_heads, merges_rows);
      const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
      // Scaled queries may be made in front.
      ASSERT_LE(plan.fusions.size(), merges_rows ? 2U : 1U) << splits_heads;
      EXPECT_THAT(plan.fusions.back().config.engine, StartsWith("attention"));
    }
}

TEST(SplitBatches, GivesTheSameValues) {
  for (const bool splits_heads : {false, true})
    for (const bool merges_rows : {false, true}) {
      const Graph graph = attention(9, splits_heads, merges_rows);
      expect_sound(graph);
    }
}

// Queries, keys and values of one product, taken apart by its leading axis, as vision transformers have them.
TEST(SplitBatches, AnAxisOfOneElementIsNoBatch) {
  GraphBuilder g;
  const Tensor packed = g.input("qkv", {3, 2, 3, 128, 64}, DataType::bf16);
  const auto part = [&](int64_t at) {
    return g.reshape(g.slice(packed, {at, 0, 0, 0, 0}, {at + 1, 2, 3, 128, 64}), {2, 3, 128, 64});
  };
  const SdpaResults results = g.sdpa_fwd(part(0), part(1), part(2));
  const Graph graph = g.finish({results.o, results.stats});
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  ASSERT_THAT(plan.fusions, SizeIs(1));
  EXPECT_THAT(plan.fusions[0].config.engine, StartsWith("attention"));
}

// A result that stays merged is a view of the split one.
TEST(SplitBatches, ResultsMayStayMerged) {
  GraphBuilder g;
  const Tensor a = g.input("a", {2, 5, 3, 4}, DataType::f32), b = g.input("b", {6, 5, 7}, DataType::f32);
  const Tensor merged = g.reshape(g.transpose(a, {0, 2, 3, 1}), {6, 4, 5});
  const Graph graph = g.finish({g.matmul(merged, b)});
  const Graph expanded = expand(graph);
  EXPECT_THAT(partition(expanded, fold_views(expanded)), SizeIs(1)) << "no copy merges the batches";
  expect_right_on_cpu(graph);
}

// One value may be both operands, or be read by others as well.
TEST(SplitBatches, StepsThatOthersReadStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 4, 4}, DataType::f32), a = g.input("a", {6, 5, 4}, DataType::f32);
  const Tensor twice = g.mul(g.reshape(x, {6, 4, 4}), g.constant(2));
  const Tensor other = g.transpose(g.exp(g.reshape(x, {6, 4, 4})), {0, 2, 1});
  const Graph graph = g.finish({g.matmul(twice, twice), g.matmul(a, other), g.relu(other)});
  expect_sound(graph);
}

TEST(SplitBatches, LongWaysAreLeft) {
  GraphBuilder g;
  Tensor step = g.reshape(g.input("x", {2, 3, 4, 4}, DataType::f32), {6, 4, 4});
  for (int i = 0; i < 10'000; ++i) step = g.neg(step);
  Graph graph = g.finish({g.matmul(step, g.input("w", {6, 4, 4}, DataType::f32))});
  Additions additions(graph);
  EXPECT_FALSE(split_batches(graph, additions));
}

// Reshapes that part matrices are none of batches.
TEST(SplitBatches, LeavesOtherReshapesAlone) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6, 8}, DataType::f32), w = g.input("w", {4, 8, 10}, DataType::f32);
  const Graph graph = g.finish({g.reshape(g.matmul(x, w), {2, 2, 3, 2, 10})});
  Graph same = graph;
  Additions additions(same);
  split_batches(same, additions);
  EXPECT_EQ(same, graph);
}

// Attention within windows: a bias of each head is added in merged batches, a mask of each window in split
// ones.
TEST(SplitBatches, ABiasInFrontOfTheSplitComesAlong) {
  GraphBuilder g;
  const Dims rows{2 * 3, 2, 16, 32};
  const Tensor q = g.input("q", rows, DataType::f16), k = g.input("k", rows, DataType::f16),
               v = g.input("v", rows, DataType::f16);
  const Tensor biased =
      g.add(g.matmul(q, g.transpose(k, {0, 1, 3, 2})), g.input("bias", {2, 16, 16}, DataType::f16));
  const Tensor masked =
      g.add(g.reshape(biased, {2, 3, 2, 16, 16}), g.input("mask", {3, 1, 16, 16}, DataType::f16));
  const Tensor p = g.softmax(g.reshape(masked, {2 * 3, 2, 16, 16})).y;
  g.output(g.matmul(p, v), {.name = "o", .type = DataType::f16});
  const Graph graph = g.finish();
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_THAT(plan.fusions.back().config.engine, StartsWith("attention"));
  expect_sound(graph);
}

// Grouped queries with keys and values repeated in memory: their gradients are summed by groups of heads
// behind the product, which stays in the heads that the scores have.
TEST(SplitBatches, AProductOfAnotherOnesResultKeepsItsBatches) {
  GraphBuilder g;
  const Dims rows{2, 4, 128, 64};
  const auto input = [&](const char* name) { return g.input(name, rows, DataType::bf16); };
  const Tensor stats = g.input("stats", {2, 4, 128, 1}, DataType::f32);
  const SdpaGradients d = g.sdpa_bwd(input("q"), input("k"), input("v"), input("o"), input("do"), stats,
                                     {.attributes = {.right_bound = 0}});
  const auto leave = [&](const Tensor& gradient) {
    const Tensor groups = g.reshape(gradient, {2, 2, 2, 128, 64});
    g.output(g.reduce(groups, ReductionMode::add, {2}), {.type = DataType::bf16});
  };
  g.output(d.dq);
  leave(d.dk);
  leave(d.dv);
  const Graph graph = g.finish();
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  EXPECT_TRUE(std::ranges::any_of(plan.fusions, [](const PlannedFusion& fusion) {
    return fusion.config.engine == "attention_backward";
  }));
  expect_sound(graph);
}

}  // namespace
}  // namespace fusor
