// Owns the tests that rows are computed in the parts that others read.
#include "backend/planner/rewrites/reductions/parted_rows.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::Contains;
using testing::SizeIs;

// The groups of a graph that is planned in one form, however often it is expanded.
std::vector<std::vector<std::string>> planned(const Graph& graph) {
  test::planned_once(graph);
  return test::groups_by_name(graph);
}

Tensor part_of(GraphBuilder& g, const Tensor& x, int64_t start, int64_t limit) {
  Dims from = Dims::filled(x.dims.rank(), 0), to = x.dims;
  from[x.dims.rank() - 1] = start;
  to[x.dims.rank() - 1] = limit;
  return g.slice(x, from, to, {});
}

Tensor rms_norm(GraphBuilder& g, const Tensor& x, const PointwiseOptions& rounded) {
  const Tensor mean = g.reduce(g.mul(x, x), ReductionMode::avg, {x.dims.rank() - 1});
  return g.mul(g.mul(x, g.rsqrt(g.add(mean, g.constant(1e-6)))), g.input("weight", {8}, DataType::f16),
               rounded);
}

// As PyTorch writes rotary positions: the halves change places, one with the other sign.
Tensor rotated(GraphBuilder& g, const Tensor& x, const PointwiseOptions& rounded) {
  const Tensor halves = g.concatenate({g.neg(part_of(g, x, 4, 8), rounded), part_of(g, x, 0, 4)}, 3);
  const Tensor cosine = g.input("cosine", {1, 1, 5, 8}, DataType::f16);
  const Tensor sine = g.input("sine", {1, 1, 5, 8}, DataType::f16);
  return g.add(g.mul(x, cosine, rounded), g.mul(halves, sine, rounded), rounded);
}

TEST(PartedRows, RotaryPositionsBehindANormAreOneFusion) {
  for (const DataType type : {DataType::f32, DataType::f16}) {
    GraphBuilder g;
    const PointwiseOptions rounded{.type = type};
    const Tensor x = g.input("x", {2, 3, 5, 8}, DataType::f16);
    const Graph graph = g.finish({rotated(g, rms_norm(g, x, rounded), rounded)});
    EXPECT_THAT(planned(graph), SizeIs(1));
    expect_right_on_cpu(graph);
  }
}

// The product is stored for the norm, and its bias is added in front of that.
TEST(PartedRows, ABiasStaysWithItsProduct) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 3, 5, 16}, DataType::f16), w = g.input("w", {1, 3, 16, 8}, DataType::f16);
  const Tensor y = g.add(g.matmul(x, w, {.name = "product"}), g.input("bias", {8}, DataType::f16),
                         {.name = "biased", .type = DataType::f16});
  const PointwiseOptions rounded{.type = DataType::f16};
  const Graph graph = g.finish({rotated(g, rms_norm(g, y, rounded), rounded)});
  EXPECT_THAT(planned(graph), testing::AllOf(SizeIs(2), Contains(testing::ElementsAre("product", "biased"))));
  expect_right_on_cpu(graph);
}

// Means, maxima and minima of quarters are joined to those of rows.
TEST(PartedRows, TotalsOfPartsAreThoseOfRows) {
  for (const ReductionMode mode :
       {ReductionMode::add, ReductionMode::avg, ReductionMode::max, ReductionMode::min}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {6, 8}, DataType::f32);
    const Tensor y = g.sub(g.exp(x), g.reduce(g.exp(x), mode, {1}));
    std::vector<Tensor> results;
    for (int64_t i = 0; i < 4; ++i) results.push_back(g.tanh(part_of(g, y, 2 * i, 2 * i + 2)));
    const Graph graph = g.finish(results);
    EXPECT_THAT(planned(graph), SizeIs(1)) << to_string(mode);
    expect_right_on_cpu(graph);
  }
}

TEST(PartedRows, WhatIsReadAsAWholeStaysWhole) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32);
  const Tensor y = g.sub(x, g.reduce(x, ReductionMode::avg, {1}), {.name = "centred"});
  const Graph graph = g.finish({g.exp(part_of(g, y, 0, 4)), g.exp(part_of(g, y, 4, 8)), g.tanh(y)});
  EXPECT_THAT(planned(graph), Contains(Contains("centred")));
  expect_right_on_cpu(graph);
}

// Parts that overlap, or leave some of the row, or are of several sizes.
TEST(PartedRows, OnlyEqualPartsOfAllOfARow) {
  for (const auto& [first, second] : {std::pair(5, 4), std::pair(4, 5), std::pair(3, 3)}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {6, 8}, DataType::f32);
    const Tensor y = g.sub(x, g.reduce(x, ReductionMode::avg, {1}), {.name = "centred"});
    const Graph graph = g.finish({g.exp(part_of(g, y, 0, first)), g.exp(part_of(g, y, second, 8))});
    EXPECT_THAT(planned(graph), Contains(Contains("centred")));
    expect_right_on_cpu(graph);
  }
}

// Halves of rows whose halves are rows of a norm again.
TEST(PartedRows, PartsOfPartsTakeAnotherRound) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 16}, DataType::f32);
  const auto normed = [&](const Tensor& t) { return g.sub(t, g.reduce(g.abs(t), ReductionMode::max, {1})); };
  const Tensor y = normed(x);
  const Tensor p = part_of(g, y, 0, 8), q = part_of(g, y, 8, 16);
  const Tensor z = normed(p);
  const Graph graph = g.finish({g.add(part_of(g, z, 0, 4), part_of(g, z, 4, 8)), g.neg(q)});
  EXPECT_NO_THROW(planned(graph));
  expect_right_on_cpu(graph);
}

// A total that reads memory itself, beside many other ops.
TEST(PartedRows, TotalsOfMemory) {
  for (int others = 0; others < 20; ++others) {
    GraphBuilder g;
    const Tensor x = g.input("x", {6, 8}, DataType::f32);
    const Tensor y = g.sub(x, g.reduce(x, ReductionMode::max, {1}));
    const Tensor p = part_of(g, y, 0, 4), q = part_of(g, y, 4, 8);
    std::vector<Tensor> results{g.neg(q), g.add(p, q)};
    for (int i = 0; i < others; ++i)
      results.push_back(g.exp(g.input("z" + std::to_string(i), {3}, DataType::f32)));
    const Graph graph = g.finish(results);
    EXPECT_NO_THROW(planned(graph)) << others;
    expect_right_on_cpu(graph);
  }
}

// A mean that is a result, too.
TEST(PartedRows, TotalsMayBeReadByOthers) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 8}, DataType::f32);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {1});
  const Tensor y = g.sub(x, mean);
  const Graph graph = g.finish({g.exp(part_of(g, y, 0, 4)), g.exp(part_of(g, y, 4, 8)), mean});
  EXPECT_THAT(planned(graph), SizeIs(1));
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
