// Tests the rules that engines share: what needs totals again is cut off.
#include "backend/engines/rules.h"
#include "tests/backend/engines/ask.h"

#include <gtest/gtest.h>

#include "backend/engines/list.h"
#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

Fusion whole(const Graph& graph) {
  std::vector<int> ops;
  for (int op = 0; op < std::ssize(graph.ops); ++op) ops.push_back(op);
  return make_fusion(graph, fold_views(graph), ops);
}

// e = exp(x), y = e / sum of e.
Tensor normalised(GraphBuilder& g, const Tensor& x) {
  const Tensor e = g.exp(x, {.name = "e"});
  return g.div(e, g.reduce(e, ReductionMode::add, {1}, {.name = "sum"}), {.name = "y"});
}

// Every engine of a GPU but `rows` refuses, and those that take all else name the op.
void expect_cut_at(const Graph& graph, const char* op) {
  const Fusion fusion = whole(graph);
  int named = 0;
  for (const Engine* const engine : engines()) {
    if (engine == &cpu_engine() || engine == &rows_engine()) continue;
    const Support support = test::supports(*engine, fusion, DeviceInfo::named("H200"));
    ASSERT_FALSE(support) << engine->name();
    if (support.refusal->rule != "one-phase") continue;
    EXPECT_EQ(support.refusal->node, op) << engine->name();
    EXPECT_GE(support.refusal->op, 0) << engine->name();
    ++named;
  }
  EXPECT_GE(named, 1);
  EXPECT_TRUE(test::supports(cpu_engine(), fusion, DeviceInfo::cpu()));
}

TEST(Phases, NoEngineOfAGpuNeedsATotalAgain) {
  GraphBuilder g("g");
  expect_cut_at(g.finish({normalised(g, g.input("x", {8, 64}, DataType::f32))}), "y");
}

TEST(Phases, AfterAMatmulAsWell) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {8, 64}, DataType::f16), w = g.input("w", {64, 64}, DataType::f16);
  expect_cut_at(g.finish({normalised(g, g.matmul(x, w))}), "y");
}

TEST(Phases, OperandsOfAMatmulHaveNoReductions) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {8, 64}, DataType::f32), w = g.input("w", {64, 64}, DataType::f32);
  expect_cut_at(g.finish({g.matmul(normalised(g, x), w)}), "sum");
}

}  // namespace
}  // namespace fusor
