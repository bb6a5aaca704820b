// Owns the tests that products have their rows in the order of memory.
#include "backend/planner/rewrites/products/row_order.h"

#include <gtest/gtest.h>

#include "backend/build.h"
#include "core/infer.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

bool orders_rows(const Graph& graph) {
  Graph ordered = graph;
  Additions additions(ordered);
  const bool changes = order_rows(ordered, additions);
  if (changes) validate(ordered);
  return changes;
}

// An attention layer of PyTorch's: sequences first in the middle, entries first outside.
TEST(RowOrder, ATransposeInFrontMeetsTheOneBehind) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 5, 8}, DataType::f32), w = g.input("w", {8, 6}, DataType::f32);
  const Tensor y = g.add(g.matmul(g.transpose(x, {1, 0, 2}), w), g.input("bias", {6}, DataType::f32));
  const Graph graph =
      g.finish({g.add(g.transpose(y, {1, 0, 2}), g.input("residual", {2, 5, 6}, DataType::f32))});
  EXPECT_TRUE(orders_rows(graph));
  expect_fusions(graph, 1);
}

TEST(RowOrder, JoinedRowsAreTakenApart) {
  GraphBuilder g;
  const Tensor heads = g.relu(g.input("heads", {2, 3, 5, 4}, DataType::f32));
  const Tensor x = g.reshape(g.transpose(heads, {2, 0, 1, 3}), {10, 12});
  const Tensor y =
      g.add(g.matmul(x, g.input("w", {12, 6}, DataType::f32)), g.input("bias", {6}, DataType::f32));
  const Tensor back = g.transpose(g.reshape(y, {5, 2, 6}), {1, 0, 2});
  const Graph graph = g.finish({g.add(back, g.input("residual", {2, 5, 6}, DataType::f32))});
  EXPECT_TRUE(orders_rows(graph));
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

TEST(RowOrder, ABatchOfOneMatrixIsOne) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 5, 8}, DataType::f32), w = g.input("w", {1, 8, 6}, DataType::f32);
  const Tensor y = g.matmul(g.transpose(x, {1, 0, 2}), w);
  const Graph graph = g.finish({g.exp(g.transpose(y, {1, 0, 2}))});
  EXPECT_TRUE(orders_rows(graph));
  expect_fusions(graph, 1);
}

TEST(RowOrder, OutputsAndMatricesOfEntriesStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 5, 8}, DataType::f32);
  const Tensor turned = g.transpose(x, {1, 0, 2});
  const Tensor output = g.relu(g.matmul(turned, g.input("w", {8, 6}, DataType::f32)));
  const Tensor each = g.matmul(turned, g.input("v", {5, 8, 6}, DataType::f32));
  const Graph graph = g.finish({output, g.exp(g.transpose(each, {1, 0, 2}))});
  EXPECT_FALSE(orders_rows(graph));
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
