// Owns the tests of joined pixels: results of few channels as blocks of pixels.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/repack/joined_pixels.h"
#include "backend/engines/repack/rewrites/join_pixels.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked;
using testing::ElementsAre;

const FewResults kFewResults[] = {
    {ConvPass::dgrad, {2, 3, 16, 16}, {8, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {ConvPass::dgrad, {2, 3, 15, 17}, {9, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {ConvPass::dgrad, {1, 2, 13, 11}, {8, 2, 2, 1}, {.stride = {3, 3}}},
    {ConvPass::dgrad,
     {1, 1, 14, 9},
     {8, 1, 5, 4},
     {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {ConvPass::dgrad, {2, 3, 9, 8}, {8, 3, 3, 3}, {.padding = {1, 1}}},
    {ConvPass::dgrad, {1, 3, 8, 8}, {8, 3, 4, 4}, {.stride = {4, 4}}},
    {ConvPass::dgrad,
     {2, 3, 12, 10},
     {8, 3, 5, 5},
     {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {ConvPass::dgrad, {2, 2, 29}, {8, 2, 5}, {.padding = {2}, .stride = {2}}},
    {ConvPass::dgrad, {1, 2, 5, 8, 7}, {8, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
    {ConvPass::fprop, {2, 8, 9, 11}, {3, 8, 3, 3}, {.padding = {1, 1}}},
    {ConvPass::fprop, {1, 9, 14, 13}, {2, 9, 4, 3}, {.padding = {1, 2}, .stride = {2, 3}}},
    {ConvPass::fprop, {1, 8, 12, 9}, {1, 8, 3, 3}, {.padding = {1, 1}, .mode = ConvMode::convolution}},
};

TEST(WgmmaRepacked, JoinedPixelsAgreeWithTheWhole) {
  for (const FewResults& c : kFewResults)
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      for (const bool fused : {false, true}) {
        const Graph graph = few_results(c, layout, fused);
        const Fusion fusion = fusion_of(graph);
        const Contraction view = contraction_of(fusion).value();
        const HostTensors whole(graph);
        whole.run(fusion, Reading::oracle);
        int joined = 0;
        for (const int64_t pixels : {1, 2, 4, 6}) {
          const auto way = result_path_of_pixels(fusion, view, pixels);
          if (!way) continue;
          ++joined;
          EXPECT_EQ(*way, fused ? ResultPath::finished : ResultPath::copied);
          const Repacked repacked = join_pixels(fusion, view, pixels, layout == Layout::nchw, *way);
          EXPECT_TRUE(contraction_of(repacked.core));
          const HostTensors parts(graph);
          run(repacked, parts);
          expect_same_bytes(
              graph, parts, whole,
              fmt::format("{} * {} pixels {} fused {}", to_string(c.x), to_string(c.w), pixels, fused));
        }
        EXPECT_GE(joined, 2);
      }
}

// Both operands are packed as one type, whichever is packed first.
TEST(WgmmaRepacked, JoinedPixelsOfBytesAgreeWithTheWhole) {
  for (const DataType type : {DataType::i8, DataType::f8_e4m3})
    for (const Precision precision : {Precision::exact, Precision::allow_short_sums}) {
      GraphBuilder g("bytes", precision);
      const Tensor dy = g.input("dy", {2, 20, 6, 5}, type), w = g.input("w", {20, 3, 3, 3}, type);
      const Tensor dx = g.conv_dgrad(dy, w, {2, 3, 11, 10}, {.padding = {1, 1}, .stride = {2, 2}});
      g.output(dx, {.type = type == DataType::i8 ? DataType::i32 : DataType::bf16});
      const Graph graph = g.finish();
      const Fusion fusion = fusion_of(graph);
      const Contraction view = contraction_of(fusion).value();
      const Repacked repacked = join_pixels(fusion, view, 2, true, ResultPath::copied);
      EXPECT_EQ(operand_site(repacked.core, 0, 0).nodes[0].type,
                operand_site(repacked.core, 0, 1).nodes[0].type);
      EXPECT_TRUE(test::supports(wgmma_engine(), repacked.core, h200()));
      const HostTensors whole(graph), parts(graph);
      whole.run(fusion, Reading::oracle);
      run(repacked, parts);
      expect_same_bytes(graph, parts, whole, to_string(type).data());
    }
}

// 7 taps of stride 2 are 4 and 3; together 4 sources, and one more for each further position.
TEST(WgmmaRepacked, JoinedPixelsShareOneWindow) {
  const Contraction view = contraction_of(fusion_of(few_results(kStem, Layout::nhwc, false))).value();
  const JoinedPixels classes = joined_pixels(view, 1, true).value();
  EXPECT_EQ(classes.channels, 16) << "12, filled up";
  for (const JoinedAxis& axis : classes.axes) {
    EXPECT_EQ(axis.block, 2);
    EXPECT_EQ(axis.positions, 112);
    EXPECT_EQ(axis.window, 4);
    EXPECT_EQ(axis.stride, 1);
    EXPECT_EQ(axis.taps, 8);
  }
  EXPECT_EQ(classes.boxes().size(), 1u);
  const JoinedPixels blocks = joined_pixels(view, 8, true).value();
  EXPECT_EQ(blocks.channels, 96);
  EXPECT_EQ(blocks.axes[0].block, 4);
  EXPECT_EQ(blocks.axes[0].window, 5);
  EXPECT_EQ(blocks.axes[0].stride, 2);
  EXPECT_EQ(blocks.axes[1].block, 8);
  EXPECT_EQ(blocks.axes[1].window, 7);
  EXPECT_EQ(blocks.axes[1].stride, 4);
  FewResults odd = kStem;
  odd.x[2] = 225;
  const Contraction odd_view = contraction_of(fusion_of(few_results(odd, Layout::nhwc, false))).value();
  EXPECT_EQ(joined_pixels(odd_view, 1, true).value().boxes().size(), 2u) << "and the last row";
}

TEST(WgmmaRepacked, JoinsPixelsOnlyOfFewChannelsWithoutGroupsAndDilation) {
  const auto joins = [](const Graph& graph, int64_t pixels = 2) {
    const Fusion fusion = fusion_of(graph);
    return result_path_of_pixels(fusion, contraction_of(fusion).value(), pixels).has_value();
  };
  const auto plain = [](const FewResults& c) { return few_results(c, Layout::nhwc, false); };
  EXPECT_TRUE(joins(plain({ConvPass::dgrad, {2, 16, 9, 9}, {8, 16, 3, 3}, {}})));
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 17, 9, 9}, {8, 17, 3, 3}, {}})));
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 16, 9, 9}, {8, 8, 3, 3}, {}}))) << "groups";
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 3, 9, 9}, {8, 3, 3, 3}, {.dilation = {2, 2}}})));
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 3, 9, 9}, {8, 3, 3, 3}, {}}), 1)) << "one pixel";
  EXPECT_FALSE(joins(plain(kStem), 32)) << "too many channels";
  EXPECT_FALSE(joins(plain(kStem), 0));
  EXPECT_FALSE(joins(grouped(ConvPass::wgrad, {2, 12, 7, 6}, {18, 2, 3, 3}, kChannelsLast)));
  GraphBuilder g("sums");
  const Tensor dy = g.input("dy", {2, 8, 9, 9}, DataType::f16), w = g.input("w", {8, 3, 3, 3}, DataType::f16);
  const Tensor dx = g.conv_dgrad(dy, w, {2, 3, 9, 9}, {.padding = {1, 1}});
  g.output(dx);
  g.output(g.reduce_to(dx, ReductionMode::add, {1, 3, 1, 1}));
  EXPECT_FALSE(joins(g.finish())) << "a reduction";
  GraphBuilder h("coordinates");
  const Tensor product =
      h.conv_dgrad(h.input("dy", {2, 8, 9, 9}, DataType::f16), h.input("w", {8, 3, 3, 3}, DataType::f16),
                   {2, 3, 9, 9}, {.padding = {1, 1}});
  h.output(h.add(product, h.gen_index(product, 3, {.type = DataType::f32})));
  EXPECT_FALSE(joins(h.finish())) << "an epilogue that names pixels";
}

TEST(WgmmaRepacked, JoinedPixelsArePackedMultipliedAndSpread) {
  const Graph graph = few_results(kStem, Layout::nhwc, false);
  EXPECT_EQ(rule(graph), "");
  const Fusion fusion = fusion_of(graph);
  bool found = false;
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
    if (candidate.config.knob("join", 0) != 8 || candidate.config.knob("split", 1) != 1) continue;
    found = true;
    const Lowered parts = test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200());
    ASSERT_EQ(parts.steps.size(), 5u);
    EXPECT_EQ(std::get<Fill>(parts.steps[0]).bytes, 64 * 3 * 12 * 20 * 2);
    EXPECT_EQ(parts.scratch.at(1), 96 * 64 * 5 * 7 * 2);
    EXPECT_EQ(parts.scratch.at(2), int64_t{128} * 56 * 28 * 96 * 2);
    EXPECT_EQ(std::get<Launch>(parts.steps[3]).entry, "wgmma_contraction");
    EXPECT_THAT(pointers(parts, 4), ElementsAre(std::pair(Kind::scratch, 2), std::pair(Kind::operand, 3)));
    EXPECT_LT(candidate.work.serial_dram_bytes, 85e6);
  }
  EXPECT_TRUE(found);
}

TEST(WgmmaRepacked, PriceJoinsPixelsOfFirstLayers) {
  for (const DataType type : {DataType::f16, DataType::f32})
    for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
      const Plan plan = build(few_results(kStem, layout, false, type), h200(), {.compile = false});
      EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_repacked");
      EXPECT_EQ(plan.fusions.at(0).config.knob("join", 0), 8);
    }
  const Graph patches = few_results(
      {ConvPass::dgrad, {64, 3, 224, 224}, {768, 3, 16, 16}, {.stride = {16, 16}}}, Layout::nhwc, false);
  EXPECT_EQ(build(patches, h200(), {.compile = false}).fusions.at(0).config.knob("join", 0), 1)
      << "a matmul, each patch a row";
}

TEST(WgmmaRepacked, EveryKernelOfJoinedPixelsCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  const FewResults volume{
      ConvPass::dgrad, {2, 2, 9, 8, 7}, {64, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}};
  for (const FewResults& c :
       {FewResults{ConvPass::dgrad, {2, 3, 31, 32}, {64, 3, 7, 7}, kStem.options}, volume})
    for (const DataType type : {DataType::f16, DataType::f32}) {
      if (c.x.rank() == 5 && type == DataType::f32) continue;
      const Fusion fusion = fusion_of(few_results(c, Layout::nchw, true, type));
      std::vector<int64_t> seen;
      for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
        const int64_t join = candidate.config.knob("join", 0);
        if (join == 0 || std::ranges::find(seen, join) != seen.end()) continue;
        seen.push_back(join);
        test::add_kernels(to_string(candidate.config),
                          test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200()), kernels);
      }
      EXPECT_GE(seen.size(), 3u);
    }
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
