// Owns the checks of the depthwise engine's rules, knobs, candidates and steps; its kernels:
// tests/backend/engines/depthwise/compile_test.cpp, its index arithmetic:
// tests/backend/engines/depthwise/window_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "codegen/text/expr_emitter.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/depthwise/cases.h"
#include "tests/backend/engines/golden_text.h"

namespace fusor {
namespace {

using depthwise_cases::Case;
using depthwise_cases::fusion;
using depthwise_cases::fusion_of;
using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;

using test::h200;

EngineConfig setting(int64_t vector, int64_t strip, std::string_view name, int64_t value) {
  return {"depthwise", 1, {{"vector", vector}, {"strip", strip}, {std::string(name), value}}};
}

std::string rule(const Fusion& fusion, const DeviceInfo& device = h200()) {
  const Support support = test::supports(depthwise_engine(), fusion, device);
  return support ? "" : support.refusal->rule;
}

std::vector<int64_t> values_of(const Fusion& fusion, std::string_view name) {
  const std::vector<Knob> knobs = test::knobs(depthwise_engine(), fusion, h200());
  const auto found = std::ranges::find(knobs, name, &Knob::name);
  return found == knobs.end() ? std::vector<int64_t>{} : found->values;
}

const Launch& launch(const Lowered& lowered, size_t step = 0) {
  return std::get<Launch>(lowered.steps.at(step));
}

int64_t config_of(const Fusion& fusion, std::string_view name,
                  const EngineConfig& config = setting(8, 4, "rows", 1)) {
  const Lowered lowered = test::lower(depthwise_engine(), fusion, config, h200());
  const std::vector<ConfigValue>& values = launch(lowered).source->config;
  const auto found = std::ranges::find(values, name, &ConfigValue::name);
  return found == values.end() ? -1 : found->number();
}

Fusion grouped(int64_t channels_a_group, int64_t multiplier) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 32, 14, 14}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {32 / channels_a_group * multiplier, channels_a_group, 3, 3}, DataType::f16);
  return fusion_of(g.finish({g.conv_fprop(x, w)}));
}

// --- supports ---

TEST(Depthwise, TakesEveryPassRankAndRealTypeSummedInFp32) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (int spatial = 1; spatial <= 3; ++spatial)
      for (const DataType type : {DataType::f16, DataType::bf16, DataType::f32})
        EXPECT_EQ(rule(fusion({.spatial = spatial, .extent = 9, .pass = pass, .type = type, .fused = true})),
                  "");
}

TEST(Depthwise, RefusesOtherAnchorsAndDevices) {
  EXPECT_EQ(rule(direct_cases::matmul(DataType::f16)), "convolution-anchor");
  GraphBuilder g;
  EXPECT_EQ(rule(fusion_of(g.finish({g.relu(g.input("x", {4}, DataType::f32))}))), "convolution-anchor");
  DeviceInfo cpu = h200();
  cpu.kind = DeviceKind::cpu;
  EXPECT_EQ(rule(fusion({}), cpu), "needs-gpu");
}

TEST(Depthwise, RefusesGroupsOfSeveralChannels) {
  EXPECT_EQ(rule(grouped(1, 1)), "");
  EXPECT_EQ(rule(grouped(4, 4)), "one-channel-groups");
  EXPECT_EQ(rule(grouped(1, 2)), "one-channel-groups");
}

TEST(Depthwise, RefusesSumsOfOtherTypes) { EXPECT_EQ(rule(fusion({.type = DataType::f64})), "fp32-sums"); }

TEST(Depthwise, TakesPlanesOfEveryPassRankAndType) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (int spatial = 1; spatial <= 3; ++spatial)
      for (const DataType type : {DataType::f16, DataType::bf16, DataType::f32})
        EXPECT_EQ(rule(fusion({.spatial = spatial,
                               .extent = 9,
                               .pass = pass,
                               .type = type,
                               .layout = Layout::nchw,
                               .fused = true})),
                  pass == ConvPass::wgrad && spatial == 3 ? "marched-window" : "");
}

TEST(Depthwise, RefusesAMixtureOfOrdersAndNamesTheTensor) {
  const Support first = test::supports(
      depthwise_engine(), fusion({.layout = Layout::nchw, .result_layout = Layout::nhwc}), h200());
  ASSERT_FALSE(first);
  EXPECT_EQ(first.refusal->rule, "adjacent-channels");
  EXPECT_EQ(first.refusal->tensor, "first");
  EXPECT_EQ(first.refusal->actual, "stride 784");
  const Support second = test::supports(
      depthwise_engine(), fusion({.layout = Layout::nhwc, .result_layout = Layout::nchw}), h200());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.refusal->tensor, "result");
}

TEST(Depthwise, WeightGradientsOfPlanesAreMadeByMarching) {
  const auto wgrad = [](Case c) {
    c.pass = ConvPass::wgrad;
    c.layout = Layout::nchw;
    return rule(fusion(c));
  };
  EXPECT_EQ(wgrad({.window = 7}), "");
  EXPECT_EQ(wgrad({.stride = 3}), "");
  EXPECT_EQ(wgrad({.window = 9}), "marched-window");
  EXPECT_EQ(wgrad({.stride = 5}), "marched-window");
}

// A result of one pixel lies in any order.
TEST(Depthwise, SinglePixelsFitPlanes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 64, 7, 7}, DataType::f16);
  const Tensor y = g.conv_fprop(x, g.input("w", {64, 1, 7, 7}, DataType::f16));
  EXPECT_EQ(rule(fusion_of(g.finish({g.output(y)}))), "");
}

TEST(Depthwise, RefusesWindowsBeyondSharedMemory) {
  EXPECT_EQ(rule(fusion({.window = 31, .extent = 64})), "");
  EXPECT_EQ(rule(fusion({.window = 41, .extent = 64})), "window-in-shared-memory");
  EXPECT_EQ(rule(fusion({.window = 41, .extent = 64, .pass = ConvPass::wgrad})), "");
}

TEST(Depthwise, RefusesAReductionInTheEpilogue) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 32, 14, 14}, DataType::f16, Layout::nhwc);
  const Tensor y = g.conv_fprop(x, g.input("w", {32, 1, 3, 3}, DataType::f16));
  const Tensor sums = g.reduce(y, ReductionMode::add, {0, 2, 3}, {.name = "sums"});
  EXPECT_EQ(rule(fusion_of(g.finish({g.output(y, {.layout = Layout::nhwc}), sums}))),
            "no-epilogue-reduction");
}

// --- knobs and candidates ---

TEST(Depthwise, VectorsFillSixteenBytesWhereChannelsDo) {
  EXPECT_THAT(values_of(fusion({.channels = 64}), "vector"), ElementsAre(2, 4, 8));
  EXPECT_THAT(values_of(fusion({.channels = 20}), "vector"), ElementsAre(2, 4));
  EXPECT_THAT(values_of(fusion({.channels = 6}), "vector"), ElementsAre(2));
  EXPECT_THAT(values_of(fusion({.channels = 7}), "vector"), ElementsAre(1));
  EXPECT_THAT(values_of(fusion({.channels = 64, .type = DataType::f32}), "vector"), ElementsAre(2, 4));
}

// The most neighbours along a row that rows and strips are multiples of, up to 16 bytes.
TEST(Depthwise, LoadsOfPlanesBeginOnMultiples) {
  const auto numbers = [](Case c, int64_t strip) {
    c.layout = Layout::nchw;
    const Fusion one = fusion(c);
    const EngineConfig config = setting(1, strip, "rows", 28);
    return std::vector<int64_t>{config_of(one, "load", config), config_of(one, "lead", config),
                                config_of(one, "along", config)};
  };
  EXPECT_THAT(numbers({.extent = 56}, 8), ElementsAre(8, 7, 8));
  EXPECT_THAT(numbers({.extent = 56, .type = DataType::f32}, 8), ElementsAre(4, 3, 4));
  EXPECT_THAT(numbers({.extent = 28}, 8), ElementsAre(4, 3, 4));
  EXPECT_THAT(numbers({.window = 5, .extent = 14}, 14), ElementsAre(2, 0, 2));
  EXPECT_THAT(numbers({.extent = 56}, 7), ElementsAre(1, 0, 1));
  EXPECT_THAT(numbers({.extent = 13}, 8), ElementsAre(1, 0, 1));
  EXPECT_THAT(numbers({.stride = 2, .extent = 56}, 4), ElementsAre(8, 7, 4));
  EXPECT_THAT(numbers({.dilation = 2, .extent = 56}, 4), ElementsAre(1, 0, 1));
  EXPECT_THAT(numbers({.extent = 56, .pass = ConvPass::dgrad}, 8), ElementsAre(8, 7, 8));
  EXPECT_THAT(numbers({.stride = 2, .extent = 56, .pass = ConvPass::dgrad}, 8), ElementsAre(4, 3, 8));
  EXPECT_THAT(numbers({.stride = 2, .dilation = 2, .extent = 56, .pass = ConvPass::dgrad}, 4),
              ElementsAre(1, 0, 1));
  EXPECT_THAT(numbers({.extent = 56, .pass = ConvPass::wgrad}, 4), ElementsAre(4, 3, 4));
}

TEST(Depthwise, RowsAreSharedWhereWindowsOverlap) {
  EXPECT_THAT(values_of(fusion({}), "rows"), IsSupersetOf({1, 2, 14, 28}));
  EXPECT_THAT(values_of(fusion({.pass = ConvPass::wgrad}), "rows"), IsSupersetOf({1, 14, 28}));
  EXPECT_THAT(values_of(fusion({.pass = ConvPass::wgrad}), "rows"), Not(Contains(2)));
  EXPECT_THAT(values_of(fusion({.stride = 3}), "rows"), ElementsAre(1));
  EXPECT_THAT(values_of(fusion({.spatial = 1}), "rows"), ElementsAre(1));
  EXPECT_THAT(values_of(fusion({.spatial = 3, .extent = 9}), "rows"), ElementsAre(1, 2)) << "several planes";
  EXPECT_THAT(values_of(fusion({.window = 9}), "rows"), ElementsAre(1, 2)) << "rows in pieces";
}

TEST(Depthwise, CandidatesAreFewAndStandInTheKnobs) {
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (const int64_t channels : {1, 12, 64, 672})
        for (const int64_t window : {1, 3, 5, 9})
          for (const int64_t stride : {1, 2, 5}) {
            const Fusion one = fusion({.channels = channels,
                                       .window = window,
                                       .stride = stride,
                                       .pass = pass,
                                       .layout = layout,
                                       .fused = true});
            if (!rule(one).empty()) continue;
            const std::vector<Knob> knobs = test::knobs(depthwise_engine(), one, h200());
            const auto candidates = test::candidates(depthwise_engine(), one, h200());
            EXPECT_FALSE(candidates.empty());
            EXPECT_LE(candidates.size(), 20u);
            for (const EngineCandidate& candidate : candidates)
              for (const Knob& knob : knobs)
                EXPECT_THAT(knob.values, Contains(candidate.config.knob(knob.name, -1))) << knob.name;
          }
}

TEST(Depthwise, IsChosenForDepthwiseConvolutions) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const Case& c : {Case{.channels = 144, .extent = 56, .images = 128},
                          Case{.channels = 672, .window = 5, .extent = 14, .images = 128},
                          Case{.spatial = 1, .channels = 4096, .window = 4, .extent = 4096, .images = 8}}) {
      Case with_pass = c;
      with_pass.pass = pass;
      const Plan plan = build(depthwise_cases::graph(with_pass), h200(), {.compile = false});
      ASSERT_EQ(plan.fusions.size(), 1u);
      EXPECT_EQ(plan.fusions[0].config.engine, "depthwise") << to_string(pass);
    }
}

TEST(Depthwise, IsChosenForPlanes) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const Case& c : {Case{.channels = 144, .extent = 56, .images = 64},
                          Case{.channels = 240, .window = 5, .extent = 28, .images = 64},
                          Case{.channels = 480, .window = 5, .extent = 14, .images = 1}}) {
      Case with_pass = c;
      with_pass.pass = pass;
      with_pass.layout = Layout::nchw;
      const Plan plan = build(depthwise_cases::graph(with_pass), h200(), {.compile = false});
      ASSERT_EQ(plan.fusions.size(), 1u);
      EXPECT_EQ(plan.fusions[0].config.engine, "depthwise") << to_string(pass) << " " << c.extent;
    }
}

// Settings with two lanes a plane, loads of single pixels or long strips are dearer than their work.
TEST(Depthwise, StripsOfPlanesLieCloseTogether) {
  const auto chosen = [](Case c, std::string_view knob) {
    c.images = 64;
    c.layout = Layout::nchw;
    const Plan plan =
        build(depthwise_cases::graph(c), h200(), {.forbid = {"depthwise_repacked"}, .compile = false});
    return plan.fusions.at(0).config.knob(knob, 0);
  };
  const Case small{.channels = 384, .window = 7, .extent = 14};
  EXPECT_EQ(chosen(small, "strip"), 4);
  EXPECT_EQ(chosen(small, "rows"), 14);
  const Case large{.channels = 96, .window = 7, .extent = 56};
  EXPECT_EQ(chosen(large, "strip"), 8);
  EXPECT_EQ(chosen(large, "rows"), 56);
}

TEST(Depthwise, WorkCountsEachOperandOnce) {
  // x and y of 4 x 64 x 28 x 28, w of 64 x 9, two bytes each.
  const double bytes = 2.0 * (2 * 4 * 64 * 28 * 28 + 64 * 9);
  for (const EngineCandidate& candidate : test::candidates(depthwise_engine(), fusion({}), h200())) {
    EXPECT_GE(candidate.work.dram_bytes, bytes);
    EXPECT_LE(candidate.work.dram_bytes, 1.25 * bytes);
    EXPECT_GE(candidate.work.fp32_flops, 2.0 * 4 * 64 * 28 * 28 * 9);
  }
}

// --- lower ---

TEST(Depthwise, StructureDoesNotDependOnExtents) {
  const auto hash = [](const Case& c) {
    return structure_hash(
        *launch(test::lower(depthwise_engine(), fusion(c), setting(8, 4, "rows", 1), h200())).source);
  };
  EXPECT_EQ(hash({.channels = 144, .extent = 56, .images = 128}), hash({.channels = 64, .extent = 17}));
  EXPECT_NE(hash({.window = 3}), hash({.window = 5}));
}

TEST(Depthwise, WindowsAreUnrolledUpToSevenTaps) {
  EXPECT_EQ(config_of(fusion({.window = 7}), "taps"), 7);
  EXPECT_EQ(config_of(fusion({.window = 7}), "whole_rows"), 1);
  EXPECT_EQ(config_of(fusion({.window = 9}), "taps"), 5);
  EXPECT_EQ(config_of(fusion({.window = 9}), "whole_rows"), 0);
}

TEST(Depthwise, NeighboursShareColumnsWhateverTheDilation) {
  EXPECT_EQ(config_of(fusion({}), "spread"), 1);
  EXPECT_EQ(config_of(fusion({.dilation = 3}), "spread"), 1);
  EXPECT_EQ(config_of(fusion({.stride = 2}), "spread"), 2);
  EXPECT_EQ(config_of(fusion({.stride = 2, .dilation = 2}), "spread"), 1);
  EXPECT_EQ(config_of(fusion({.stride = 5}), "spread"), 3) << "no column is shared";
  const Fusion strided_gradient = fusion({.stride = 2, .pass = ConvPass::dgrad});
  EXPECT_EQ(config_of(strided_gradient, "spread"), 1);
  EXPECT_EQ(config_of(strided_gradient, "taps"), 2) << "of three, two at most lead to an output";
}

TEST(Depthwise, RunsLieAlongTheWidestAxisOfTheWindow) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 16, 500, 1}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {16, 1, 4, 1}, DataType::f16);
  const Tensor y = g.conv_fprop(x, w, {.pre_padding = {3, 0}, .post_padding = {0, 0}});
  EXPECT_EQ(config_of(fusion_of(g.finish({g.output(y, {.layout = Layout::nhwc})})), "taps"), 4);
}

TEST(Depthwise, WeightGradientsAreSumsOfPartsInASecondLaunch) {
  const Fusion one = fusion({.pass = ConvPass::wgrad});
  const Lowered lowered = test::lower(depthwise_engine(), one, setting(8, 4, "split", 4), h200());
  ASSERT_EQ(lowered.steps.size(), 2u);
  EXPECT_EQ(launch(lowered, 0).entry, "depthwise_wgrad");
  EXPECT_EQ(launch(lowered, 1).entry, "depthwise_finish");
  // 8 vectors by 3 rows of the window by 5 lanes.
  EXPECT_EQ(launch(lowered, 0).block[0], 8u * 3 * 5);
  EXPECT_THAT(lowered.scratch, ElementsAre(4 * 5 * 64 * 9 * 4));
}

// --- weight gradients on tensor cores ---

TEST(Depthwise, TensorCoresAreOfferedWhereGroupsOfEightChannelsAreLoads) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad}) {
    const auto offers = [&](Case c) {
      c.pass = pass;
      return values_of(fusion(c), "mma");
    };
    for (const DataType type : {DataType::f16, DataType::bf16})
      for (const int64_t window : {3, 5, 7})
        EXPECT_THAT(offers({.channels = 72, .window = window, .type = type}), ElementsAre(0, 1));
    EXPECT_THAT(offers({.spatial = 1, .channels = 64, .window = 7}), ElementsAre()) << "few taps";
    EXPECT_THAT(offers({.channels = 12, .window = 7}), ElementsAre());
    EXPECT_THAT(offers({.window = 9}), ElementsAre()) << "rows in pieces";
    EXPECT_THAT(offers({.window = 7, .stride = 2}), ElementsAre());
    EXPECT_THAT(offers({.window = 7, .dilation = 2}), ElementsAre());
    EXPECT_THAT(offers({.window = 7, .type = DataType::f32}), ElementsAre());
    EXPECT_THAT(offers({.window = 7, .layout = Layout::nchw}), ElementsAre());
    EXPECT_THAT(offers({.window = 7, .fused = true}), ElementsAre()) << "ops before the products";
    DeviceInfo turing = h200();
    turing.compute_capability = 75;
    const Fusion one = fusion({.window = 7, .pass = pass});
    EXPECT_THAT(test::knobs(depthwise_engine(), one, turing),
                Not(Contains(testing::Field(&Knob::name, std::string("mma")))));
  }
}

const EngineConfig kOnTensorCores{"depthwise", 1, {{"vector", 8}, {"strip", 8}, {"rows", 1}, {"mma", 1}}};

// A block has one run of a part of an image, or few images of few rows: all of the device has work, and few
// rows are multiplied twice.
TEST(Depthwise, TensorCoresMarchDownPartsOfImages) {
  const auto blocks = [](Case c) {
    c.window = 7;
    const Lowered lowered = test::lower(depthwise_engine(), fusion(c), kOnTensorCores, h200());
    EXPECT_EQ(lowered.steps.size(), 1u);
    EXPECT_EQ(launch(lowered).entry, "depthwise_mma_march");
    return launch(lowered).grid[0];
  };
  EXPECT_EQ(blocks({.channels = 96, .extent = 56, .images = 32}), 3u * 112u) << "whole images";
  EXPECT_EQ(blocks({.channels = 768, .extent = 7, .images = 32}), 24u * 16u);
  EXPECT_GT(blocks({.channels = 96, .extent = 56, .images = 4}), 132u) << "parts of images";
}

TEST(Depthwise, TensorCoresTakeFiltersInTheOrderOfThePass) {
  const auto mirrored = [](ConvPass pass) {
    return config_of(fusion({.window = 7, .pass = pass}), "mirrored", kOnTensorCores);
  };
  EXPECT_EQ(mirrored(ConvPass::fprop), 0);
  EXPECT_EQ(mirrored(ConvPass::dgrad), 1);
}

TEST(Depthwise, TensorCoresTakeOpsBehindTheProducts) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 64, 14, 14}, DataType::bf16, Layout::nhwc);
  const Tensor y = g.conv_fprop(x, g.input("w", {64, 1, 7, 7}, DataType::bf16), {.padding = {3, 3}});
  const Tensor sum = g.add(y, g.input("residual", {2, 64, 14, 14}, DataType::bf16, Layout::nhwc));
  const Fusion one = fusion_of(
      g.finish({g.output(y, {.layout = Layout::nhwc}), g.output(g.relu(sum), {.layout = Layout::nhwc})}));
  EXPECT_THAT(values_of(one, "mma"), ElementsAre(0, 1));
  const Lowered lowered = test::lower(depthwise_engine(), one, kOnTensorCores, h200());
  EXPECT_EQ(launch(lowered).entry, "depthwise_mma_march");
}

EngineConfig on_tensor_cores(int64_t split) {
  return {"depthwise", 1, {{"vector", 8}, {"strip", 8}, {"rows", 1}, {"split", split}, {"mma", 1}}};
}

// Four groups of 8 channels a block, where they are not much more than there are; one part a lane.
TEST(Depthwise, TensorCoresTakeGroupsOfChannelsByLanes) {
  const auto numbers = [](int64_t channels) {
    const Fusion one = fusion({.channels = channels, .window = 7, .pass = ConvPass::wgrad});
    const Lowered lowered = test::lower(depthwise_engine(), one, on_tensor_cores(5), h200());
    EXPECT_EQ(launch(lowered, 0).entry, "depthwise_mma_wgrad");
    EXPECT_EQ(launch(lowered, 1).entry, "depthwise_finish");
    const int64_t groups = config_of(one, "groups", on_tensor_cores(5));
    EXPECT_THAT(lowered.scratch, ElementsAre(5 * (4 / groups) * 49 * channels * 4));
    return std::vector<int64_t>{groups, launch(lowered, 0).grid[0]};
  };
  EXPECT_THAT(numbers(96), ElementsAre(4, 3 * 5));
  EXPECT_THAT(numbers(120), ElementsAre(4, 4 * 5));
  EXPECT_THAT(numbers(72), ElementsAre(2, 5 * 5)) << "a quarter of three blocks of four would be idle";
  EXPECT_THAT(numbers(16), ElementsAre(2, 5));
  EXPECT_THAT(numbers(8), ElementsAre(1, 5));
}

TEST(Depthwise, TensorCoresAreTheChoiceForLargeWindows) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const int64_t extent : {7, 14, 28, 56}) {
      const Case c{.channels = 96 * 56 / extent,
                   .window = 7,
                   .extent = extent,
                   .images = 32,
                   .pass = pass,
                   .type = DataType::bf16};
      const Plan plan = build(depthwise_cases::graph(c), h200(), {.compile = false});
      EXPECT_EQ(plan.fusions.at(0).config.knob("mma", 0), 1) << to_string(pass) << " " << extent;
    }
}

// A marching block's lanes add up their sums: one part each.
TEST(Depthwise, MarchingTakesEachLineOnce) {
  const Lowered forward = test::lower(depthwise_engine(), fusion({}), setting(4, 7, "rows", 28), h200());
  EXPECT_EQ(launch(forward).entry, "depthwise_march");
  EXPECT_EQ(config_of(fusion({}), "lines", setting(4, 7, "rows", 28)), 3);
  EXPECT_EQ(config_of(fusion({.stride = 2}), "advance", setting(4, 7, "rows", 14)), 2);
  EXPECT_EQ(config_of(fusion({}), "tails", setting(4, 7, "rows", 28)), 0);
  EXPECT_EQ(config_of(fusion({}), "tails", setting(4, 8, "rows", 28)), 1);
  EXPECT_EQ(config_of(fusion({}), "a_plain", setting(4, 7, "rows", 28)), 1);
  EXPECT_EQ(config_of(fusion({.fused = true}), "a_plain", setting(4, 7, "rows", 28)), 0);
  const Fusion gradient = fusion({.pass = ConvPass::wgrad});
  EngineConfig marching = setting(4, 4, "rows", 28);
  marching.knobs.push_back({"split", 3});
  const Lowered backward = test::lower(depthwise_engine(), gradient, marching, h200());
  EXPECT_EQ(launch(backward, 0).entry, "depthwise_march_wgrad");
  EXPECT_THAT(backward.scratch, ElementsAre(3 * 64 * 9 * 4));
}

TEST(Depthwise, MarchingIsTheChoiceForLargeImages) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad}) {
    const Plan plan =
        build(depthwise_cases::graph(
                  {.channels = 144, .extent = 56, .images = 128, .pass = pass, .type = DataType::bf16}),
              h200(), {.compile = false});
    ASSERT_EQ(plan.fusions.size(), 1u);
    EXPECT_GT(plan.fusions[0].config.knob("rows", 0), 2) << to_string(pass);
  }
}

// Strips of whole images, and as many channels as there are threads for.
TEST(Depthwise, LanesOfPlanesAreStripsOfWholeImages) {
  const auto threads = [](Case c, int64_t strip, int64_t rows) {
    c.layout = Layout::nchw;
    const Lowered lowered =
        test::lower(depthwise_engine(), fusion(c), setting(1, strip, "rows", rows), h200());
    return launch(lowered).block[0];
  };
  EXPECT_EQ(threads({.extent = 28}, 7, 14), 128u) << "8 lanes, 16 channels";
  EXPECT_EQ(threads({.extent = 14}, 14, 5), 126u) << "3 lanes, 42 channels";
  EXPECT_EQ(threads({.channels = 2, .extent = 56}, 8, 14), 128u) << "64 lanes: idle threads would cost more";
}

TEST(Depthwise, GuardsTheAlignmentOfVectors) {
  const Fusion one = fusion({});
  const Lowered lowered = test::lower(depthwise_engine(), one, setting(8, 4, "rows", 1), h200());
  for (const Guard& guard : lowered.guards)
    EXPECT_EQ(guard.alignment, one.name_of(guard.operand) == "second" ? 2 : 16) << one.name_of(guard.operand);
  const Fusion planes = fusion({.extent = 56, .layout = Layout::nchw});
  const Lowered of_planes = test::lower(depthwise_engine(), planes, setting(1, 4, "rows", 28), h200());
  for (const Guard& guard : of_planes.guards)
    EXPECT_EQ(guard.alignment, planes.name_of(guard.operand) == "second" ? 2 : 8)
        << planes.name_of(guard.operand);
}

TEST(Depthwise, TakesWideIndicesOnlyWhereNumbersNeedThem) {
  EXPECT_EQ(config_of(fusion({.channels = 64, .extent = 56, .images = 128}), "index_bits"), 32);
  EXPECT_EQ(config_of(fusion({.channels = 64, .extent = 1024, .images = 64}), "index_bits"), 64);
}

// --- texts ---

Fusion conv_bias_relu(Layout layout = Layout::nhwc) {
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {128, 144, 56, 56}, DataType::f16, layout);
  const Tensor w = g.input("w", {144, 1, 3, 3}, DataType::f16);
  const Tensor b = g.input("b", {1, 144, 1, 1}, DataType::f16);
  const Tensor y = g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b));
  return fusion_of(g.finish({g.output(y, {.layout = layout})}));
}

TEST(DepthwiseText, IsTheGoldenText) {
  const Lowered lowered = test::lower(depthwise_engine(), conv_bias_relu(), setting(8, 4, "rows", 1), h200());
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("depthwise/strips"));
}

TEST(DepthwiseText, OfMarchingKernelsIsTheGoldenText) {
  const Lowered forward =
      test::lower(depthwise_engine(), conv_bias_relu(), setting(4, 8, "rows", 56), h200());
  EXPECT_EQ(test::generated_text(forward, 0), test::golden_text("depthwise/march"));
  const Fusion one = fusion({.channels = 144, .extent = 56, .images = 128, .pass = ConvPass::wgrad});
  const Lowered backward = test::lower(depthwise_engine(), one, setting(4, 4, "rows", 56), h200());
  EXPECT_EQ(test::generated_text(backward, 0), test::golden_text("depthwise/march_wgrad"));
}

TEST(DepthwiseText, OfPlanesIsTheGoldenText) {
  const auto text = [](const Fusion& one, const EngineConfig& config) {
    return test::generated_text(test::lower(depthwise_engine(), one, config, h200()), 0);
  };
  const Fusion forward = conv_bias_relu(Layout::nchw);
  EXPECT_EQ(text(forward, setting(1, 8, "rows", 1)), test::golden_text("depthwise/strips.planes"));
  EXPECT_EQ(text(forward, setting(1, 8, "rows", 56)), test::golden_text("depthwise/march.planes"));
  const Fusion backward =
      fusion({.channels = 144, .extent = 56, .images = 128, .pass = ConvPass::wgrad, .layout = Layout::nchw});
  EXPECT_EQ(text(backward, setting(1, 4, "rows", 56)), test::golden_text("depthwise/march_wgrad.planes"));
}

TEST(DepthwiseText, OnTensorCoresIsTheGoldenText) {
  const Fusion one =
      fusion({.channels = 96, .window = 7, .extent = 56, .images = 32, .pass = ConvPass::wgrad});
  const Lowered lowered = test::lower(depthwise_engine(), one, on_tensor_cores(0), h200());
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("depthwise/mma_wgrad"));
  const Fusion forward = fusion({.channels = 96, .window = 7, .extent = 56, .images = 32});
  EXPECT_EQ(test::generated_text(test::lower(depthwise_engine(), forward, kOnTensorCores, h200()), 0),
            test::golden_text("depthwise/mma_march"));
}

TEST(DepthwiseText, OfBothKernelsOfAWeightGradientIsTheGoldenText) {
  const Fusion one = fusion({.channels = 144, .extent = 56, .images = 128, .pass = ConvPass::wgrad});
  const Lowered lowered = test::lower(depthwise_engine(), one, setting(8, 4, "split", 128), h200());
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("depthwise/wgrad"));
  EXPECT_EQ(test::generated_text(lowered, 1), test::golden_text("depthwise/finish"));
}

}  // namespace
}  // namespace fusor
