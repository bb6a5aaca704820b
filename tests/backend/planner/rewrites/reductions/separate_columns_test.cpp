// Owns the tests that rows and the columns concatenated to them are computed apart.
#include "backend/planner/rewrites/reductions/separate_columns.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/devices.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor::separate_columns_test {
namespace {

using testing::SizeIs;

bool concatenates(const Graph& graph) {
  return std::ranges::any_of(test::planned_once(graph).ops,
                             [](const Op& op) { return std::holds_alternative<Concatenate>(op.attributes); });
}

Tensor part_of(GraphBuilder& g, const Tensor& x, int64_t start, int64_t limit) {
  Dims from = Dims::filled(x.dims.rank(), 0), to = x.dims;
  from[x.dims.rank() - 1] = start;
  to[x.dims.rank() - 1] = limit;
  return g.slice(x, from, to, {});
}

// Attention with a sink as frameworks write it: one more score of each row.
struct SinkCase {
  int64_t queries = 5, keys = 12;
  bool in_front = false;  // of the scores
  bool shifted = false;   // by the row's maximum, against overflow
  bool composite = true;  // the softmax
  DataType scores = DataType::f32;
};

Graph attention_with_sink(const SinkCase& c) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 3, c.queries, 16}, DataType::bf16);
  const Tensor k = g.input("k", {2, 3, 16, c.keys}, DataType::bf16);
  const Tensor v = g.input("v", {2, 3, c.keys, 16}, DataType::bf16);
  const Tensor ones = g.input("ones", {2, 1, c.queries, 1}, DataType::bf16);
  const Tensor sink = g.mul(ones, g.input("sinks", {1, 3, 1, 1}, DataType::bf16), {.type = c.scores});
  const Tensor scores = g.mul(g.matmul(q, k), g.constant(0.25), {.type = c.scores});
  std::vector<Tensor> parts{scores, sink};
  if (c.in_front) std::ranges::reverse(parts);
  Tensor all = g.concatenate(parts, 3);
  if (c.shifted) all = g.sub(all, g.reduce(all, ReductionMode::max, {3}), {.type = c.scores});
  Tensor p;
  if (c.composite) {
    p = g.softmax(all, {.axis = 3, .type = DataType::bf16}).y;
  } else {
    const Tensor exp = g.exp(g.sub(all, g.reduce(all, ReductionMode::max, {3})));
    p = g.div(exp, g.reduce(exp, ReductionMode::add, {3}), {.type = DataType::bf16});
  }
  const int64_t start = c.in_front ? 1 : 0;
  g.output(g.matmul(part_of(g, p, start, start + c.keys), v), {.name = "o", .type = DataType::bf16});
  return g.finish();
}

TEST(SeparateColumns, AttentionWithAConcatenatedSinkIsOneFusion) {
  for (const bool in_front : {false, true})
    for (const bool shifted : {false, true})
      for (const bool composite : {false, true}) {
        const Graph graph =
            attention_with_sink({.in_front = in_front, .shifted = shifted, .composite = composite});
        EXPECT_FALSE(concatenates(graph));
        EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
        expect_right_on_cpu(graph);
      }
}

TEST(SeparateColumns, EnginesOfAttentionTakeTheSink) {
  for (const int64_t queries : {1, 512}) {
    const Plan plan =
        build(attention_with_sink({.queries = queries, .keys = 512}), test::device_named("H200"));
    ASSERT_THAT(plan.fusions, SizeIs(1));
    EXPECT_TRUE(plan.fusions[0].config.engine.starts_with("attention")) << plan.fusions[0].config.engine;
  }
}

// Scores that the graph rounds, and differences that it rounds.
TEST(SeparateColumns, RoundingStays) {
  for (const bool shifted : {false, true}) {
    const Graph graph = attention_with_sink({.shifted = shifted, .scores = DataType::bf16});
    EXPECT_FALSE(concatenates(graph));
    expect_right_on_cpu(graph);
  }
}

// Totals of every kind, of several columns, beside operands of the whole row.
TEST(SeparateColumns, TotalsTakeEachColumnIn) {
  for (const ReductionMode mode : {ReductionMode::add, ReductionMode::max, ReductionMode::min}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {6, 8}, DataType::f32), first = g.input("first", {6, 1}, DataType::f32);
    const Tensor last = g.input("last", {6, 1}, DataType::f32);
    const Tensor all =
        g.mul(g.concatenate({first, g.tanh(x), g.exp(last)}, 1), g.input("weights", {6, 10}, DataType::f32));
    const Tensor y = g.sub(all, g.reduce(all, mode, {1}));
    const Graph graph = g.finish({g.neg(part_of(g, y, 1, 9)), g.exp(part_of(g, y, 3, 7)),
                                  g.exp(part_of(g, y, 9, 10)), g.tanh(part_of(g, y, 0, 1))});
    EXPECT_FALSE(concatenates(graph)) << to_string(mode);
    expect_right_on_cpu(graph);
  }
}

// A mean has shares of unequal parts; a slice has elements of both; the whole row is a result.
TEST(SeparateColumns, WhatNeedsTheWholeRowKeepsIt) {
  for (const int reader : {0, 1, 2}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {6, 8}, DataType::f32), column = g.input("column", {6, 1}, DataType::f32);
    const Tensor all = g.concatenate({g.exp(x), column}, 1);
    const Tensor y = g.sub(all, g.reduce(all, reader == 0 ? ReductionMode::avg : ReductionMode::max, {1}));
    std::vector<Tensor> results{g.exp(part_of(g, y, 0, 8))};
    if (reader == 1) results.push_back(g.exp(part_of(g, y, 4, 9)));
    if (reader == 2) results.push_back(y);
    const Graph graph = g.finish(results);
    EXPECT_TRUE(concatenates(graph)) << reader;
    expect_right_on_cpu(graph);
  }
}

// Rows of rows: what is left of one concatenation is part of another.
TEST(SeparateColumns, ConcatenationsOfPartsTakeAnotherRound) {
  GraphBuilder g;
  Tensor x = g.exp(g.input("x", {6, 8}, DataType::f32));
  for (int i = 0; i < 3; ++i) {
    const Tensor all = g.concatenate({x, g.input("column" + std::to_string(i), {6, 1}, DataType::f32)}, 1);
    x = part_of(g, g.div(all, g.reduce(g.abs(all), ReductionMode::max, {1})), 0, 8);
  }
  const Graph graph = g.finish({g.tanh(x)});
  EXPECT_FALSE(concatenates(graph));
  expect_right_on_cpu(graph);
}

// Random ops, totals and readers behind random columns.
TEST(SeparateColumns, RandomGraphsAreRight) {
  std::mt19937 random(7);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int round = 0; round < 60; ++round) {
    GraphBuilder g;
    const int64_t rows = 1 + draw(6), extent = 2 + draw(9);
    const DataType type = draw(3) == 0 ? DataType::f16 : DataType::f32;
    std::vector<Tensor> parts{g.tanh(g.input("x", {rows, extent}, type), {.type = type})};
    for (int i = draw(3); i >= 0; --i)
      parts.insert(parts.begin() + draw(static_cast<int>(parts.size()) + 1),
                   g.input("c" + std::to_string(i), {rows, 1}, type));
    Tensor y = g.concatenate(parts, 1);
    const int64_t all = y.dims[1];
    for (int i = 0; i < 4; ++i) {
      const ReductionMode modes[]{ReductionMode::add, ReductionMode::max, ReductionMode::min,
                                  ReductionMode::avg};
      const int kind = draw(4);
      if (kind == 3) {
        y = g.add(y, g.input("w" + std::to_string(i), {1, all}, DataType::f32));
        continue;
      }
      const Tensor total = g.reduce(y, modes[draw(draw(4) == 0 ? 4 : 3)], {1});
      if (kind == 0) y = g.sub(y, total);
      if (kind == 1) y = g.tanh(g.add(y, total), {.type = type});
      if (kind == 2) y = g.add(g.mul(y, y), g.exp(g.neg(g.abs(total))));
    }
    std::vector<Tensor> results;
    for (int i = draw(3); i >= 0; --i) {
      const int64_t start = draw(static_cast<int>(all)),
                    limit = start + 1 + draw(static_cast<int>(all - start));
      results.push_back(g.neg(part_of(g, y, start, limit)));
    }
    if (draw(3) == 0) results.push_back(g.reduce(y, ReductionMode::max, {1}));
    const Graph graph = g.finish(results);
    test::planned_once(graph);
    expect_right_on_cpu(graph);
  }
}

}  // namespace
}  // namespace fusor::separate_columns_test
