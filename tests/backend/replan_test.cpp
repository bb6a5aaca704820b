// Owns the tests of plans that nobody vouches for: what no engine offers is planned anew, and said.
#include "backend/replan.h"

#include <gmock/gmock.h>

#include "backend/planning.h"
#include "core/error.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

Graph matmul() {
  GraphBuilder g("matmul");
  g.output(g.matmul(g.input("a", {256, 256}, DataType::bf16), g.input("b", {256, 256}, DataType::bf16)));
  return g.finish();
}

Graph depthwise() {
  GraphBuilder g("depthwise");
  const Tensor x = g.input("x", {4, 64, 28, 28}, DataType::f16, Layout::nhwc);
  g.output(g.conv_fprop(x, g.input("w", {64, 1, 3, 3}, DataType::f16), {.padding = {1, 1}}),
           {.layout = Layout::nhwc});
  return g.finish();
}

Graph sums() {
  GraphBuilder g("sums");
  return g.finish({g.reduce(g.exp(g.input("x", {64, 512}, DataType::f32)), ReductionMode::add, {1})});
}

TEST(Replan, KnobsThatNoEngineOffersAreChosenAnew) {
  for (const char* device : {"H200", "A100"})
    for (const Graph& graph : {matmul(), depthwise(), sums()}) {
      const Plan plan = build(graph, DeviceInfo::named(device), {.compile = false});
      const EngineConfig& chosen = plan.fusions.at(0).config;
      ASSERT_THAT(chosen.knobs, testing::Not(testing::IsEmpty())) << chosen.engine;
      for (const KnobSetting& knob : chosen.knobs)
        for (const int64_t absurd : {int64_t{-1}, int64_t{1} << 62, INT64_MIN, INT64_MAX}) {
          Plan hostile = plan;
          hostile.fusions[0].config.set(knob.name, absurd);
          const Plan checked = checked_plan(hostile);
          EXPECT_THAT(checked.remarks, SizeIs(1)) << knob.name << " " << absurd;
          EXPECT_THAT(checked.remarks, Each(HasSubstr("was chosen anew: knob '" + knob.name)));
          EXPECT_EQ(checked.fusions[0].config, chosen);
          EXPECT_FALSE(kernels(hostile).empty());
        }
    }
}

TEST(Replan, AKnobThatTheEngineDoesNotHaveIsChosenAnew) {
  Plan plan = build(matmul(), DeviceInfo::named("H200"), {.compile = false});
  plan.fusions[0].config.set("nosuch", 1);
  EXPECT_THAT(checked_plan(plan).remarks, Each(HasSubstr("has no knob 'nosuch'")));
}

// A plan file may name an op that build() would have written in simpler ones.
TEST(Replan, ACompositeThatNobodyWroteInSimplerOpsIsRefused) {
  GraphBuilder g("softmax");
  const SoftmaxResults all = g.softmax(g.input("x", {4, 8}, DataType::f32));
  g.output(all.y);
  Plan plan;
  plan.graph = g.finish();
  plan.device = DeviceInfo::cpu();
  plan.fusions = {{{0}, {"cpu", 1, {}}}};
  try {
    checked_plan(plan);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no engine carries it out"));
  }
}

TEST(Replan, APlanOfItsOwnStaysAsItIs) {
  const Plan plan = build(matmul(), DeviceInfo::named("H200"), {.compile = false});
  const Plan checked = checked_plan(plan);
  EXPECT_EQ(checked.fusions, plan.fusions);
  EXPECT_TRUE(checked.remarks.empty());
}

}  // namespace
}  // namespace fusor
