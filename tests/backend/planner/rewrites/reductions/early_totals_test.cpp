// Owns the tests that totals are taken in the axes that their values were computed in.
#include "backend/planner/rewrites/reductions/early_totals.h"

#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

// A norm's result [2, 5, 8], which others read.
Tensor rows(GraphBuilder& g) {
  const Tensor x = g.exp(g.input("x", {2, 5, 8}, DataType::f32));
  const Tensor y = g.div(x, g.reduce(x, ReductionMode::add, {2}));
  return g.output(g.mul(y, g.input("gate", {2, 5, 8}, DataType::f32)), {.name = "rows"});
}

bool moves(const Graph& graph) {
  Graph changed = graph;
  Additions additions(changed);
  return move_totals_in_front(changed, additions);
}

TEST(EarlyTotals, ABiasGradientIsPartOfTheRowsThatMakeItsOperand) {
  GraphBuilder g;
  const Tensor y = rows(g);
  g.output(g.reduce(g.reshape(y, {10, 8}), ReductionMode::add, {0}), {.name = "total"});
  expect_fusions(g.finish(), 1);
}

TEST(EarlyTotals, SequencesFirstAreAddedUpAsTheyWere) {
  GraphBuilder g;
  const Tensor y = rows(g);
  const Tensor turned = g.reshape(g.transpose(y, {1, 0, 2}), {10, 8});
  g.output(g.reduce(turned, ReductionMode::max, {0}), {.name = "largest"});
  expect_fusions(g.finish(), 1);
}

TEST(EarlyTotals, AxesThatStayMayBeJoinedAndCut) {
  GraphBuilder g;
  const Tensor y = rows(g);
  const Tensor parted = g.reshape(g.transpose(y, {2, 0, 1}), {2, 4, 1, 10});
  const Graph graph = g.finish({g.reduce(parted, ReductionMode::add, {3}),
                                g.reduce(g.reshape(y, {10, 8, 1}), ReductionMode::avg, {1})});
  EXPECT_TRUE(moves(graph));
  expect_right_on_cpu(graph);
}

TEST(EarlyTotals, PartsOfAnAxisStayBehindTheView) {
  GraphBuilder g;
  const Tensor y = rows(g);
  const Graph graph = g.finish({g.reduce(g.reshape(y, {2, 5, 4, 2}), ReductionMode::add, {3}),
                                g.reduce(g.reshape(y, {5, 16}), ReductionMode::add, {0})});
  EXPECT_FALSE(moves(graph));
  expect_right_on_cpu(graph);
}

TEST(EarlyTotals, AxesThatChangePlacesStayBehindTheView) {
  GraphBuilder g;
  const Tensor y = rows(g);
  const Graph graph = g.finish({g.reduce(g.transpose(y, {2, 1, 0}), ReductionMode::add, {1})});
  EXPECT_FALSE(moves(graph));
  expect_right_on_cpu(graph);
}

// The mean of a norm over channels, behind a convolution's result in other axes: the norm's rows stay one
// shape.
TEST(EarlyTotals, TotalsThatTheirElementsNeedStayBehindTheView) {
  GraphBuilder g;
  const Tensor seen = g.reshape(g.transpose(rows(g), {1, 0, 2}), {10, 8});
  EXPECT_FALSE(moves(g.finish({g.sub(seen, g.reduce(seen, ReductionMode::avg, {1}))})));
}

TEST(EarlyTotals, WhatAProductMakesIsLeft) {
  GraphBuilder g;
  const Tensor a = g.input("a", {2, 5, 4}, DataType::f32), b = g.input("b", {2, 4, 8}, DataType::f32);
  const Tensor y = g.output(g.relu(g.matmul(a, b)), {.name = "y"});
  EXPECT_FALSE(moves(g.finish({g.reduce(g.reshape(y, {10, 8}), ReductionMode::add, {0})})));
}

TEST(EarlyTotals, WhatNobodyElseReadsIsLeft) {
  GraphBuilder g;
  const Tensor y = g.exp(g.input("x", {2, 5, 8}, DataType::f32));
  EXPECT_FALSE(moves(g.finish({g.reduce(g.reshape(y, {10, 8}), ReductionMode::add, {0})})));
}

}  // namespace
}  // namespace fusor
