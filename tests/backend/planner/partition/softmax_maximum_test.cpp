// Owns the tests of largest probabilities: when they are made of numbers of rows, and that they are right.
#include "backend/planner/partition/softmax_maximum.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

// A softmax over the last axis whose largest values are asked for, over `axes`.
struct MaximumGraph {
  GraphBuilder g{"maximum"};
  Tensor score = g.input("score", {3, 5, 40}, DataType::f32);
  Tensor best = g.reduce(score, ReductionMode::max, {2});
  Tensor base = best;
  Tensor exponential, sum;

  void raise(const Tensor& to) {
    base = to;
    exponential = g.exp(g.sub(score, base));
    sum = g.reduce(exponential, ReductionMode::add, {2});
  }
  Graph finish(const Tensor& divisor, const Dims& axes = {0, 1, 2}) {
    const Tensor p = g.output(g.div(exponential, divisor), {.name = "p"});
    g.output(g.reduce(p, ReductionMode::amax, axes), {.name = "largest"});
    return g.finish();
  }
};

// Whether the last op of the expanded graph runs over one number a row.
bool is_of_rows(const Graph& graph) {
  const Graph expanded = expand(graph);
  const Op& last = expanded.ops.back();
  return expanded.tensors[static_cast<size_t>(last.inputs[0])].dims == Dims{3, 5, 1};
}

TEST(SoftmaxMaximum, IsMadeOfRows) {
  MaximumGraph graph;
  graph.raise(graph.best);
  EXPECT_TRUE(is_of_rows(graph.finish(graph.sum)));
}

TEST(SoftmaxMaximum, KnowsABoundOfTheLargestAndAGuardedSum) {
  MaximumGraph graph;
  GraphBuilder& g = graph.g;
  graph.raise(g.max(graph.best, g.constant(-3e38)));
  EXPECT_TRUE(is_of_rows(
      graph.finish(g.binary_select(graph.sum, g.constant(1), g.cmp_neq(graph.sum, g.constant(0))))));
}

TEST(SoftmaxMaximum, KnowsASink) {
  MaximumGraph graph;
  GraphBuilder& g = graph.g;
  const Tensor sink = g.input("sink", {1, 5, 1}, DataType::f32);
  graph.raise(g.max(graph.best, sink));
  EXPECT_TRUE(is_of_rows(graph.finish(g.add(graph.sum, g.exp(g.sub(sink, graph.base))))));
}

// A rounded maximum is the score of no element.
TEST(SoftmaxMaximum, LeavesRoundedMaximaAlone) {
  MaximumGraph graph;
  graph.g.output(graph.best);
  graph.best = graph.g.reduce(graph.score, ReductionMode::max, {2}, {.type = DataType::bf16});
  graph.raise(graph.best);
  EXPECT_FALSE(is_of_rows(graph.finish(graph.sum)));
}

TEST(SoftmaxMaximum, LeavesOtherDivisorsAlone) {
  MaximumGraph graph;
  graph.raise(graph.best);
  graph.g.output(graph.sum);
  EXPECT_FALSE(is_of_rows(graph.finish(graph.g.input("divisor", {3, 5, 1}, DataType::f32))));
}

TEST(SoftmaxMaximum, LeavesMaximaOverOtherAxesAlone) {
  MaximumGraph graph;
  graph.raise(graph.best);
  EXPECT_FALSE(is_of_rows(graph.finish(graph.sum, {0, 1})));
}

TEST(SoftmaxMaximum, LeavesDifferencesFromOtherNumbersAlone) {
  MaximumGraph graph;
  graph.g.output(graph.best);
  graph.raise(graph.g.input("base", {3, 5, 1}, DataType::f32));
  EXPECT_FALSE(is_of_rows(graph.finish(graph.sum)));
}

TEST(SoftmaxMaximum, OfRowsWithoutAScoreIsZero) {
  MaximumGraph graph;
  GraphBuilder& g = graph.g;
  graph.raise(g.max(graph.best, g.constant(-3e38)));
  const Graph finished =
      graph.finish(g.binary_select(graph.sum, g.constant(1), g.cmp_neq(graph.sum, g.constant(0))), {2});
  HostTensors tensors(finished);
  const auto at = [&](const char* name) -> const Tensor& {
    return finished.tensors[static_cast<size_t>(finished.find(name))];
  };
  std::vector<double> scores = tensors.get(at("score"));
  std::fill(scores.begin(), scores.begin() + 80, -std::numeric_limits<double>::infinity());
  tensors.set(at("score"), scores);
  run_on_cpu(finished, tensors);
  const std::vector<double> largest = tensors.get(at("largest"));
  EXPECT_EQ(largest.at(0), 0);
  EXPECT_EQ(largest.at(1), 0);
  EXPECT_GT(largest.at(2), 0);
}

TEST(SoftmaxMaximum, LetsAttentionOfFp8KeepItsProbabilities) {
  const Graph expanded = expand(test::quantised_attention(
      {.heads = 2, .shared_heads = 2, .mask = test::Mask::causal, .type = DataType::f8_e4m3}));
  const auto groups = partition(expanded, fold_views(expanded));
  EXPECT_THAT(groups, testing::SizeIs(3));
}

}  // namespace
}  // namespace fusor
