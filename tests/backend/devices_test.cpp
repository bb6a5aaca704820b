// Tests where DeviceInfo values come from: profiles by every name they have, files, and this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "backend/build.h"
#include "codegen/cuda_driver.h"
#include "core/device_info.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "serialization/serialization.h"

namespace fusor {
namespace {

using testing::HasSubstr;

TEST(Devices, EveryProfileIsThere) {
  std::set<std::string> names;
  for (const DeviceInfo& profile : DeviceInfo::profiles()) names.insert(profile.name);
  EXPECT_EQ(names, (std::set<std::string>{"T4", "A100", "A10", "L40", "H100", "H200", "B200", "RTX_4090",
                                          "RTX_5090"}));
}

TEST(Devices, ProfilesAreInOrderOfComputeCapability) {
  int before = 0;
  for (const DeviceInfo& profile : DeviceInfo::profiles()) {
    EXPECT_GE(profile.compute_capability, before) << profile.name;
    before = profile.compute_capability;
  }
}

TEST(Devices, ProfilesSayWhereTheirFiguresComeFrom) {
  for (const DeviceInfo& profile : DeviceInfo::profiles())
    EXPECT_TRUE(profile.source.starts_with(profile.name == "H200" ? "measured" : "data sheet"))
        << profile.name;
}

TEST(Devices, FiguresOfNoDeviceAreRefusedByBuild) {
  GraphBuilder g;
  const Graph graph = g.finish({g.relu(g.input("x", {4}, DataType::f32))});
  DeviceInfo device = DeviceInfo::named("H200");
  device.sm_count = 0;
  try {
    build(graph, device, {.compile = false});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "device 'H200': sm_count: expected 1 to 65536, got 0");
  }
}

TEST(Devices, FiguresOfAProfileFitEachOther) {
  for (const DeviceInfo& profile : DeviceInfo::profiles()) {
    SCOPED_TRACE(profile.name);
    EXPECT_EQ(profile.kind, DeviceKind::cuda);
    EXPECT_LT(profile.shared_per_block, profile.shared_per_sm + 1);
    EXPECT_GT(profile.l2_bytes_per_s, profile.dram_bytes_per_s);
    EXPECT_GT(profile.tensor_flops_16, profile.fp32_flops);
    EXPECT_GT(profile.fp32_flops, profile.fp64_flops);
    EXPECT_GT(profile.fp64_flops, 0);
    // 64 or 128 lanes a multiprocessor, one fused multiply-add a cycle each.
    const double lanes = profile.fp32_flops / 2 / profile.clock_hz / profile.sm_count;
    EXPECT_TRUE(std::abs(lanes - 64) < 2 || std::abs(lanes - 128) < 2) << lanes;
  }
}

TEST(Devices, NamesAreFoundInAnySpelling) {
  EXPECT_EQ(DeviceInfo::named("H200").name, "H200");
  EXPECT_EQ(DeviceInfo::named("h200").name, "H200");
  EXPECT_EQ(DeviceInfo::named("rtx 4090").name, "RTX_4090");
  EXPECT_EQ(DeviceInfo::named("RTX-5090").name, "RTX_5090");
}

TEST(Devices, AnArchitectureStandsForItsFirstProfile) {
  EXPECT_EQ(DeviceInfo::named("turing").name, "T4");
  EXPECT_EQ(DeviceInfo::named("Ampere").name, "A100");
  EXPECT_EQ(DeviceInfo::named("hopper").name, "H100");
  EXPECT_EQ(DeviceInfo::named("blackwell").name, "B200");
}

TEST(Devices, ATargetStandsForItsFirstProfile) {
  EXPECT_EQ(DeviceInfo::named("sm_86").name, "A10");
  EXPECT_EQ(DeviceInfo::named("sm_90").name, "H100");
  EXPECT_EQ(DeviceInfo::named("sm_90a").name, "H100");
  EXPECT_EQ(DeviceInfo::named("sm_120").name, "RTX_5090");
}

TEST(Devices, AFileIsADevice) {
  DeviceInfo device = DeviceInfo::named("A100");
  device.name = "mine";
  device.sm_count = 54;
  const auto path = std::filesystem::temp_directory_path() / "fusor-devices-test.json";
  std::ofstream(path) << to_json(device);
  EXPECT_EQ(DeviceInfo::named(path.string()), device);
  std::filesystem::remove(path);
}

TEST(Devices, AnUnknownNameListsTheKnownOnes) {
  try {
    DeviceInfo::named("H300");
    FAIL() << "H300 was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_STREQ(
        error.what(),
        "unknown device 'H300'; known: cpu, current, T4, A100, A10, L40, RTX_4090, H100, H200, B200, "
        "RTX_5090; "
        "architectures Turing, Ampere, Ada, Hopper, Blackwell; targets sm_75, sm_80, sm_86, sm_89, sm_90, "
        "sm_100, sm_120; or the path of a JSON file");
  }
}

TEST(Devices, TheCpuIsTheSameEveryTime) {
  const DeviceInfo cpu = DeviceInfo::named("cpu");
  EXPECT_EQ(cpu, DeviceInfo::cpu());
  EXPECT_TRUE(cpu.is_cpu());
  EXPECT_GE(cpu.sm_count, 1);
  EXPECT_EQ(cpu.tensor_flops_16, 0);
  EXPECT_THAT(cpu.source, HasSubstr("not measured"));
  EXPECT_EQ(device_from_json(to_json(cpu)), cpu);
}

TEST(Devices, CurrentIsTheGpuWhereThereIsOneElseTheCpu) {
  const DeviceInfo current = DeviceInfo::current();
  EXPECT_EQ(current.is_cpu(), !cuda::available());
  EXPECT_GT(current.dram_bytes_per_s, 0);
  EXPECT_GT(current.fp32_flops, 0);
  EXPECT_EQ(device_from_json(to_json(current)), current);
}

}  // namespace
}  // namespace fusor
