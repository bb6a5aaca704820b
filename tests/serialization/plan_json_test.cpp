// Tests plan <-> JSON and device <-> JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/serialization/sample_documents.h"

namespace fusor::plan_json_test {
namespace {

using samples::conv_plan;
using samples::error_of;
using samples::replaced;
using testing::HasSubstr;

std::string error_with(const std::string& from, const std::string& to) {
  return error_of([&] { plan_from_json(replaced(to_json(conv_plan()), from, to)); });
}

void expect_same(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.graph, b.graph);
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.fusions, b.fusions);
  EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.notes, b.notes);
  EXPECT_EQ(a.remarks, b.remarks);
}

TEST(PlanJson, RoundTripKeepsEveryField) {
  const Plan plan = conv_plan();
  expect_same(plan_from_json(to_json(plan)), plan);
}

TEST(PlanJson, ExpectedFiguresAndRemarksMayBeLeftOut) {
  Plan plan = conv_plan();
  std::string text = to_json(plan);
  const size_t at = text.find(",\n  \"expected\"");
  text = text.substr(0, at) + "}";
  const Plan read = plan_from_json(text);
  EXPECT_EQ(read.fusions, plan.fusions);
  EXPECT_EQ(read.workspace_bytes, 0);
}

TEST(PlanJson, KindSaysWhatAFileIs) {
  EXPECT_TRUE(std::holds_alternative<Plan>(graph_or_plan_from_json(to_json(conv_plan()))));
  EXPECT_TRUE(std::holds_alternative<Graph>(graph_or_plan_from_json(samples::kConvGraph)));
  EXPECT_THAT(error_of([] { graph_or_plan_from_json(R"({"format": 1, "kind": "song"})"); }),
              HasSubstr("kind: 'song' is not one of graph, plan"));
}

TEST(PlanJson, PartitionsThatDoNotComputeTheGraphAreRefused) {
  const std::string first = R"("ops": ["c1", "add1"])", second = R"("ops": ["relu1"])";
  EXPECT_THAT(error_with(second, R"("ops": ["add1", "relu1"])"),
              HasSubstr("fusions[1]: op 'add1' is in fusion 0 already"));
  EXPECT_THAT(error_with(first, R"("ops": ["c1"])"), HasSubstr("fusions: op 'add1' is in no fusion"));
  EXPECT_THAT(error_with(first, R"("ops": ["add1", "c1"])"),
              HasSubstr("fusions[0].ops[1]: op 'c1' is not in the order"));
  EXPECT_THAT(error_with(first, R"("ops": ["c1", "c1", "add1"])"), HasSubstr("not in the order"));
  EXPECT_THAT(error_with(first, R"("ops": ["c1", "add2"])"),
              HasSubstr("fusions[0].ops[1]: the graph has no op named 'add2'"));
  EXPECT_THAT(error_with(second, R"("ops": [])"), HasSubstr("fusions[1].ops: a fusion has at least one op"));
}

TEST(PlanJson, FusionsMustRunInAnOrderThatComputesTheirOperands) {
  Plan plan = conv_plan();
  std::swap(plan.fusions[0], plan.fusions[1]);
  EXPECT_THAT(error_of([&] { plan_from_json(to_json(plan)); }),
              HasSubstr("op 'relu1' in fusion 0 reads 'u', which is whole only after fusion 1"));
}

TEST(PlanJson, ViewsMayBeInNoFusion) {
  Plan plan = conv_plan();
  plan.graph = graph_from_json(samples::kMatmulGraph);
  plan.fusions = {{{1, 2, 3}, {"direct", 1, {}}}, {{4}, {"elementwise", 1, {}}}};
  EXPECT_EQ(plan_from_json(to_json(plan)).fusions, plan.fusions);
}

TEST(PlanJson, ConfigurationsAreChecked) {
  EXPECT_THAT(error_with("\"tile_m\": 64", "\"tile_m\": 64.5"),
              HasSubstr("fusions[0].knobs.tile_m: expected an integer"));
  EXPECT_THAT(error_with("\"revision\": 2", "\"revision\": -1"), HasSubstr("fusions[0].revision: "));
  EXPECT_THAT(error_with("\"engine\": \"direct\"", "\"grid\": 3"),
              HasSubstr("fusions[0]: unknown key 'grid'"));
  EXPECT_THAT(error_with("\"engine\": \"direct\"", "\"engine\": 3"),
              HasSubstr("fusions[0].engine: expected text"));
  EXPECT_THAT(error_with("\"workspace_bytes\": 4096", "\"workspace_bytes\": -1"),
              HasSubstr("expected.workspace_bytes: "));
}

TEST(DeviceJson, RoundTripKeepsEveryField) {
  const DeviceInfo device = samples::small_gpu();
  EXPECT_EQ(device_from_json(to_json(device)), device);
}

TEST(DeviceJson, FiguresThatNoDeviceHasAreRefused) {
  const std::string text = to_json(samples::small_gpu());
  const auto error = [&](const std::string& from, const std::string& to) {
    return error_of([&] { device_from_json(replaced(text, from, to)); });
  };
  EXPECT_THAT(error("\"sm_count\": 3", "\"sm_count\": 0"), HasSubstr("sm_count: expected 1 to 65536, got 0"));
  EXPECT_THAT(error("\"sm_count\": 3", "\"sm_count\": 2147483647"),
              HasSubstr("sm_count: expected 1 to 65536, got 2147483647"));
  EXPECT_THAT(error("\"l2_bytes\": 1048576", "\"l2_bytes\": 9223372036854775807"),
              HasSubstr("l2_bytes: expected 0 to 1125899906842624"));
  EXPECT_THAT(error("\"sm_count\": 3", "\"sm_count\": 3000000000"),
              HasSubstr("sm_count: expected an integer from 0"));
  EXPECT_THAT(error("\"compute_capability\": 90", "\"compute_capability\": 2147483647"),
              HasSubstr("compute_capability: expected 1 to 999, got 2147483647"));
  EXPECT_THAT(error("\"fp64_flops\": 0.0", "\"fp64_flops\": \"nan\""),
              HasSubstr("fp64_flops: expected a finite number"));
  EXPECT_THAT(error("\"fp64_flops\": 0.0", "\"fp64_flops\": -1"),
              HasSubstr("fp64_flops: expected a finite number"));
  EXPECT_THAT(error("\"kind\": \"cuda\"", "\"kind\": \"graph\""),
              HasSubstr("kind: 'graph' is not one of cpu, cuda"));
  EXPECT_THAT(error("\"l2_bytes\": 1048576,", ""), HasSubstr("'l2_bytes' is missing"));
}

}  // namespace
}  // namespace fusor::plan_json_test
