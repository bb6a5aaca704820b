// Owns the tests that products are parted where their parts meet again.
#include "backend/planner/rewrites/products/sliced_products.h"

#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::SizeIs;

int matmuls(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(test::planned_once(graph).ops, [](const Op& op) {
    return std::holds_alternative<Matmul>(op.attributes);
  }));
}

void expect_matmuls(const Graph& graph, int count) {
  EXPECT_EQ(matmuls(graph), count);
  expect_right_on_cpu(graph);
}

Tensor columns_of(GraphBuilder& g, const Tensor& y, int64_t start, int64_t limit, int64_t step = 1) {
  return g.slice(y, {0, start}, {y.dims[0], limit}, {1, step});
}

TEST(SlicedProducts, GateAndValueOfOneProductAreASiblingPair) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 24}, DataType::f16), w = g.input("w", {24, 32}, DataType::f16);
  const Tensor y = g.matmul(x, w);
  const Graph graph = g.finish({g.mul(g.swish(columns_of(g, y, 0, 16)), columns_of(g, y, 16, 32))});
  expect_matmuls(graph, 2);
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
}

TEST(SlicedProducts, OpsBehindTheProductAreParted) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 24}, DataType::f16), w = g.input("w", {24, 32}, DataType::f16);
  const Tensor biased = g.add(g.matmul(x, w), g.input("bias", {32}, DataType::f16));
  const Tensor rows = g.mul(biased, g.input("rows", {64, 1}, DataType::f16));
  const Tensor y = g.mul(rows, g.constant(2));
  expect_matmuls(g.finish({g.mul(columns_of(g, y, 0, 16), g.relu(columns_of(g, y, 16, 32)))}), 2);
}

// Rows of weights that lie transposed: every second one is the gate's.
TEST(SlicedProducts, InterleavedPartsAreRowsOfTransposedWeights) {
  for (const bool transposed : {true, false}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {64, 24}, DataType::f16);
    const Tensor w = transposed ? g.transpose(g.input("w", {32, 24}, DataType::f16), {1, 0})
                                : g.input("w", {24, 32}, DataType::f16);
    const Tensor y = g.matmul(x, w);
    const Graph graph = g.finish({g.mul(g.swish(columns_of(g, y, 0, 32, 2)), columns_of(g, y, 1, 32, 2))});
    expect_matmuls(graph, transposed ? 2 : 1);
  }
}

TEST(SlicedProducts, FiltersOfPointwiseConvolutionsAreParted) {
  GraphBuilder g;
  const Tensor x = g.input("x", {8, 8, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor y = g.conv_fprop(x, g.input("w", {16, 8, 1, 1}, DataType::f16, Layout::nhwc));
  const Tensor gate = g.slice(y, {0, 0, 0, 0}, {8, 8, 3, 3}), value = g.slice(y, {0, 8, 0, 0}, {8, 16, 3, 3});
  const Graph graph = g.finish({g.mul(g.sigmoid(gate), value)});
  test::planned_once(graph);
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
  expect_right_on_cpu(graph);
}

TEST(SlicedProducts, ProductsThatOthersReadStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 24}, DataType::f16), w = g.input("w", {24, 32}, DataType::f16);
  const Tensor y = g.matmul(x, w);
  expect_matmuls(g.finish({g.mul(columns_of(g, y, 0, 16), columns_of(g, y, 16, 32)), g.exp(y)}), 1);
}

TEST(SlicedProducts, PartsThatDoNotMeetStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 24}, DataType::f16), w = g.input("w", {24, 32}, DataType::f16);
  const Tensor y = g.matmul(x, w);
  expect_matmuls(g.finish({g.exp(columns_of(g, y, 0, 16)), g.relu(columns_of(g, y, 16, 32))}), 1);
}

TEST(SlicedProducts, FewRowsAreMultipliedOnce) {
  GraphBuilder g;
  const Tensor x = g.input("x", {63, 24}, DataType::f16), w = g.input("w", {24, 32}, DataType::f16);
  const Tensor y = g.matmul(x, w);
  expect_matmuls(g.finish({g.mul(columns_of(g, y, 0, 16), columns_of(g, y, 16, 32))}), 1);
}

TEST(SlicedProducts, PartsThatBeginInsideSixteenBytesStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 24}, DataType::f16), w = g.input("w", {24, 24}, DataType::f16);
  const Tensor y = g.matmul(x, w);
  expect_matmuls(g.finish({g.mul(columns_of(g, y, 0, 12), columns_of(g, y, 12, 24))}), 1);
}

}  // namespace
}  // namespace fusor
