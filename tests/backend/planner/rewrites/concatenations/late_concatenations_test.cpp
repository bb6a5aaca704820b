// Owns the tests that concatenations come behind the pointwise ops that read them.
#include "backend/planner/rewrites/concatenations/late_concatenations.h"

#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

size_t fusions_of(const Graph& graph) {
  const Graph expanded = test::planned_once(graph);
  expect_right_on_cpu(graph);
  return partition(expanded, fold_views(expanded)).size();
}

// x cosine + [-b | a] sine, where x = [a | b].
Tensor rotated(GraphBuilder& g, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  Dims start = Dims::filled(x.dims.rank(), 0), middle = start, half = x.dims;
  const int last = x.dims.rank() - 1;
  half[last] = middle[last] = x.dims[last] / 2;
  const Tensor a = g.slice(x, start, half), b = g.slice(x, middle, x.dims);
  return g.add(g.mul(x, cosine), g.mul(g.concatenate({g.neg(b, {.type = x.type}), a}, -1), sine));
}

TEST(LateConcatenations, RotaryPositionsAreOnePass) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {2, 3, 5, 8}, type);
    const Tensor cosine = g.input("cosine", {1, 1, 5, 8}, DataType::f32),
                 sine = g.input("sine", {5, 8}, DataType::f32);
    g.output(rotated(g, x, cosine, sine), {.name = "y", .type = type});
    EXPECT_EQ(fusions_of(g.finish()), 1U);
  }
}

// Two at once, whose values are stored in front of them; they are small enough to share a launch.
TEST(LateConcatenations, RotaryPositionsBehindProducts) {
  GraphBuilder g;
  const Tensor x = g.input("x", {10, 16}, DataType::f32);
  const Tensor cosine = g.input("cosine", {1, 5, 1, 8}, DataType::f32),
               sine = g.input("sine", {1, 5, 1, 8}, DataType::f32);
  for (const char* name : {"q", "k"}) {
    const Tensor product = g.matmul(x, g.input(name, {16, 24}, DataType::f32));
    g.output(rotated(g, g.reshape(product, {2, 5, 3, 8}), cosine, sine));
  }
  EXPECT_EQ(fusions_of(g.finish()), 3U);
}

TEST(LateConcatenations, PartsAreEpiloguesOfWhatMakesThem) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32);
  const auto product = [&](const char* name, int64_t columns) {
    return g.matmul(x, g.input(name, {8, columns}, DataType::f32));
  };
  const Tensor joined = g.concatenate({product("a", 4), product("b", 12)}, 1);
  const Tensor biased = g.add(joined, g.input("bias", {1, 16}, DataType::f32));
  g.output(g.relu(g.mul(biased, g.input("rows", {6, 1}, DataType::f32))), {.name = "y"});
  EXPECT_EQ(fusions_of(g.finish()), 2U);
}

// A part that others read is written in place as it is, and one pass reads all.
TEST(LateConcatenations, PartsThatOthersReadStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32);
  const Tensor a = g.matmul(x, g.input("w", {8, 8}, DataType::f32));
  const Tensor joined = g.concatenate({a, g.exp(x)}, 1);
  const Graph graph = g.finish({g.relu(joined), g.matmul(a, g.input("v", {8, 3}, DataType::f32))});
  Graph same = graph;
  Additions additions(same);
  EXPECT_FALSE(move_concatenations_behind(same, additions));
  EXPECT_EQ(same, graph);
  fusions_of(graph);
}

// A value that must be stored to be sliced is added behind the concatenation.
TEST(LateConcatenations, EndInFrontOfOtherProducts) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32);
  const Tensor joined = g.relu(g.concatenate({g.exp(x), g.neg(x)}, 1));
  g.output(g.add(joined, g.matmul(x, g.input("w", {8, 16}, DataType::f32))), {.name = "y"});
  EXPECT_EQ(fusions_of(g.finish()), 2U);
}

TEST(LateConcatenations, OnePartIsNoneOfSeveral) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1}, DataType::f32);
  g.output(g.exp(g.concatenate({x}, 1)), {.name = "y"});
  fusions_of(g.finish());
}

TEST(LateConcatenations, CoordinatesAreThoseOfTheWhole) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f32);
  const Tensor joined = g.concatenate({g.exp(x), g.neg(x)}, 0);
  g.output(g.mul(joined, g.gen_index(joined, 0)), {.name = "y"});
  fusions_of(g.finish());
}

}  // namespace
}  // namespace fusor
