// Owns the tests of stride phases: a wgrad of strides, or in planes, as one of strides 1.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/repack/rewrites/split_phases.h"
#include "backend/engines/repack/stride_phases.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked;

// Odd extents, padding that differs, strides of 1 to 4, rows that no window meets, dilation, flipped taps,
// groups, one and three spatial axes.
const FewChannels kStrided[] = {
    {{2, 3, 16, 16}, {8, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 15, 17}, {9, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{1, 5, 9, 12}, {8, 5, 3, 4}, {.padding = {1, 1}, .stride = {3, 2}}},
    {{2, 3, 12, 19}, {8, 3, 4, 4}, {.stride = {4, 4}}},
    {{1, 3, 14, 9}, {8, 3, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{1, 3, 11, 16}, {8, 3, 3, 3}, {.padding = {1, 4}, .stride = {1, 2}, .dilation = {2, 3}}},
    {{2, 3, 12, 10}, {8, 3, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 6, 12, 10}, {8, 3, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 2, 29}, {8, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 5, 8, 7}, {8, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
};

TEST(WgmmaRepacked, StridePhasesAgreeWithTheWhole) {
  for (const FewChannels& c : kStrided)
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      for (const bool fused : {false, true})
        for (const bool packed : {false, true}) {
          const Graph graph = strided_wgrad(c, layout, fused);
          const Fusion fusion = fusion_of(graph);
          const Contraction view = contraction_of(fusion).value();
          ASSERT_TRUE(splits_phases(fusion, view)) << to_string(c.x) << " * " << to_string(c.w);
          const Repacked repacked = split_phases(fusion, view, packed);
          ASSERT_TRUE(contraction_of(repacked.core));
          EXPECT_TRUE(contraction_of(repacked.core)->has_unit_stride());
          EXPECT_TRUE(!packed || test::supports(wgmma_engine(), repacked.core, h200())) << to_string(c.x);
          const HostTensors whole(graph), parts(graph);
          whole.run(fusion, Reading::oracle);
          run(repacked, parts);
          expect_same_bytes(
              graph, parts, whole,
              fmt::format("{} * {} fused {} packed {}", to_string(c.x), to_string(c.w), fused, packed));
        }
}

// 7 taps of stride 2 from 3 before on: remainder 0 meets taps 1, 3, 5, remainder 1 taps 0, 2, 4, 6.
TEST(WgmmaRepacked, StridePhasesShareAWindow) {
  const Contraction view =
      contraction_of(fusion_of(strided_wgrad(kStemForward, Layout::nchw, false))).value();
  const StridePhases phases = stride_phases(view).value();
  EXPECT_EQ(phases.count, 2);
  EXPECT_EQ(phases.channels(), 14) << "rows of 2 remainders, columns of 7 taps";
  const PhaseAxis& rows = phases.axes.at(0);
  EXPECT_EQ(rows.window, 4);
  EXPECT_EQ(rows.pre_padding, 2);
  EXPECT_EQ(rows.post_padding, 1);
  EXPECT_EQ(rows.phases.at(0).first, 1);
  EXPECT_EQ(rows.phases.at(0).count, 3);
  EXPECT_EQ(rows.phases.at(0).first_of_window, 1);
  EXPECT_EQ(rows.phases.at(1).first, 0);
  EXPECT_EQ(rows.phases.at(1).count, 4);
  EXPECT_EQ(rows.phases.at(1).first_of_window, 0);
  EXPECT_EQ(phases.axes.at(1).window, 1);
  EXPECT_EQ(phases.taps.at(0).first_output, 2) << "3 columns of padding";
  EXPECT_EQ(phases.taps.at(0).first_input, 1);
  EXPECT_EQ(phases.taps.at(0).outputs, 110);
  EXPECT_EQ(phases.taps.at(6).first_output, 0);
  EXPECT_EQ(phases.taps.at(6).first_input, 3);
  EXPECT_EQ(phases.taps.at(6).outputs, 111);
}

TEST(WgmmaRepacked, SplitsPhasesOnlyOfStridesThatTapsMeet) {
  const auto splits = [](const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    return splits_phases(fusion, contraction_of(fusion).value());
  };
  const auto plain = [](const FewChannels& c) { return strided_wgrad(c, Layout::nchw, false); };
  EXPECT_TRUE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 3}, {.stride = {2, 1}}})));
  EXPECT_TRUE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 3}}))) << "taps along the last axis";
  EXPECT_FALSE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 1}}))) << "neither those nor strides";
  EXPECT_FALSE(splits(plain({{2, 8, 9, 9}, {8, 8, 1, 1}, {.stride = {2, 2}}}))) << "one phase of four is met";
  EXPECT_FALSE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 3}, {.stride = {2, 2}, .dilation = {2, 2}}})));
  EXPECT_FALSE(splits(plain({{2, 3, 40, 40}, {8, 3, 17, 5}, {.stride = {17, 5}}}))) << "17 phases";
  EXPECT_FALSE(splits(few_channels(kStemForward, Layout::nchw, false)));
}

TEST(WgmmaRepacked, PriceSplitsPhasesOfFirstLayers) {
  for (const bool fused : {false, true}) {
    const Graph graph = strided_wgrad(kStemForward, Layout::nchw, fused);
    const Plan plan = build(graph, h200(), {.compile = false});
    const EngineConfig& config = plan.fusions.at(0).config;
    EXPECT_EQ(config.engine, "wgmma_repacked");
    EXPECT_EQ(config.knob("phases", 0), 1);
    const Lowered parts = test::lower(wgmma_repacked_engine(), fusion_of(graph), config, h200());
    EXPECT_EQ(parts.scratch.at(0), int64_t{128} * 42 * 112 * 112 * 4)
        << "the output gradient is read as it is";
    EXPECT_EQ(std::get<Launch>(parts.steps.at(8)).entry, "wgmma_contraction") << "a fill and a copy a tap";
  }
}

TEST(WgmmaRepacked, EveryKernelOfStridePhasesCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const FewChannels& c :
       {FewChannels{{2, 3, 32, 64}, {64, 3, 7, 7}, kStemForward.options}, kStrided[1]}) {
    const Fusion fusion = fusion_of(strided_wgrad(c, Layout::nchw, true));
    int taken = 0;
    for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200()))
      if (candidate.config.knob("phases", 0) != 0 && taken++ < 3)
        test::add_kernels(to_string(candidate.config),
                          test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200()), kernels);
    EXPECT_GT(taken, 0);
  }
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
