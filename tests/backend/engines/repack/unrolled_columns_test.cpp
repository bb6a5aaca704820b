// Owns the tests of unrolled columns: a window's columns as channels.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/repack/rewrites/unroll_columns.h"
#include "backend/engines/repack/unrolled_columns.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked;
using testing::ElementsAre;

// Odd widths, padding that differs or is wider than the image's columns reach, columns and rows that no
// window meets, dilation, strides of 1 to 4, flipped taps, one and three spatial axes.
const FewChannels kFewChannels[] = {
    {{2, 3, 16, 16}, {8, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 15, 17}, {9, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{1, 5, 9, 12}, {8, 5, 7, 7}, {.padding = {3, 3}, .stride = {3, 3}}},
    {{2, 3, 12, 19}, {8, 3, 4, 4}, {.stride = {4, 4}}},
    {{1, 1, 10, 13}, {8, 1, 3, 3}, {.padding = {1, 1}}},
    {{1, 3, 14, 9}, {8, 3, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{1, 3, 11, 13}, {8, 3, 2, 3}, {.padding = {0, 4}, .stride = {1, 2}, .dilation = {2, 2}}},
    {{2, 3, 12, 10}, {8, 3, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{1, 2, 8, 11}, {8, 2, 3, 3}, {.padding = {1, 2}, .dilation = {1, 2}, .mode = ConvMode::convolution}},
    {{2, 2, 29}, {8, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 5, 8, 7}, {8, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
};

TEST(WgmmaRepacked, UnrolledColumnsAgreeWithTheWhole) {
  for (const FewChannels& c : kFewChannels)
    for (const DataType type : {DataType::f16, DataType::f32, DataType::i8})
      for (const Layout layout : {Layout::nhwc, Layout::nchw})
        for (const bool fused : {false, true}) {
          if (type == DataType::i8 && fused) continue;
          const Graph graph = few_channels(c, layout, fused, type);
          const Fusion fusion = fusion_of(graph);
          const Contraction view = contraction_of(fusion).value();
          ASSERT_TRUE(unrolls_columns(fusion, view)) << to_string(c.x) << " * " << to_string(c.w);
          const HostTensors whole(graph);
          whole.run(fusion, Reading::oracle);
          for (const ResultPath way : result_paths(fusion, view, 1)) {
            const Repacked repacked = unroll_columns(fusion, view, way);
            EXPECT_TRUE(test::supports(wgmma_engine(), repacked.core, h200()));
            const HostTensors parts(graph);
            run(repacked, parts);
            expect_same_bytes(graph, parts, whole,
                              fmt::format("{} * {} {} way {} fused {}", to_string(c.x), to_string(c.w),
                                          to_string(type), static_cast<int>(way), fused));
          }
        }
}

TEST(WgmmaRepacked, GradientsOfUnrolledColumnsAgreeWithTheWhole) {
  for (const FewChannels& c : kFewChannels)
    for (const DataType type : {DataType::f16, DataType::bf16})
      for (const Layout layout : {Layout::nhwc, Layout::nchw})
        for (const bool fused : {false, true}) {
          const Graph graph = strided_wgrad(c, layout, fused, type);
          const Fusion fusion = fusion_of(graph);
          const Contraction view = contraction_of(fusion).value();
          ASSERT_TRUE(unrolls_columns(fusion, view)) << to_string(c.x) << " * " << to_string(c.w);
          const HostTensors whole(graph);
          whole.run(fusion, Reading::oracle);
          const Repacked repacked = unroll_columns(fusion, view, ResultPath::finished);
          EXPECT_TRUE(test::supports(wgmma_engine(), repacked.core, h200()))
              << to_string(c.x) << " * " << to_string(c.w);
          const HostTensors parts(graph);
          run(repacked, parts);
          expect_same_bytes(
              graph, parts, whole,
              fmt::format("{} * {} {} fused {}", to_string(c.x), to_string(c.w), to_string(type), fused));
        }
}

// 32 channels of 128 x 128 x 128 took 1.79 ms as three lines of half a box for each row of taps.
TEST(WgmmaRepacked, PriceUnrollsColumnsOfGradientsOfFewChannels) {
  const FewChannels few{{64, 16, 112, 112}, {16, 16, 3, 3}, {.padding = {1, 1}}};
  const Plan plan = build(strided_wgrad(few, Layout::nhwc, false, DataType::f16), h200(), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.knob("unroll", 0), 1);
}

TEST(WgmmaRepacked, UnrolledColumnsAreRunsThatOverlap) {
  const Contraction view = contraction_of(fusion_of(few_channels(kStemForward, Layout::nchw, false))).value();
  for (const auto& [type, channels] : {std::pair(DataType::f32, 4), {DataType::f16, 4}, {DataType::i8, 8}}) {
    const UnrolledColumns unrolled = unrolled_columns(view, type).value();
    EXPECT_EQ(unrolled.channels_of_column, channels);
    EXPECT_EQ(unrolled.channels, 7 * channels);
    EXPECT_EQ(unrolled.columns, 2 * 111 + 7 + 1) << "a whole number of strides";
    EXPECT_EQ(unrolled.first_column, -3);
    EXPECT_EQ(unrolled.image_begin(), 0);
    EXPECT_EQ(unrolled.image_columns(224), 224);
  }
  const FewChannels patches{{1, 3, 224, 223}, {64, 3, 4, 4}, {.stride = {4, 4}}};
  const Contraction of_patches =
      contraction_of(fusion_of(few_channels(patches, Layout::nchw, false))).value();
  const UnrolledColumns runs = unrolled_columns(of_patches, DataType::f32).value();
  EXPECT_EQ(runs.channels_of_column, 3) << "runs of 4 columns begin 48 bytes apart";
  EXPECT_EQ(runs.columns, 220);
  EXPECT_EQ(runs.image_columns(223), 220) << "no window meets the last three";
  const Fusion of_full = fusion_of(few_channels(patches, Layout::nchw, false, DataType::f32));
  const Repacked full = unroll_columns(of_full, contraction_of(of_full).value(), ResultPath::direct);
  EXPECT_THAT(full.zeroed, ElementsAre(1)) << "the filter alone: the image fills its rows";
}

TEST(WgmmaRepacked, UnrollsColumnsOnlyOfFewChannelsOfOneGroup) {
  const auto unrolls = [](const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    return unrolls_columns(fusion, contraction_of(fusion).value());
  };
  const auto plain = [](const FewChannels& c, DataType type = DataType::f16) {
    return few_channels(c, Layout::nchw, false, type);
  };
  EXPECT_TRUE(unrolls(plain({{2, 16, 9, 9}, {8, 16, 3, 3}})));
  EXPECT_TRUE(unrolls(plain({{2, 32, 9, 9}, {8, 32, 3, 3}}))) << "two steps in place of three";
  EXPECT_FALSE(unrolls(plain({{2, 33, 9, 9}, {8, 33, 3, 3}})));
  EXPECT_FALSE(unrolls(plain({{2, 32, 9, 9}, {8, 32, 3, 3}}, DataType::f32)));
  EXPECT_FALSE(unrolls(plain({{2, 3, 9, 9}, {8, 3, 3, 1}}))) << "one column";
  EXPECT_FALSE(unrolls(plain({{2, 4, 9, 9}, {8, 2, 3, 3}}))) << "groups";
  EXPECT_FALSE(unrolls(plain({{2, 3, 9, 99}, {8, 3, 3, 3}, {.dilation = {1, 40}}})))
      << "the columns between the taps are more steps than the taps";
  EXPECT_FALSE(unrolls(strided_wgrad({{2, 16, 9, 9}, {8, 16, 3, 3}}, Layout::nhwc, false)))
      << "elements that tensor cores cannot transpose";
  EXPECT_FALSE(unrolls(few_results({ConvPass::dgrad, {2, 3, 9, 9}, {8, 3, 3, 3}, {}}, Layout::nhwc, false)));
  GraphBuilder g("matmul");
  EXPECT_FALSE(unrolls(
      g.finish({g.matmul(g.input("a", {64, 64}, DataType::f16), g.input("b", {64, 64}, DataType::f16))})));
  GraphBuilder h("coordinates");
  const Tensor x = h.input("x", {2, 3, 9, 9}, DataType::f16);
  const Tensor sum = h.add(x, h.gen_index(x, 3, {.type = DataType::f16}), {.type = DataType::f16});
  h.output(h.conv_fprop(sum, h.input("w", {8, 3, 3, 3}, DataType::f16)));
  EXPECT_FALSE(unrolls(h.finish())) << "ops before the input that name columns";
}

// TMA reads a run of 7 columns for every pixel, 32 bytes apart.
TEST(WgmmaRepacked, UnrolledColumnsAreReadThroughOneMap) {
  const Fusion fusion = fusion_of(few_channels(kStemForward, Layout::nchw, false, DataType::f32));
  bool found = false;
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
    if (candidate.config.knob("unroll", 0) == 0 || candidate.config.knob("repack_y", 0) != 0) continue;
    found = true;
    const Lowered parts = test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200());
    ASSERT_EQ(parts.steps.size(), 5u);
    const int64_t row = 230 * 4 * 4;
    EXPECT_EQ(std::get<Fill>(parts.steps[0]).bytes, 128 * 224 * row);
    EXPECT_EQ(std::get<Fill>(parts.steps[1]).bytes, 64 * 7 * 28 * 4);
    EXPECT_THAT(pointers(parts, 2), ElementsAre(std::pair(Kind::operand, 0), std::pair(Kind::scratch, 0)));
    EXPECT_THAT(pointers(parts, 3), ElementsAre(std::pair(Kind::operand, 1), std::pair(Kind::scratch, 1)));
    const auto& maps = std::get<Launch>(parts.steps[4]).arguments.maps();
    const auto pixels =
        std::ranges::find_if(maps, [](const TensorMap& map) { return map.window.has_value(); });
    ASSERT_NE(pixels, maps.end());
    EXPECT_EQ(pixels->dims, (Dims{28, 112, 224, 128}));
    EXPECT_EQ(pixels->stride_bytes, (Dims{32, row, 224 * row}));
    EXPECT_EQ(pixels->window->strides, (Dims{1, 2}));
    EXPECT_EQ(pixels->window->lower, (Dims{0, -3}));
    EXPECT_TRUE(pixels->rounds_to_tf32);
    EXPECT_LT(candidate.work.serial_dram_bytes, 350e6);
  }
  EXPECT_TRUE(found);
}

TEST(WgmmaRepacked, PriceUnrollsColumnsOfFirstLayers) {
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const bool fused : {false, true}) {
      const Plan plan =
          build(few_channels(kStemForward, layout, fused, DataType::f32), h200(), {.compile = false});
      EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_repacked");
      EXPECT_EQ(plan.fusions.at(0).config.knob("unroll", 0), 1);
    }
  const FewChannels eight{{64, 8, 224, 224}, {64, 8, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}};
  EXPECT_EQ(build(few_channels(eight, Layout::nhwc, false), h200(), {.compile = false})
                .fusions.at(0)
                .config.knob("unroll", 0),
            1);
}

TEST(WgmmaRepacked, EveryKernelOfUnrolledColumnsCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const FewChannels& c :
       {FewChannels{{2, 3, 31, 33}, {64, 3, 7, 7}, kStemForward.options}, kFewChannels[9], kFewChannels[10]})
    for (const DataType type : {DataType::f16, DataType::f32}) {
      const Fusion fusion = fusion_of(few_channels(c, Layout::nchw, true, type));
      std::vector<int64_t> seen;
      for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
        const int64_t way = candidate.config.knob("repack_y", 0);
        if (candidate.config.knob("unroll", 0) == 0 || std::ranges::find(seen, way) != seen.end()) continue;
        seen.push_back(way);
        test::add_kernels(to_string(candidate.config),
                          test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200()), kernels);
      }
      EXPECT_EQ(seen.size(), 3u);
    }
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
