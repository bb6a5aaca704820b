// Owns the checks of the grouped engine's rules, knobs, candidates and launch; its kernel:
// tests/backend/engines/grouped/compile_test.cpp, its places in shared memory:
// tests/backend/engines/grouped/layout_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/grouped/cases.h"

namespace fusor {
namespace {

using grouped_cases::Case;
using grouped_cases::fusion;
using grouped_cases::graph;
using test::h200;

const EngineConfig kSetting{
    "grouped", 1, {{"pixels", 256}, {"groups", 2}, {"tiles", 2}, {"warps", 4}, {"stages", 2}}};

std::string rule(const Case& c, const DeviceInfo& device = h200()) {
  const Support support = test::supports(grouped_engine(), fusion(c), device);
  return support ? "" : support.refusal->rule;
}

const Launch& launch(const Lowered& lowered) { return std::get<Launch>(lowered.steps.at(0)); }

int64_t config_of(const Case& c, std::string_view name) {
  const Lowered lowered = test::lower(grouped_engine(), fusion(c), kSetting, h200());
  const std::vector<ConfigValue>& values = launch(lowered).source->config;
  const auto found = std::ranges::find(values, name, &ConfigValue::name);
  return found == values.end() ? -1 : found->number();
}

TEST(Grouped, TakesGroupsOf8To48ChannelsOfBothHalfTypes) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
    for (const DataType type : {DataType::f16, DataType::bf16})
      for (const int64_t channels : {8, 16, 24, 32, 40, 48})
        EXPECT_EQ(rule({.in = channels, .out = 24, .pass = pass, .type = type, .fused = true}), "");
}

TEST(Grouped, RefusesOtherNumbersOfChannels) {
  EXPECT_EQ(rule({.in = 4}), "few-channel-groups");
  EXPECT_EQ(rule({.in = 20}), "few-channel-groups");
  EXPECT_EQ(rule({.out = 56}), "few-channel-groups");
  EXPECT_EQ(rule({.groups = 1}), "few-channel-groups");
}

TEST(Grouped, RefusesFilterGradients) { EXPECT_EQ(rule({.pass = ConvPass::wgrad}), "fprop-or-dgrad"); }

TEST(Grouped, RefusesOtherTypesAndPlanes) {
  EXPECT_EQ(rule({.type = DataType::f32}), "plain-half-operands");
  EXPECT_EQ(rule({.layout = Layout::nchw}), "plain-half-operands");
  EXPECT_EQ(rule({.result_layout = Layout::nchw}), "adjacent-channels");
}

TEST(Grouped, RefusesOpsInFrontOfTheImagesAndNamesTheCut) {
  const Support support = test::supports(grouped_engine(), fusion({.prologue = true}), h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "plain-half-operands");
  EXPECT_GE(support.refusal->op, 0);
}

TEST(Grouped, NarrowsFiltersOnTheirWay) {
  EXPECT_EQ(rule({.narrows_filters = true}), "");
  EXPECT_EQ(config_of({.narrows_filters = true}, "b_plain"), 0);
  EXPECT_EQ(config_of({}, "b_plain"), 1);
}

TEST(Grouped, RefusesLargeWindowsAndDilatedGradientsOfStrides) {
  EXPECT_EQ(rule({.in = 8, .window = 7}), "");
  EXPECT_EQ(rule({.in = 48, .window = 7}), "small-window");
  EXPECT_EQ(rule({.in = 8, .window = 9}), "small-window");
  EXPECT_EQ(rule({.stride = 2, .dilation = 2}), "");
  EXPECT_EQ(rule({.stride = 2, .dilation = 2, .pass = ConvPass::dgrad}), "small-window");
  EXPECT_EQ(rule({.spatial = 1, .extent = 300}), "");
  EXPECT_EQ(rule({.spatial = 3, .extent = 9}), "small-window");
}

TEST(Grouped, NeedsTensorCores) {
  DeviceInfo device = h200();
  device.compute_capability = 75;
  EXPECT_EQ(rule({}, device), "sm-80");
}

TEST(Grouped, GradientsOfStridesHaveAPhaseForEveryRemainder) {
  EXPECT_EQ(config_of({.stride = 2}, "column_phases"), 1);
  EXPECT_EQ(config_of({.stride = 2}, "stride"), 2);
  const Case gradient{.stride = 2, .pass = ConvPass::dgrad};
  EXPECT_EQ(config_of(gradient, "column_phases"), 2);
  EXPECT_EQ(config_of(gradient, "stride"), 1);
  EXPECT_EQ(config_of(gradient, "taps"), 2);
}

TEST(Grouped, SharedMemoryHoldsFiltersStagesAndStaging) {
  // 2 groups of 24 outputs x 27 chunks; 9 lines of 30 columns x 7 chunks, twice; 4 warps of 16 x 24 sums.
  const Lowered lowered = test::lower(grouped_engine(), fusion({}), kSetting, h200());
  EXPECT_EQ(launch(lowered).shared_bytes, 2 * 24 * 27 * 16 + 16 + 2 * 9 * 30 * 7 * 16 + 4 * 16 * 24 * 4);
}

TEST(Grouped, EveryCandidateIsASettingOfItsKnobs) {
  const Fusion one = fusion({});
  const std::vector<Knob> knobs = test::knobs(grouped_engine(), one, h200());
  const auto candidates = test::candidates(grouped_engine(), one, h200());
  ASSERT_FALSE(candidates.empty());
  for (const EngineCandidate& candidate : candidates)
    for (size_t i = 0; i < knobs.size(); ++i)
      EXPECT_THAT(knobs[i].values, testing::Contains(candidate.config.knobs.at(i).value));
}

TEST(Grouped, TinyConvolutionsHaveACandidate) {
  EXPECT_FALSE(test::candidates(grouped_engine(),
                                fusion({.groups = 2, .in = 8, .out = 8, .extent = 2, .images = 1}), h200())
                   .empty());
}

TEST(Grouped, IsTheChoiceForGroupsOf24Channels) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad}) {
    const Plan plan =
        build(graph({.groups = 24, .extent = 14, .images = 32, .pass = pass, .fused = true}), h200());
    ASSERT_EQ(plan.fusions.size(), 1u);
    EXPECT_EQ(plan.fusions[0].config.engine, "grouped");
  }
}

TEST(GroupedText, IsTheGoldenText) {
  const Lowered lowered = test::lower(grouped_engine(), fusion({.fused = true}), kSetting, h200());
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("grouped/grouped"));
}

}  // namespace
}  // namespace fusor
