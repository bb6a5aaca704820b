// Owns the tests of which launches run beside those in front of them.
#include "backend/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/planning.h"
#include "backend/replan.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::ElementsAre;

Schedule schedule_of(const Graph& graph) {
  LoweredPlan lowered = lowered_plan(build(graph, DeviceInfo::named("H200"), BuildOptions{.compile = false}));
  return make_schedule(lowered.plan.graph, std::move(lowered.fusions), true);
}

// Per launch, as the plan of the graph has them.
std::vector<bool> beside(const Graph& graph) {
  const LoweredPlan lowered =
      lowered_plan(build(graph, DeviceInfo::named("H200"), BuildOptions{.compile = false}));
  return steps_beside(lowered.plan.graph, schedule_of(graph), DeviceInfo::named("H200"));
}

TEST(SideBySide, ReadersOfOneTensorDo) {
  GraphBuilder g("projections");
  const Tensor x = g.input("x", {64, 256}, DataType::f16);
  for (const char* name : {"q", "k", "v"})
    g.output(g.matmul(x, g.input(std::string("w") + name, {256, 320}, DataType::f16)), {.name = name});
  EXPECT_THAT(beside(g.finish()), ElementsAre(false, true, true));
}

TEST(SideBySide, AReaderWaitsForWhatItReads) {
  GraphBuilder g("layers");
  Tensor x = g.input("x", {64, 256}, DataType::f16);
  for (const char* name : {"w1", "w2", "w3"})
    x = g.relu(g.matmul(x, g.input(name, {256, 256}, DataType::f16)));
  g.output(x, {.name = "y"});
  EXPECT_THAT(beside(g.finish()), ElementsAre(false, false, false));
}

// A branch is moved beside the other one, and both write their part of one tensor.
TEST(SideBySide, BranchesOfAConcatenationDo) {
  GraphBuilder g("branches");
  const Tensor x = g.input("x", {1, 64, 28, 28}, DataType::f16, Layout::nhwc);
  const auto conv = [&](const Tensor& from, const std::string& name, int64_t channels, int64_t window) {
    const Tensor w = g.input(name, {channels, from.dims[1], window, window}, DataType::f16, Layout::nhwc);
    return g.relu(g.conv_fprop(from, w, {.padding = {window / 2, window / 2}}));
  };
  const Tensor a = conv(conv(x, "a1", 32, 1), "a2", 64, 3), b = conv(conv(x, "b1", 16, 1), "b2", 64, 3);
  g.output(g.concatenate({a, b}, 1), {.name = "y"});
  EXPECT_THAT(beside(g.finish()), ElementsAre(false, true, false, true));
}

// An order in which the user's tensors are read and written allows some of them to share memory.
TEST(SideBySide, WhoeverWritesTheUsersTensorIsNotMovedToTheFront) {
  GraphBuilder g("branches");
  const auto image = [&](const char* name) {
    return g.input(name, {1, 64, 28, 28}, DataType::f16, Layout::nhwc);
  };
  const Tensor x = image("x"), z = image("z");
  const auto conv = [&](const Tensor& from, const std::string& name) {
    const Tensor w = g.input(name, {64, from.dims[1], 3, 3}, DataType::f16, Layout::nhwc);
    return g.relu(g.conv_fprop(from, w, {.padding = {1, 1}}));
  };
  const Tensor a = conv(conv(conv(x, "a1"), "a2"), "a3"), b = conv(z, "b");
  g.output(g.concatenate({a, b}, 1), {.name = "y"});
  EXPECT_THAT(beside(g.finish()), ElementsAre(false, false, false, true));
}

TEST(SideBySide, KernelsThatAlwaysWaitDoNot) {
  GraphBuilder g("depthwise branches");
  const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::f16, Layout::nhwc);
  for (const char* name : {"a", "b"}) {
    const Tensor w = g.input(std::string("w") + name, {64, 1, 3, 3}, DataType::f16, Layout::nhwc);
    g.output(g.conv_fprop(x, w, {.padding = {1, 1}, .groups = 64}), {.name = name});
  }
  EXPECT_THAT(beside(g.finish()), ElementsAre(false, false));
}

// Two fusions that have no tensor in common meet in the memory that one of them left.
TEST(SideBySide, WhoeverWritesWhatIsStillReadWaits) {
  constexpr int64_t kLarge = int64_t{8} << 20;
  Graph graph;
  for (const char* name : {"a", "b"}) {
    Tensor tensor;
    tensor.name = name;
    tensor.type = DataType::u8;
    tensor.dims = {kLarge};
    tensor.strides = {1};
    tensor.memory = Memory::workspace;
    graph.tensors.push_back(tensor);
  }
  const auto writing = [&](int tensor) {
    ScheduledFusion scheduled;
    scheduled.fusion.operands.push_back(
        {.tensor = tensor, .type = DataType::u8, .memory = Memory::workspace});
    Expr expr;
    expr.domain = {kLarge};
    expr.stores.push_back({.node = 0, .type = DataType::u8, .access = {.operand = 0, .strides = {1}}});
    add_site(scheduled.fusion, expr);
    Launch launch;
    launch.turn_at = 0;
    scheduled.lowered.steps.emplace_back(launch);
    return scheduled;
  };
  std::vector<ScheduledFusion> fusions;
  fusions.push_back(writing(0));
  fusions.push_back(writing(1));
  Schedule schedule = make_schedule(graph, std::move(fusions), true);
  ASSERT_EQ(schedule.tensor_offsets[0], schedule.tensor_offsets[1]) << "large values share memory in turn";
  EXPECT_THAT(steps_beside(graph, schedule, DeviceInfo::named("H200")), ElementsAre(false, false));
  schedule.tensor_offsets[1] += kLarge;
  EXPECT_THAT(steps_beside(graph, schedule, DeviceInfo::named("H200")), ElementsAre(false, true));
}

// Nothing of the other launches of a stage is written over.
TEST(SideBySide, SmallValuesKeepTheirPlacesForAStage) {
  GraphBuilder g("branches");
  const Tensor x = g.input("x", {64, 256}, DataType::f16);
  const auto layer = [&](const Tensor& from, const std::string& name) {
    return g.matmul(from, g.input(name, {256, 256}, DataType::f16));
  };
  const Tensor a = layer(layer(x, "a1"), "a2"), b = layer(layer(x, "b1"), "b2");
  g.output(layer(a, "a3"), {.name = "ya"});
  g.output(layer(b, "b3"), {.name = "yb"});
  EXPECT_THAT(beside(g.finish()), ElementsAre(false, true, false, true, false, true));
}

TEST(SideBySide, StagesBeginWithWhoeverWaits) {
  GraphBuilder g("projections");
  const Tensor x = g.input("x", {64, 256}, DataType::f16);
  const auto layer = [&](const Tensor& from, const std::string& name) {
    return g.matmul(from, g.input(name, {256, 256}, DataType::f16));
  };
  const Tensor q = layer(x, "wq"), k = layer(x, "wk");
  g.output(layer(q, "wo"), {.name = "o"});
  g.output(layer(k, "wp"), {.name = "p"});
  const Schedule schedule = schedule_of(g.finish());
  std::vector<const Fusion*> fusions;
  for (const ScheduledFusion& each : schedule.fusions) fusions.push_back(&each.fusion);
  EXPECT_THAT(stages_of(fusions), ElementsAre(0, 0, 2, 2));
}

}  // namespace
}  // namespace fusor
