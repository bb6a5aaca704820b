// Owns the tests that copies which nobody needs go.
#include "backend/planner/rewrites/identities.h"

#include <gtest/gtest.h>

#include "backend/build.h"
#include "core/infer.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

Tensor broadcast(GraphBuilder& g, const Tensor& x, const Dims& dims) {
  const std::vector<Tensor> operands{x};
  const std::vector<Dims> given{dims};
  return g.op(Attributes(Pointwise{.mode = PointwiseMode::identity}), operands, {}, given)[0];
}

size_t ops_left(const Graph& graph) {
  Graph shorter = graph;
  drop_identities(shorter);
  validate(shorter);
  return shorter.ops.size();
}

TEST(Identities, CopiesOfTheSameTypeGo) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f32);
  const Graph graph = g.finish({g.exp(g.identity(g.identity(x)))});
  EXPECT_EQ(ops_left(graph), 1U);
  expect_right_on_cpu(graph);
}

TEST(Identities, ConversionsAndOutputsStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f32);
  const Tensor rounded = g.identity(x, {.type = DataType::bf16});
  const Graph graph = g.finish({g.exp(rounded), g.identity(x)});
  EXPECT_EQ(ops_left(graph), 3U);
  expect_right_on_cpu(graph);
}

// `expand` in front of `bmm`.
TEST(Identities, AMatrixForEachEntryIsOneMatrix) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 4, 6}, DataType::f32), w = g.input("w", {6, 5}, DataType::f32);
  const Tensor copies = broadcast(g, w, {3, 6, 5});
  const Graph graph = g.finish({g.matmul(x, copies)});
  EXPECT_EQ(ops_left(graph), 1U);
  test::expect_fusions(graph, 1);
}

TEST(Identities, ABatchThatNobodyElseHasStays) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f32), w = g.input("w", {6, 5}, DataType::f32);
  const Tensor copies = broadcast(g, w, {3, 6, 5});
  const Graph graph = g.finish({g.matmul(x, copies)});
  EXPECT_EQ(ops_left(graph), 2U);
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
