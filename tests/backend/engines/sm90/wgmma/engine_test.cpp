// Owns the tests of the wgmma engine that need no GPU: its refusals, its launches and its generated text, of
// matmuls of 16 bits. That its kernels compile is tests/suite_kernels'.
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

TEST(Wgmma, ADeviceOfOneSmHasBandsOfATileRowOrTwo) {
  DeviceInfo device = DeviceInfo::named("H200");
  device.sm_count = 1;
  for (const EngineConfig& config : configs(fusion_of(matmul(512, 16, 64, DataType::bf16)), device))
    EXPECT_THAT(config.knob("band", 0), testing::AnyOf(1, 2)) << to_string(config);
}

TEST(Wgmma, TakesSixteenBitMatmulsOnHopperOnly) {
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16)), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f16), "H100"), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16), "A100"), "sm-90");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f32)), "16-bit-operands");
}

TEST(Wgmma, RefusesOperandsOfTwoTypes) {
  GraphBuilder g("mixed");
  const Tensor a = g.input("a", {64, 64}, DataType::f16), b = g.input("b", {64, 64}, DataType::bf16);
  EXPECT_EQ(rule(g.finish({g.matmul(a, b)})), "operands-of-one-type");
}

TEST(Wgmma, RefusesLinesThatNeitherTheCopyEngineNorThreadsCanWalk) {
  EXPECT_EQ(rule(matmul(256, 250, 64, DataType::bf16)), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16, Strides{1024, 2})), "adjacent-operands");
  EXPECT_EQ(rule(matmul(256, 250, 64, DataType::bf16, Strides{1, 64})), "");
}

TEST(Wgmma, CountsRowsColumnsStepsAndTilesIn32Bits) {
  constexpr int64_t kTooMany = int64_t{1} << 31, kMost = kTooMany - 8192;
  EXPECT_EQ(rule(matmul(kMost, 64, 64, DataType::bf16)), "");
  EXPECT_EQ(rule(matmul(kTooMany, 64, 64, DataType::bf16)), "32-bit-coordinates");
  EXPECT_EQ(rule(matmul(64, kTooMany, 64, DataType::bf16)), "32-bit-coordinates");
  EXPECT_EQ(rule(matmul(64, 64, kTooMany, DataType::bf16)), "32-bit-coordinates");
  for (const int64_t entries : {kMost, kTooMany}) {
    GraphBuilder g("batched");
    const Tensor a = g.input("a", {entries, 8, 8}, DataType::bf16);
    const Graph graph = g.finish({g.matmul(a, g.input("b", {entries, 8, 8}, DataType::bf16))});
    EXPECT_EQ(rule(graph), entries == kMost ? "" : "32-bit-coordinates");
  }
}

TEST(Wgmma, AddressesAreAsWideAsTheBuffers) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(matmul(70000, 70000, 64, DataType::bf16));
  ASSERT_TRUE(test::supports(wgmma_engine(), fusion, device));
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
    EXPECT_EQ(config_value(*std::get<Launch>(lowered.steps.at(0)).source, "index_bits"), 64);
  }
}

TEST(Wgmma, PartsAreNoMoreThan32BitsCount) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(matmul(int64_t{1} << 30, 64, 8192, DataType::bf16));
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("split", 128);
  const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
  ASSERT_EQ(lowered.steps.size(), 2u);
  EXPECT_EQ(std::get<Launch>(lowered.steps[1]).grid[1], 1u);
  EXPECT_LT(lowered.scratch.at(0), int64_t{128} * (int64_t{1} << 30) * 64 * 4);
}

// One that yields 32 bits; tests/backend/engines/sm90/load/prologue_test.cpp has those that are passed.
TEST(Wgmma, RefusesAPrologueAtItsOp) {
  GraphBuilder g("prologue", Precision::allow_tf32);
  const Tensor a = g.input("a", {64, 64}, DataType::f32);
  const Graph graph = g.finish({g.matmul(g.relu(a, {.name = "relu"}), a)});
  const Support support = test::supports(wgmma_engine(), fusion_of(graph), DeviceInfo::named("H200"));
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "plain-operands");
  EXPECT_EQ(support.refusal->node, "relu");
  EXPECT_EQ(support.refusal->op, 0);
}

TEST(Wgmma, IsChosenForALargeMatmul) {
  const Plan plan =
      build(matmul(4096, 4096, 4096, DataType::bf16), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_TRUE(plan.notes.tensor_cores);
}

TEST(Wgmma, LaunchesWhatTheDeviceHoldsAtOnce) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(matmul(4096, 4096, 4096, DataType::bf16));
  for (const EngineConfig& config : configs(fusion, device)) {
    SCOPED_TRACE(to_string(config));
    const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    const int64_t blocks_per_sm = launch.grid[0] / 132;
    EXPECT_EQ(launch.grid[0], 132u * blocks_per_sm);
    EXPECT_LE((launch.shared_bytes + 1024) * blocks_per_sm, device.shared_per_sm);
    EXPECT_LE(launch.shared_bytes, device.shared_per_block);
    ASSERT_EQ(launch.arguments.maps().size(), 3u);
    EXPECT_EQ(launch.arguments.patches()[0].at % kTensorMapAlignment, 0);
  }
}

TEST(Wgmma, CandidatesAreSettingsOfItsKnobs) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Graph& graph : {matmul(4096, 4096, 4096, DataType::bf16), matmul(16, 8192, 8192, DataType::f16),
                             matmul(64, 576, 100000, DataType::bf16)}) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = test::knobs(wgmma_engine(), fusion, device);
    for (const EngineConfig& config : configs(fusion, device))
      for (const auto& [name, value] : config.knobs) {
        const auto knob = std::ranges::find(knobs, name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name;
        EXPECT_THAT(knob->values, testing::Contains(value)) << name;
      }
  }
}

TEST(Wgmma, LowersEverySettingOfItsKnobs) {
  expect_every_setting_lowers(matmul(300, 520, 1000, DataType::bf16));
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForReductions) {
  for (const Dims& over : {Dims{0}, Dims{1}, Dims{0, 1}}) {
    GraphBuilder g("reduced");
    const Tensor c =
        g.matmul(g.input("a", {300, 1000}, DataType::bf16), g.input("b", {1000, 520}, DataType::bf16));
    g.output(g.reduce(c, ReductionMode::add, over), {.type = DataType::f32});
    expect_every_setting_lowers(g.finish());
  }
}

// matmul + bias + gelu of 512 x 256 x 320.
Fusion fused() {
  GraphBuilder g("fused");
  const Tensor a = g.input("a", {512, 320}, DataType::bf16);
  const Tensor b = g.input("b", {320, 256}, DataType::bf16);
  const Tensor bias = g.input("bias", {1, 256}, DataType::bf16);
  return fusion_of(g.finish({g.gelu(g.add(g.matmul(a, b), bias))}));
}

TEST(Wgmma, TextIsTheGoldenText) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fused();
  const EngineConfig config = test::candidates(wgmma_engine(), fusion, device).front().config;
  EXPECT_EQ(test::generated_text(test::lower(wgmma_engine(), fusion, config, device), 0),
            test::golden_text("sm90/wgmma/contraction"));
}

}  // namespace
}  // namespace fusor
