// Tests what `fusor calibrate` makes of times: of a device that keeps to the time model, and of the stub
// driver, which computes nothing.
#include "tools/calibrate/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "codegen/nvrtc.h"
#include "serialization/serialization.h"
#include "tests/tools/command_fixture.h"

namespace fusor {
namespace {

using command::Calibration;
using command::Stopwatch;
using testing::ElementsAre;
using testing::HasSubstr;

std::string key_of(const Candidate& candidate) {
  std::string key;
  for (const PlannedFusion& fusion : candidate.fusions) key += to_string(fusion.config);
  return key;
}

/// A device whose times are those of the time model under `truth`.
class ModelStopwatch final : public Stopwatch {
 public:
  explicit ModelStopwatch(DeviceInfo truth) : truth_(std::move(truth)) {}

  std::vector<std::optional<double>> times(const Graph& graph,
                                           std::span<const Candidate> candidates) override {
    std::map<std::string, double> seconds;
    const TuningTable nothing;
    for (const Candidate& each :
         fusor::candidates(graph, truth_, {.max_candidates = 500, .compile = false, .tuning = &nothing}))
      seconds[key_of(each)] = each.seconds;
    std::vector<std::optional<double>> found;
    for (const Candidate& each : candidates) {
      const auto at = seconds.find(key_of(each));
      found.push_back(at == seconds.end() || !runs ? std::nullopt : std::optional(at->second));
    }
    return found;
  }
  double in_a_row(const Graph&, const Candidate&, int count) override {
    return runs ? 4e-6 + count * truth_.launch_s : 0;
  }

  bool runs = true;

 private:
  DeviceInfo truth_;
};

std::vector<std::string> names_of(const Calibration& calibration) {
  std::vector<std::string> names;
  for (const auto& each : calibration.constants) names.push_back(each.name);
  return names;
}

TEST(Calibration, FindsTheConstantsOfADeviceThatKeepsToTheModel) {
  const DeviceInfo described = DeviceInfo::named("H200");
  DeviceInfo truth = described;
  truth.launch_s = 3.1e-6;
  truth.dram_bytes_per_s = 3.2e12;
  truth.tensor_flops_16 = 6e14;
  truth.l2_bytes_per_s = 8e12;
  truth.line_cost_16 = 3;
  truth.line_cost_32 = 1.8;
  truth.line_cost_64 = 1.5;
  ModelStopwatch stopwatch(truth);
  const Calibration found = command::calibrate(described, stopwatch);
  const auto expect_near = [](double value, double wanted, double share, const char* what) {
    EXPECT_NEAR(value, wanted, share * wanted) << what;
  };
  expect_near(found.device.launch_s, truth.launch_s, 1e-6, "launch");
  expect_near(found.device.dram_bytes_per_s, truth.dram_bytes_per_s, 0.1, "memory");
  expect_near(found.device.tensor_flops_16, truth.tensor_flops_16, 0.1, "tensor cores");
  expect_near(found.device.l2_bytes_per_s, truth.l2_bytes_per_s, 0.1, "L2");
  expect_near(found.device.line_cost_16, truth.line_cost_16, 0.1, "lines of 16");
  expect_near(found.device.line_cost_32, truth.line_cost_32, 0.1, "lines of 32");
  expect_near(found.device.line_cost_64, truth.line_cost_64, 0.1, "lines of 64");
  EXPECT_TRUE(found.remarks.empty());
}

TEST(Calibration, LeavesWhatTheDriverKnowsAsItIs) {
  const DeviceInfo described = DeviceInfo::named("A100");
  ModelStopwatch stopwatch(described);
  DeviceInfo found = command::calibrate(described, stopwatch).device;
  found.launch_s = described.launch_s;
  found.dram_bytes_per_s = described.dram_bytes_per_s;
  found.tensor_flops_16 = described.tensor_flops_16;
  found.l2_bytes_per_s = described.l2_bytes_per_s;
  EXPECT_EQ(found, described);
}

TEST(Calibration, MeasuresWhatTheGenerationHas) {
  const auto measured_on = [](const char* name) {
    const DeviceInfo device = DeviceInfo::named(name);
    ModelStopwatch stopwatch(device);
    return names_of(command::calibrate(device, stopwatch));
  };
  EXPECT_THAT(measured_on("T4"),
              ElementsAre("launch_s", "dram_bytes_per_s", "tensor_flops_16", "l2_bytes_per_s"));
  EXPECT_THAT(measured_on("H100"),
              ElementsAre("launch_s", "dram_bytes_per_s", "tensor_flops_16", "l2_bytes_per_s", "line_cost_64",
                          "line_cost_32", "line_cost_16"));
}

TEST(Calibration, WhatGivesNoTimeStaysAndIsTold) {
  const DeviceInfo described = DeviceInfo::named("A100");
  ModelStopwatch stopwatch(described);
  stopwatch.runs = false;
  const Calibration found = command::calibrate(described, stopwatch);
  EXPECT_EQ(found.device, described);
  EXPECT_TRUE(found.constants.empty());
  EXPECT_THAT(found.remarks, testing::SizeIs(4));
  EXPECT_THAT(found.remarks.front(), HasSubstr("launch_s stays as it was"));
}

TEST(Calibration, TellsEveryStepBeforeItIsDone) {
  const DeviceInfo described = DeviceInfo::named("A100");
  ModelStopwatch stopwatch(described);
  size_t next = 0;
  command::calibrate(described, stopwatch, [&](size_t done, size_t all, const std::string& what) {
    EXPECT_EQ(done, next++);
    EXPECT_EQ(all, 4u);
    EXPECT_FALSE(what.empty());
  });
  EXPECT_EQ(next, 4u);
}

using Calibrate = CommandTest;

TEST_F(Calibrate, WantsAGpu) {
  const Outcome cpu = fusor("calibrate --device cpu");
  EXPECT_EQ(cpu.code, 2);
  EXPECT_THAT(cpu.err, HasSubstr("measures a GPU"));
  const Outcome none = fusor("calibrate", "FUSOR_LIBCUDA=/nowhere");
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("there is no GPU"));
}

#ifdef FUSOR_STUB_DRIVER
// The stub's launches take 3 microseconds, or 103 where they have many threads, as the copy's do.
TEST_F(Calibrate, WritesAProfileThatPlansTake) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const std::string stub = "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "' FUSOR_STUB_LAUNCH_NS=3000,103000",
                    profile = path("mine.json");
  const Outcome outcome = fusor("calibrate --runs 1 --flush 1 -o '" + profile + "'", stub);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("dram_bytes_per_s"));
  const DeviceInfo measured = read_device(profile);
  EXPECT_EQ(measured.name, "H200 (stub)");
  EXPECT_THAT(measured.source, HasSubstr("fusor calibrate"));
  EXPECT_NEAR(measured.launch_s, 3e-6, 1e-9);
  // 2^26 fp32 elements, read and written in the 100 microseconds that are left of a launch.
  EXPECT_NEAR(measured.dram_bytes_per_s, 8.0 * (1 << 26) / 100e-6, 1e-3 * measured.dram_bytes_per_s);
  const Outcome plan = fusor("plan " + graph("matmul") + " --no-compile --device '" + profile + "'");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("H200 (stub)"));
}
#endif

}  // namespace
}  // namespace fusor
