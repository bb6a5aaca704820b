// Owns the tests of Executable::profile: which steps there are, whose they are, and what is told of them.
#include "backend/report/profile.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "backend/build.h"
#include "backend/device_memory.h"
#include "codegen/cuda_driver.h"
#include "codegen/nvrtc.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "tests/stub_driver/stub_driver.h"
#include "tests/stub_nvtx/stub_nvtx.h"

namespace fusor::profile_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Before any test loads a plan: NVTX looks for a profiler once.
struct NvtxEnvironment : testing::Environment {
  void SetUp() override { stub_nvtx::use(); }
};
const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new NvtxEnvironment);

// Two matmuls with something between them that no fusion takes on both sides.
Graph two_matmuls(int64_t n) {
  GraphBuilder g("two matmuls");
  const Tensor a = g.input("a", {n, n}, DataType::f32);
  g.output(g.relu(g.matmul(g.matmul(a, a, {.name = "first"}), a, {.name = "second"}), {.name = "relu"}),
           {.name = "c"});
  return g.finish();
}

struct Memory {
  explicit Memory(const Executable& exe) : workspace(exe.plan().device, exe.workspace_bytes()) {
    for (const Tensor& tensor : exe.plan().graph.tensors)
      if (!tensor.is_virtual()) {
        tensors.emplace_back(exe.plan().device, tensor);
        std::vector<float> ones(static_cast<size_t>(tensor.bytes()) / 4, 1.0f);
        tensors.back().write(ones);
        bindings.emplace_back(tensor, tensors.back().get());
      }
  }
  DeviceMemory workspace;
  std::vector<DeviceMemory> tensors;
  std::vector<Binding> bindings;
};

TEST(Profiles, EachFusionHasItsTimeWorkAndLimit) {
  const int64_t n = 96;
  const Executable exe = load(build(two_matmuls(n), DeviceInfo::cpu()));
  const Memory memory(exe);
  const Profile profile = exe.profile(memory.bindings, memory.workspace);
  EXPECT_EQ(profile.graph, "two matmuls");
  EXPECT_EQ(profile.runs, 20);
  EXPECT_GT(profile.seconds, 0);
  ASSERT_EQ(profile.fusions.size(), 2U);
  const FusionProfile& second = profile.fusions[1];
  EXPECT_THAT(second.ops, ElementsAre("second", "relu"));
  EXPECT_EQ(second.config.engine, "cpu");
  EXPECT_DOUBLE_EQ(second.flops, 2.0 * n * n * n);
  EXPECT_DOUBLE_EQ(second.bytes, 4.0 * 3 * n * n);
  EXPECT_EQ(second.bound, "arithmetic");
  EXPECT_GT(second.seconds, 0);
  EXPECT_GT(second.estimated_seconds, 0);
  EXPECT_NEAR(second.fraction_of_limit(), second.limit_seconds / second.seconds, 1e-12);
  ASSERT_EQ(second.steps.size(), 1U);
  EXPECT_EQ(second.steps[0].name, "evaluate");
  EXPECT_THAT(to_string(profile), HasSubstr("second + relu"));
}

TEST(Profiles, WhatIsDoneBeforeARunIsNotTimed) {
  const Executable exe = load(build(two_matmuls(8), DeviceInfo::cpu()));
  const Memory memory(exe);
  ProfileOptions options;
  options.runs = 3;
  int calls = 0;
  options.before_run = [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  const Profile profile = exe.profile(memory.bindings, memory.workspace, nullptr, options);
  EXPECT_EQ(calls, 6);
  EXPECT_LT(profile.seconds, 0.01);
}

TEST(Profiles, NoRunsAndMissingPointersAreRefused) {
  const Executable exe = load(build(two_matmuls(8), DeviceInfo::cpu()));
  const Memory memory(exe);
  ProfileOptions none;
  none.runs = 0;
  EXPECT_THROW(exe.profile(memory.bindings, memory.workspace, nullptr, none), Error);
  EXPECT_THROW(exe.profile(std::span<const Binding>(), memory.workspace), Error);
}

TEST(Profiles, KernelsHaveTheirEntriesAndProfilersSeeTheFusionsNames) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  cuda::make_current();
  const Executable exe = load(build(two_matmuls(32), DeviceInfo::named("H200")));
  const Memory memory(exe);
  stub_nvtx::reset();
  exe.run(memory.bindings, memory.workspace);
  if (stub_nvtx::listens()) {
    EXPECT_THAT(stub_nvtx::ranges(), ElementsAre("first", "second + relu"));
    EXPECT_EQ(stub_nvtx::depth(), 0);
  }
  stub::reset();
  ProfileOptions options;
  options.runs = 2;
  options.warm_ups = 1;
  const Profile profile = exe.profile(memory.bindings, memory.workspace, nullptr, options);
  ASSERT_EQ(profile.fusions.size(), 2U);
  size_t steps = 0;
  for (const FusionProfile& fusion : profile.fusions) {
    steps += fusion.steps.size();
    for (const StepProfile& step : fusion.steps) EXPECT_NE(step.name, "evaluate");
  }
  EXPECT_EQ(stub::launch_count(), static_cast<int64_t>(5 * steps));
}

}  // namespace
}  // namespace fusor::profile_test
