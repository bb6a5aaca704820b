// Owns the GPU tests of the rewrite that joins pixels of results of few channels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/gpu/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked_cases;

// Results of few channels: odd extents, strides of 1, 2, 3 and 4, fewer taps than the stride, padding that
// differs, rows that no output meets, odd channels.
const ConvCase kFewChannels[] = {
    {{2, 3, 34, 34}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{3, 3, 31, 33}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 27, 29}, {72, 3, 5, 3}, {.padding = {2, 1}, .stride = {3, 3}}},
    {{2, 4, 29, 26}, {64, 4, 2, 1}, {.stride = {3, 3}}},
    {{2, 1, 21, 18}, {20, 1, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{2, 3, 19, 22}, {64, 3, 3, 3}, {.padding = {1, 1}}},
    {{2, 3, 24, 32}, {64, 3, 4, 4}, {.stride = {4, 4}}},
    {{1, 16, 13, 14}, {128, 16, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 2, 17, 16}, {64, 2, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 2, 301}, {64, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 9, 10, 11}, {64, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
};

// The best few of every way to join pixels; the tilings are other tests'.
void expect_joined_correct(const Graph& graph, const std::string& what) {
  constexpr int kOfEach = 4, kAll = 1000;
  std::map<int64_t, int> taken;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(),
                  PlannerOptions{.build = {.max_candidates = kAll}, .engine_list = kRepackedOnly})) {
    const int64_t join = candidate.fusions.front().config.knob("join", 0);
    if (join > 0 && taken[join]++ < kOfEach) expect_config_correct(graph, candidate, kRepackedOnly, what);
  }
  EXPECT_GE(taken.size(), 2u) << what;
}

class WgmmaJoinedPixelsGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaJoinedPixelsGpu, Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("dgrad");
    const Tensor dy = g.input("dy", output_dims(c), DataType::f16, layout);
    const Tensor w = g.input("w", c.w, DataType::f16, layout);
    g.output(g.conv_dgrad(dy, w, c.x, c.options), {.layout = layout});
    expect_joined_correct(g.finish(), "dgrad of few channels " + words(c));
  }
}

TEST_P(WgmmaJoinedPixelsGpu, DgradWithBiasReluAndResidual) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("fused");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, layout);
    const Tensor w = g.input("w", c.w, DataType::bf16, layout);
    const Tensor bias = g.input("bias", test::channel_dims(c.x.rank(), c.x[1]), DataType::bf16);
    const Tensor residual = g.input("residual", c.x, DataType::bf16, layout);
    const Tensor dx = g.conv_dgrad(dy, w, c.x, c.options);
    g.output(g.add(g.relu(g.add(dx, bias)), residual), {.type = DataType::bf16, .layout = layout});
    expect_joined_correct(g.finish(), "fused dgrad of few channels " + words(c));
  }
}

TEST_P(WgmmaJoinedPixelsGpu, Tf32Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("tf32", Precision::allow_tf32);
    const Tensor dy = g.input("dy", output_dims(c), DataType::f32, layout);
    const Tensor w = g.input("w", c.w, DataType::f32, layout);
    g.output(g.conv_dgrad(dy, w, c.x, c.options), {.type = DataType::f32, .layout = layout});
    expect_joined_correct(g.finish(), "tf32 dgrad of few channels " + words(c));
  }
}

// The same filter the other way round: few output channels.
TEST_P(WgmmaJoinedPixelsGpu, Fprop) {
  FUSOR_NEEDS_HOPPER();
  ConvCase c = GetParam();
  std::swap(c.w[0], c.w[1]);
  c.x[1] = c.w[1];
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("fprop");
    const Tensor x = g.input("x", c.x, DataType::f16, layout);
    const Tensor w = g.input("w", c.w, DataType::f16, layout);
    g.output(g.relu(g.conv_fprop(x, w, c.options)), {.type = DataType::f16, .layout = layout});
    expect_joined_correct(g.finish(), "fprop to few channels " + words(c));
  }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaJoinedPixelsGpu, testing::ValuesIn(kFewChannels));

TEST(WgmmaRepackedGpu, EveryTilingOfJoinedPixels) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = kFewChannels[1];
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::f16, Layout::nhwc);
  const Tensor dx = g.conv_dgrad(dy, g.input("w", c.w, DataType::f16), c.x, c.options);
  g.output(dx, {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "every tiling " + words(c));
}

TEST(WgmmaRepackedGpu, SeveralResultsOfJoinedPixels) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("two_results");
  const Tensor dy = g.input("dy", {2, 64, 13, 12}, DataType::f16, Layout::nhwc);
  const Tensor dx = g.conv_dgrad(dy, g.input("w", {64, 3, 5, 5}, DataType::f16), {2, 3, 25, 24},
                                 {.padding = {2, 2}, .stride = {2, 2}});
  g.output(dx, {.name = "pre", .type = DataType::f32});
  g.output(g.relu(dx), {.type = DataType::f16, .layout = Layout::nhwc});
  g.output(g.cmp_gt(dx, g.constant(0)));
  expect_joined_correct(g.finish(), "fp32 NCHW, fp16 NHWC and a mask");
}

TEST(WgmmaRepackedGpu, BytesOfJoinedPixels) {
  FUSOR_NEEDS_HOPPER();
  const Dims x{2, 3, 23, 24};
  for (const DataType type : {DataType::i8, DataType::f8_e4m3})
    for (const Precision precision : {Precision::exact, Precision::allow_short_sums}) {
      GraphBuilder g("bytes", precision);
      const Tensor dy = g.input("dy", {2, 48, 12, 12}, type);
      const Tensor dx =
          g.conv_dgrad(dy, g.input("w", {48, 3, 3, 3}, type), x, {.padding = {1, 1}, .stride = {2, 2}});
      g.output(dx, {.type = type == DataType::i8 ? DataType::i32 : DataType::bf16});
      expect_joined_correct(g.finish(), fmt::format("{} dgrad of few channels", to_string(type)));
    }
}

}  // namespace
}  // namespace fusor
