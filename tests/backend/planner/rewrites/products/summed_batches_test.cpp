// Owns the tests that sums over batch entries are part of the product.
#include "backend/planner/rewrites/products/summed_batches.h"

#include <gtest/gtest.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

int64_t steps_of_product(const Graph& graph) {
  const Graph planned = test::planned_once(graph);
  const auto product = std::ranges::find_if(
      planned.ops, [](const Op& op) { return std::holds_alternative<Matmul>(op.attributes); });
  const Dims& a = planned.tensors[static_cast<size_t>(product->inputs[0])].dims;
  return a[a.rank() - 1];
}

TEST(SummedBatches, GradientsOfSharedWeightsAreOneProduct) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {3, 40, 6}, DataType::f32), dy = g.input("dy", {3, 40, 5}, DataType::f32);
    const Tensor product = g.matmul(g.transpose(x, {0, 2, 1}), dy);
    g.output(g.reduce(product, ReductionMode::add, {0}), {.type = type});
    const Graph graph = g.finish();
    EXPECT_EQ(steps_of_product(graph), 120);
    expect_fusions(graph, 1);
  }
}

TEST(SummedBatches, OtherBatchAxesStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 40, 6}, DataType::f32),
               dy = g.input("dy", {2, 3, 40, 5}, DataType::f32);
  const Tensor product = g.matmul(g.transpose(x, {0, 1, 3, 2}), dy);
  const Graph graph = g.finish({g.reduce(product, ReductionMode::add, {1})});
  EXPECT_EQ(steps_of_product(graph), 120);
  expect_right_on_cpu(graph);
}

TEST(SummedBatches, StepsThatNoStrideWalksStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 6, 40}, DataType::f32), dy = g.input("dy", {3, 40, 5}, DataType::f32);
  const Graph graph = g.finish({g.reduce(g.matmul(x, dy), ReductionMode::add, {0})});
  EXPECT_EQ(steps_of_product(graph), 40);
  expect_right_on_cpu(graph);
}

// What other ops make may be scores, whose products are summed by attention's kernels.
TEST(SummedBatches, ComputedOperandsStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 40, 6}, DataType::f32), dy = g.input("dy", {3, 40, 5}, DataType::f32);
  const Tensor product = g.matmul(g.transpose(x, {0, 2, 1}), g.exp(dy));
  const Graph graph = g.finish({g.reduce(product, ReductionMode::add, {0})});
  EXPECT_EQ(steps_of_product(graph), 40);
  expect_right_on_cpu(graph);
}

TEST(SummedBatches, OtherTotalsAndRoundedProductsStay) {
  const auto steps = [](ReductionMode mode, DataType type, const Dims& axes) {
    GraphBuilder g;
    const Tensor x = g.input("x", {3, 40, 6}, DataType::f16), dy = g.input("dy", {3, 40, 5}, DataType::f16);
    const Tensor product = g.matmul(g.transpose(x, {0, 2, 1}), dy, {.type = type});
    const Graph graph = g.finish({g.reduce(product, mode, axes)});
    expect_right_on_cpu(graph);
    return steps_of_product(graph);
  };
  EXPECT_EQ(steps(ReductionMode::add, DataType::f32, {0}), 120);
  EXPECT_EQ(steps(ReductionMode::max, DataType::f32, {0}), 40);
  EXPECT_EQ(steps(ReductionMode::add, DataType::f16, {0}), 40);
  EXPECT_EQ(steps(ReductionMode::add, DataType::f32, {0, 1}), 40);
}

}  // namespace
}  // namespace fusor
