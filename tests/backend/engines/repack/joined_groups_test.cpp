// Owns the tests of how the wgmma_repacked engine joins the groups of a convolution into blocks of channels
// that need no GPU: how many, the filter's zeros, and that the parts are the whole.
#include <gmock/gmock.h>

#include "backend/engines/list.h"
#include "backend/engines/repack/rewrites/pack_layouts.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/repack/cases.h"

namespace fusor {
namespace {

using testing::ElementsAre;

using namespace repacked;

constexpr ConvPass kPasses[] = {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad};

TEST(WgmmaRepacked, JoinedGroupsAgreeWithTheWhole) {
  for (const ConvPass pass : kPasses)
    for (const Layouts& layouts : {kChannelsLast, Layouts{}}) {
      const size_t ways = pass == ConvPass::wgrad || layouts.x == Layout::nhwc ? 1 : 3;
      for (const int64_t joined : {2, 3, 6})
        expect_parts_agree_with_the_whole(grouped(pass, {2, 12, 7, 6}, {18, 2, 3, 3}, layouts), ways, joined);
    }
}

TEST(WgmmaRepacked, JoinsGroupsIntoBlocksOrAltogether) {
  const auto joined = [](const Dims& x, const Dims& w, ConvPass pass = ConvPass::fprop) {
    const Fusion fusion = fusion_of(grouped(pass, x, w, kChannelsLast));
    return joined_groups(fusion, contraction_of(fusion).value(), 64);
  };
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 4, 3, 3}), 16);
  EXPECT_EQ(joined({2, 128, 9, 9}, {256, 4, 3, 3}), 16);
  EXPECT_EQ(joined({2, 128, 9, 9}, {256, 4, 3, 3}, ConvPass::dgrad), 8) << "of 8 output channels each";
  EXPECT_EQ(joined({2, 32, 9, 9}, {32, 4, 3, 3}), 8) << "all of them are less than a block";
  EXPECT_EQ(joined({2, 96, 9, 9}, {96, 8, 3, 3}), 12) << "no whole blocks";
  EXPECT_EQ(joined({2, 192, 9, 9}, {192, 24, 3, 3}), 8);
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 64, 3, 3}), 1);
  EXPECT_EQ(joined({2, 40, 9, 9}, {40, 40, 3, 3}), 1);
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 1, 3, 3}), 1) << "depthwise";
}

// Blocks of a filter's gradient need not be full: as many groups as ask for the fewest lines.
TEST(WgmmaRepacked, JoinsFewGroupsOfAFiltersGradient) {
  const auto joined = [](const Dims& x, const Dims& w) {
    const Fusion fusion = fusion_of(grouped(ConvPass::wgrad, x, w, kChannelsLast));
    return joined_groups(fusion, contraction_of(fusion).value(), 64);
  };
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 4, 3, 3}), 16);
  EXPECT_EQ(joined({2, 288, 9, 9}, {288, 16, 3, 3}), 3) << "18 of 16 channels make up no whole blocks";
  EXPECT_EQ(joined({2, 672, 9, 9}, {672, 16, 3, 3}), 3);
  EXPECT_EQ(joined({2, 160, 9, 9}, {160, 16, 3, 3}), 5);
  EXPECT_EQ(joined({2, 48, 9, 9}, {48, 12, 3, 3}), 4) << "three of 12 would not begin on 16 bytes";
}

TEST(WgmmaRepacked, JoinedGroupsFillTheFilterWithZerosFirst) {
  const Graph graph = grouped(ConvPass::fprop, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast);
  EXPECT_EQ(rule(graph), "");
  const Lowered parts = lowered(graph, 0);
  ASSERT_EQ(parts.steps.size(), 3u);
  const Fill& fill = std::get<Fill>(parts.steps[0]);
  EXPECT_EQ(fill.scratch, 0);
  EXPECT_EQ(fill.bytes, 128 * 9 * 64 * 2);
  EXPECT_EQ(parts.scratch.at(0), fill.bytes);
  EXPECT_THAT(pointers(parts, 1), ElementsAre(std::pair(Kind::operand, 1), std::pair(Kind::scratch, 0)));
  EXPECT_EQ(std::get<Launch>(parts.steps[2]).entry, "wgmma_contraction");
  const Lowered wgrad = lowered(grouped(ConvPass::wgrad, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast), 2);
  EXPECT_THAT(entries(wgrad), ElementsAre("wgmma_contraction", "elementwise"));
  EXPECT_EQ(wgrad.scratch.at(0), 128 * 9 * 64 * 4);
}

TEST(WgmmaRepacked, ZerosOfJoinedGroupsArePriced) {
  const Fusion fusion =
      fusion_of(grouped(ConvPass::fprop, {128, 128, 56, 56}, {128, 4, 3, 3}, kChannelsLast));
  const double dense = 2.0 * 128 * 56 * 56 * 128 * 64 * 9;
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
    EXPECT_GE(candidate.work.tensor_flops, dense);
    EXPECT_EQ(candidate.work.fills, 1);
    EXPECT_LT(candidate.work.serial_dram_bytes, 1e6);
  }
}

TEST(WgmmaRepacked, EveryKernelOfJoinedGroupsCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const ConvPass pass : kPasses)
    test::add_kernels(to_string(pass).data(),
                      lowered(grouped(pass, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast),
                              pass == ConvPass::wgrad ? 2 : 0),
                      kernels);
  test::add_kernels("wgrad of groups that fill no block",
                    lowered(grouped(ConvPass::wgrad, {2, 288, 9, 9}, {288, 16, 3, 3}, kChannelsLast), 2),
                    kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
