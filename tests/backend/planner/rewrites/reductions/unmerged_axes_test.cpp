// Owns the tests that reductions over merged axes run over the axes as they were.
#include "backend/planner/rewrites/reductions/unmerged_axes.h"

#include <gtest/gtest.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

Tensor normalised(GraphBuilder& g, const Tensor& rows) {
  const Tensor apart = g.sub(rows, g.reduce(rows, ReductionMode::avg, {2}));
  const Tensor variance = g.reduce(g.mul(apart, apart), ReductionMode::avg, {2});
  return g.mul(apart, g.rsqrt(g.add(variance, g.constant(1e-3))));
}

// A group norm as instances of [n, groups, all], with a scale of each channel behind it.
TEST(UnmergedAxes, GroupNormsAreOneFusionInEveryLayout) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {2, 6, 4, 5}, DataType::f32, layout);
    const Tensor y = g.reshape(normalised(g, g.reshape(x, {2, 3, 40})), {2, 6, 4, 5});
    const Tensor z = g.mul(y, g.input("scale", {1, 6, 1, 1}, DataType::f32));
    g.output(g.swish(z), {.layout = layout});
    expect_fusions(g.finish(), 1);
  }
}

// What leaves the merged shape leaves it merged.
TEST(UnmergedAxes, OtherReadersSeeMergedAxes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 6, 4, 5}, DataType::f32, Layout::nhwc);
  const Tensor rows = g.reshape(x, {2, 3, 40}), y = normalised(g, rows);
  const Tensor w = g.input("w", {40, 7}, DataType::f32);
  const Graph graph = g.finish({g.reshape(y, {2, 6, 4, 5}), g.matmul(y, w), g.exp(rows)});
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

TEST(UnmergedAxes, OperandsInMemoryAreReadInPartedAxes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 6, 4, 5}, DataType::f32, Layout::nhwc);
  const Tensor rows = g.mul(g.reshape(x, {2, 3, 40}), g.input("weights", {40}, DataType::f32));
  const Tensor scaled = g.mul(normalised(g, rows), g.input("groups", {3, 1}, DataType::f32));
  expect_fusions(g.finish({g.reshape(scaled, {2, 6, 4, 5})}), 1);
}

TEST(UnmergedAxes, NormsBehindEachOtherAreParted) {
  GraphBuilder g;
  Tensor x = g.input("x", {2, 6, 4, 5}, DataType::f32, Layout::nhwc);
  for (int i = 0; i < 3; ++i)
    x = g.mul(g.reshape(normalised(g, g.reshape(x, {2, 3, 40})), {2, 6, 4, 5}),
              g.input("scale" + std::to_string(i), {1, 6, 1, 1}, DataType::f32));
  const Graph graph = g.finish({x});
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

// Rows of a layer norm over the last axis are no merged axis.
TEST(UnmergedAxes, ReductionsOverOtherAxesStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 8}, DataType::f32);
  const Tensor rows = g.reshape(x, {1, 6, 8});
  const Graph graph = g.finish({g.reshape(normalised(g, rows), {2, 3, 8})});
  EXPECT_EQ(test::planned_once(graph).ops.size(), graph.ops.size());
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
