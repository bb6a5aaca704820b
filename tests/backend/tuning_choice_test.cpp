// Owns the tests of what a tuning table changes: the order of options, and the graph that a fusion is
// measured in.
#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/choose.h"
#include "backend/report/explain.h"
#include "frontend/graph_builder.h"
#include "heuristics/tuning.h"
#include "tests/backend/devices.h"

namespace fusor {
namespace {

using testing::HasSubstr;

Graph two_layers() {
  GraphBuilder g("two layers");
  const Tensor x = g.input("x", {64, 32}, DataType::f16);
  const Tensor h = g.relu(g.matmul(x, g.input("v", {32, 64}, DataType::f16)), {.type = DataType::f16});
  const Tensor y = g.matmul(g.reshape(h, {128, 32}), g.input("w", {32, 16}, DataType::f16));
  return g.finish({y});
}

using test::h200;

BuildOptions with(const TuningTable& table) {
  BuildOptions options;
  options.compile = false;
  options.tuning = &table;
  return options;
}

TEST(TuningChoice, MeasuredOptionsGoFirstAndTellTheirTime) {
  const TuningTable nothing;
  const Choices estimated = choose(two_layers(), h200(), {with(nothing)});
  const Choice& first = estimated.fusions.front();
  ASSERT_GE(first.options.size(), 3u);
  const EngineConfig last = first.options.back().config;
  const EngineConfig gone{"no such engine", 1, {}};
  TuningTable table;
  table.put({h200().name, fusion_key(first.fusion()), "", {{gone, 1e-9, 1e-9, 1e-9}, {last, 0.5, 0.4, 0.6}}});

  const Choices tuned = choose(two_layers(), h200(), {with(table)});
  const EngineOption& best = tuned.fusions.front().options.front();
  EXPECT_EQ(best.config, last);
  EXPECT_TRUE(best.measured);
  EXPECT_EQ(best.seconds, 0.5);
  // The others follow as they were, and other fusions are untouched.
  EXPECT_EQ(tuned.fusions.front().options[1].config, first.options.front().config);
  EXPECT_EQ(tuned.fusions[1].options.front().config, estimated.fusions[1].options.front().config);
  EXPECT_EQ(build(two_layers(), h200(), with(table)).fusions.front().config, last);
  EXPECT_THAT(explain(two_layers(), h200(), with(table), Detail::all), HasSubstr("500.000 ms measured with"));
}

TEST(TuningChoice, AnotherDevicesMeasurementsAreNotUsed) {
  const TuningTable nothing;
  const Choice first = choose(two_layers(), h200(), {with(nothing)}).fusions.front();
  TuningTable table;
  table.put({"A100", fusion_key(first.fusion()), "", {{first.options.back().config, 1, 1, 1}}});
  EXPECT_FALSE(choose(two_layers(), h200(), {with(table)}).fusions.front().options.front().measured);
}

TEST(TuningChoice, AFusionAloneKeepsItsKey) {
  const TuningTable nothing;
  const Choices choices = choose(two_layers(), h200(), {with(nothing)});
  ASSERT_EQ(choices.fusions.size(), 2u);
  for (const Choice& choice : choices.fusions) {
    const Graph alone = standalone(choices.graph, choices.folded, choice.fusion().ops);
    const Choices planned = choose(alone, h200(), {with(nothing)});
    ASSERT_EQ(planned.fusions.size(), 1u);
    EXPECT_EQ(fusion_key(planned.fusions[0].fusion()), fusion_key(choice.fusion()));
  }
}

}  // namespace
}  // namespace fusor
