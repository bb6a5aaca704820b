// Owns the tests that rows are split where what they meet behind a matmul broadcasts along a part of them.
#include "backend/planner/rewrites/products/split_rows.h"

#include <gtest/gtest.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

TEST(SplitRows, PositionsAreAddedWhereTheProductIsMade) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32), w = g.input("w", {8, 5}, DataType::f32);
  const Tensor y = g.reshape(g.add(g.matmul(x, w), g.input("bias", {5}, DataType::f32)), {2, 3, 5});
  expect_fusions(g.finish({g.add(y, g.input("positions", {1, 3, 5}, DataType::f32))}), 1);
}

// A gate for each image, behind other ops in the merged shape and in the split one.
TEST(SplitRows, GatesOfEntriesMultiplyTheProduct) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 8}, DataType::f32), w = g.input("w", {8, 5}, DataType::f32);
  const Tensor hidden =
      g.mul(g.relu(g.matmul(g.reshape(x, {6, 8}), w)), g.input("rows", {6, 1}, DataType::f32));
  const Tensor y = g.add(g.reshape(hidden, {2, 3, 5}), g.input("residual", {2, 3, 5}, DataType::f32));
  expect_fusions(g.finish({g.mul(y, g.input("gate", {2, 1, 5}, DataType::f32))}), 1);
}

TEST(SplitRows, RowsOfThreeAxesAreSplit) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 8}, DataType::f32), w = g.input("w", {8, 5}, DataType::f32);
  const Tensor y = g.reshape(g.matmul(x, w), {2, 3, 4, 5});
  expect_fusions(g.finish({g.mul(y, g.input("gate", {2, 1, 4, 5}, DataType::f32))}), 1);
}

TEST(SplitRows, ProductsThatOthersReadStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32), w = g.input("w", {8, 5}, DataType::f32);
  const Tensor product = g.matmul(x, w);
  const Tensor y = g.add(g.reshape(product, {2, 3, 5}), g.input("positions", {1, 3, 5}, DataType::f32));
  const Graph graph = g.finish({y, g.exp(product)});
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
