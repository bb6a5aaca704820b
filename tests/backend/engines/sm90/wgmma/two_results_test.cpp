// Owns the tests of the wgmma engine for epilogues with two results.
#include <gtest/gtest.h>

#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// gelu(a b + bias) beside what it is made of, in the type and the strides given.
Graph saved(int64_t m, int64_t n, int64_t k, DataType type, const Strides& strides, const Strides& of_saved) {
  GraphBuilder g("saved");
  const Tensor a = g.input("a", {m, k}, DataType::bf16);
  const Tensor b = g.input("b", {k, n}, DataType::bf16, TensorOptions{.strides = Strides{1, k}});
  const Tensor sum = g.add(g.matmul(a, b), g.input("bias", {1, n}, DataType::bf16));
  const Tensor pre = g.output(sum, {.name = "pre", .type = type, .strides = of_saved});
  g.output(g.gelu(pre), {.name = "y", .type = DataType::bf16, .strides = strides});
  return g.finish();
}
Graph saved(int64_t m, int64_t n, int64_t k, DataType type) {
  return saved(m, n, k, type, Strides{n, 1}, Strides{n, 1});
}

TEST(Wgmma, TwoResultsLeaveByTheCopyEngine) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Strides& strides : {Strides{2048, 1}, Strides{1, 4096}}) {
    const Fusion fusion = fusion_of(saved(4096, 2048, 512, DataType::bf16, strides, strides));
    bool with_192_sums = false;
    for (const EngineConfig& config : configs(fusion, device)) {
      SCOPED_TRACE(to_string(config));
      const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      const KernelSource& source = *launch.source;
      ASSERT_EQ(launch.arguments.maps().size(), 4u);
      const TensorMap& first = launch.arguments.maps()[2];
      EXPECT_EQ(first.box, launch.arguments.maps()[3].box);
      EXPECT_EQ(first.stride_bytes, launch.arguments.maps()[3].stride_bytes);
      EXPECT_NE(launch.arguments.patches()[2].index, launch.arguments.patches()[3].index);
      EXPECT_EQ(config_value(source, "has_second"), 1);
      EXPECT_EQ(static_cast<DataType>(config_value(source, "SecondOut")), DataType::bf16);
      EXPECT_EQ(config_value(source, "clamped"), 1);
      const bool large = config.knob("tile_m", 0) * config.knob("tile_n", 0) > 128 * 256;
      const bool alone = config_value(source, "blocks_per_sm") == 1;
      EXPECT_GE(config_value(source, "stages"), large ? 3 : alone ? 4 : 2);
      EXPECT_LE(launch.shared_bytes, device.shared_per_block);
      EXPECT_TRUE(source.sites.at(0).expr.stores.empty());
      for (const Guard& guard : lowered.guards) EXPECT_GE(guard.alignment, guard.operand < 2 ? 16 : 2);
      with_192_sums |= config.knob("tile_n", 0) == 192 && config.knob("tile_m", 0) == 128;
    }
    EXPECT_TRUE(with_192_sums);
  }
}

TEST(Wgmma, ASecondResultThatLiesOtherwiseIsStoredByThreads) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Graph& graph : {saved(4096, 2048, 512, DataType::bf16, Strides{2048, 1}, Strides{1, 4096}),
                             saved(4096, 2048, 512, DataType::bf16, Strides{2048, 1}, Strides{2049, 1}),
                             saved(4096, 2048, 512, DataType::f64), saved(4096, 2044, 512, DataType::f32)}) {
    const Fusion fusion = fusion_of(graph);
    for (const EngineConfig& config : configs(fusion, device)) {
      const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      EXPECT_EQ(config_value(*launch.source, "has_second"), 0) << to_string(config);
      EXPECT_GE(launch.source->sites.at(0).expr.stores.size(), 1u);
    }
  }
}

// Along columns; rows of a box are 64 of 16 bits, no more.
TEST(Wgmma, AnFp32ResultIsCopiedBesideOneOf16Bits) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(saved(4096, 2048, 512, DataType::f32));
  for (const EngineConfig& config : configs(fusion, device)) {
    SCOPED_TRACE(to_string(config));
    const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    const bool copied = config.knob("swap", 0) == 0 && config_value(*launch.source, "blocks_per_sm") == 1;
    EXPECT_EQ(config_value(*launch.source, "has_second") != 0, copied);
    if (!copied) continue;
    EXPECT_LE(config_value(*launch.source, "box_columns"), 32);
    EXPECT_EQ(launch.arguments.maps().at(2).type, DataType::f32);
    EXPECT_EQ(launch.arguments.maps().at(3).type, DataType::bf16);
  }
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForTwoResults) {
  expect_every_setting_lowers(saved(300, 520, 1000, DataType::bf16));
  expect_every_setting_lowers(saved(300, 520, 1000, DataType::f32));
  expect_every_setting_lowers(saved(304, 520, 1000, DataType::bf16, Strides{1, 304}, Strides{1, 304}));
}

TEST(Wgmma, KernelsOfTwoResultsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const char* name, const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    for (const EngineConfig& config : configs(fusion, device))
      if (config.knob("cluster", 1) == 1 && config.knob("tile_n", 0) >= 96)
        test::add_kernels(name + to_string(config), test::lower(wgmma_engine(), fusion, config, device),
                          kernels);
  };
  add("16 bits ", saved(4096, 2048, 512, DataType::bf16));
  add("fp32 ", saved(4096, 2048, 512, DataType::f32));
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
