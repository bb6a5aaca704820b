// Tests slices of chains: which coordinates are free, and that slices give what the whole gives.
#include "backend/reference/slices.h"

#include <gmock/gmock.h>

#include "host_buffers.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using reference::for_each_slice;
using reference::free_axes;
using reference::FreeAxis;
using reference::slice_extents;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int64_t> extents_of(const std::vector<FreeAxis>& axes) {
  std::vector<int64_t> extents;
  extents.reserve(axes.size());
  for (const FreeAxis& axis : axes) extents.push_back(axis.extent);
  return extents;
}

// A mask numbers rows and keys: slices begin at other coordinates than 0.
test::AttentionCase masked() {
  return {.batch = 2, .heads = 3, .shared_heads = 3, .queries = 50, .keys = 70, .mask = test::Mask::window};
}

// The row values that gradients need are inputs: everything else is one fusion.
Graph gradients(const test::AttentionCase& c = masked()) {
  test::AttentionBackwardGraph graph(c);
  graph.mask();
  GraphBuilder& g = graph.g;
  const Dims rows{c.batch, c.heads, c.queries, 1};
  graph.probability = g.exp(g.sub(graph.score, g.input("stats", rows, DataType::f32)));
  graph.gradient = g.mul(graph.probability, g.sub(g.matmul(graph.dy, graph.transposed(graph.v)),
                                                  g.input("delta", rows, DataType::f32)));
  return graph.finish();
}

TEST(Slices, BatchesHeadsAndQueriesOfAttentionAreFree) {
  EXPECT_THAT(extents_of(free_axes(test::fusion_of(test::attention(masked())))), ElementsAre(2, 3, 50));
}

TEST(Slices, GradientsSumOverQueriesAndKeys) {
  EXPECT_THAT(extents_of(free_axes(test::fusion_of(gradients()))), ElementsAre(2, 3));
}

// A softmax over the queries sums over what would be sliced.
TEST(Slices, AReductionOverQueriesLeavesThemWhole) {
  GraphBuilder g;
  const Tensor s =
      g.matmul(g.input("q", {4, 50, 16}, DataType::f32), g.input("k", {4, 16, 70}, DataType::f32));
  const Tensor e = g.exp(g.sub(s, g.reduce(s, ReductionMode::max, {1})));
  const Tensor p = g.div(e, g.reduce(e, ReductionMode::add, {1}));
  g.output(g.matmul(p, g.input("v", {4, 70, 8}, DataType::f32)));
  EXPECT_THAT(extents_of(free_axes(test::fusion_of(g.finish()))), ElementsAre(4));
}

TEST(Slices, OneProductIsWhole) {
  GraphBuilder g;
  g.output(g.matmul(g.input("a", {300, 200}, DataType::f32), g.input("b", {200, 100}, DataType::f32)));
  EXPECT_THAT(free_axes(test::fusion_of(g.finish())), IsEmpty());
}

TEST(Slices, OuterAxesAreDividedFirst) {
  const Fusion fusion = test::fusion_of(
      test::attention({.batch = 2, .heads = 8, .shared_heads = 8, .queries = 1000, .keys = 1000}));
  const auto axes = free_axes(fusion);
  EXPECT_THAT(slice_extents(fusion, axes), ElementsAre(1, 4, 1000));
  EXPECT_THAT(slice_extents(fusion, axes, 1 << 17), ElementsAre(1, 1, 125));
  EXPECT_THAT(slice_extents(fusion, axes, 1 << 30), ElementsAre(2, 8, 1000));
  // A slice of queries reads all keys: it has as many scores as these have elements.
  EXPECT_THAT(slice_extents(fusion, axes, 1 << 10), ElementsAre(1, 1, 62));
}

void expect_slices_give_the_whole(const Graph& graph, int64_t most) {
  const Fusion fusion = test::fusion_of(graph);
  const auto axes = free_axes(fusion);
  for (const Reading reading : {Reading::oracle, Reading::device}) {
    const HostTensors whole(graph), sliced(graph);
    whole.run(fusion, reading);
    int count = 0;
    for_each_slice(fusion, axes, slice_extents(fusion, axes, most), [&](const Fusion& slice) {
      sliced.run(slice, reading);
      ++count;
    });
    EXPECT_GT(count, 3);
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.is_virtual() || graph.producer(static_cast<int>(i)) < 0) continue;
      EXPECT_EQ(sliced.get(tensor), whole.get(tensor)) << tensor.name;
    }
  }
}

// Sums over queries are made of parts: the same but for their roundings.
TEST(Slices, OfWhatProductsSumOverAddUp) {
  test::AttentionCase c = masked();
  c.queries = 100;
  const Graph graph = gradients(c);
  const Fusion fusion = test::fusion_of(graph);
  EXPECT_FALSE(reference::summed_axis(fusion));
  const auto summed = reference::summed_axis(fusion, 6 * 70 * 7);
  ASSERT_TRUE(summed);
  EXPECT_EQ(summed->axis.extent, 100);
  EXPECT_EQ(summed->anchors.size(), 2U);
  EXPECT_EQ(summed->count, 7);
  const HostTensors whole(graph), sliced(graph);
  const auto evaluate = [&](const HostTensors& tensors, int64_t most) {
    std::vector<void*> operands;
    for (const Operand& operand : fusion.operands)
      operands.push_back(tensors.pointers()[static_cast<size_t>(operand.tensor)]);
    evaluate_in_slices(fusion, operands, most);
  };
  evaluate(whole, int64_t{1} << 40);
  evaluate(sliced, 70 * 7);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.is_virtual() || graph.producer(static_cast<int>(i)) < 0) continue;
    const std::vector<double> made = sliced.get(tensor), wanted = whole.get(tensor);
    double largest = 0;
    for (const double value : wanted) largest = std::max(largest, std::abs(value));
    for (size_t at = 0; at < made.size(); ++at)
      ASSERT_NEAR(made[at], wanted[at], 0.01 * largest) << tensor.name << " " << at;
    EXPECT_GT(largest, 0) << tensor.name;
  }
}

TEST(Slices, OfAForwardPassSumOverNothing) {
  EXPECT_FALSE(reference::summed_axis(test::fusion_of(test::attention(masked())), 1));
}

TEST(Slices, GiveWhatTheWholeGives) {
  expect_slices_give_the_whole(test::attention(masked(), true), 900);
  expect_slices_give_the_whole(gradients(), 100);
  expect_slices_give_the_whole(
      test::attention({.batch = 2, .heads = 4, .queries = 33, .keys = 40, .mask = test::Mask::causal}), 300);
  expect_slices_give_the_whole(test::transposed_attention({.batch = 2, .heads = 2, .shared_heads = 2}), 900);
}

}  // namespace
}  // namespace fusor
