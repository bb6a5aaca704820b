// Owns the GPU tests of the rewrite that unrolls the columns of operands of few channels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/gpu/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked_cases;

// Operands of few channels: odd widths, padding that differs, strides of 1 to 4, columns that no window
// meets, dilation, flipped taps, channels that fill several lines of k, several filters' tiles, one and three
// axes, patches.
const ConvCase kFewInputs[] = {
    {{2, 3, 34, 34}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{3, 3, 31, 33}, {72, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 5, 27, 29}, {64, 5, 7, 7}, {.padding = {3, 3}, .stride = {3, 3}}},
    {{2, 3, 29, 34}, {64, 3, 4, 4}, {.stride = {4, 4}}},
    {{2, 1, 19, 23}, {64, 1, 3, 3}, {.padding = {1, 1}}},
    {{2, 3, 21, 18}, {20, 3, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{2, 3, 23, 37}, {136, 3, 2, 3}, {.padding = {0, 4}, .stride = {1, 2}, .dilation = {2, 2}}},
    {{2, 2, 17, 16}, {64, 2, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 16, 15, 20}, {64, 16, 3, 5}, {.padding = {1, 2}, .stride = {1, 2}}},
    {{2, 2, 301}, {64, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 9, 10, 11}, {64, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
    {{2, 3, 64, 48}, {72, 3, 16, 16}, {.stride = {16, 16}}},
};

// The best few of every way out of unrolled columns.
void expect_unrolled_correct(const Graph& graph, const std::string& what) {
  constexpr int kOfEach = 6, kAll = 1000;
  std::map<int64_t, int> taken;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(),
                  PlannerOptions{.build = {.max_candidates = kAll}, .engine_list = kRepackedOnly})) {
    const EngineConfig& config = candidate.fusions.front().config;
    if (config.knob("unroll", 0) != 0 && taken[config.knob("repack_y", 0)]++ < kOfEach)
      expect_config_correct(graph, candidate, kRepackedOnly, what);
  }
  EXPECT_GE(taken.size(), 1u) << what;
}

class WgmmaUnrolledColumnsGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaUnrolledColumnsGpu, Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const DataType type : {DataType::f32, DataType::f16, DataType::i8}) {
      GraphBuilder g("fprop", Precision::allow_tf32);
      const Tensor x = g.input("x", c.x, type, layout);
      const Tensor y = g.conv_fprop(x, g.input("w", c.w, type, layout), c.options);
      g.output(y, {.type = type == DataType::i8 ? DataType::i32 : type, .layout = layout});
      expect_unrolled_correct(g.finish(), fmt::format("unrolled {} fprop {}", to_string(type), words(c)));
    }
}

TEST_P(WgmmaUnrolledColumnsGpu, FpropWithBiasReluAndResidual) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("fused", Precision::allow_tf32);
      const Tensor x = g.input("x", c.x, type, layout);
      const Tensor scaled = g.mul(x, g.constant(0.5), {.type = type});
      const Tensor y = g.conv_fprop(scaled, g.input("w", c.w, type, layout), c.options);
      const Tensor bias = g.input("bias", test::channel_dims(c.x.rank(), c.w[0]), type);
      const Tensor residual = g.input("residual", y.dims, type, layout);
      g.output(g.add(g.relu(g.add(y, bias)), residual), {.type = type, .layout = layout});
      expect_unrolled_correct(g.finish(),
                              fmt::format("fused unrolled {} fprop {}", to_string(type), words(c)));
    }
}

TEST_P(WgmmaUnrolledColumnsGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const DataType type : {DataType::f16, DataType::bf16}) {
      GraphBuilder g("wgrad");
      const Tensor dy = g.input("dy", test::conv_output_dims(c.x, c.w, c.options), type, layout);
      const Tensor dw = g.conv_wgrad(dy, g.input("x", c.x, type, layout), c.w, c.options);
      g.output(g.add(dw, g.input("decay", c.w, type, layout)),
               {.name = "dw", .type = type, .layout = layout});
      expect_unrolled_correct(g.finish(), fmt::format("unrolled {} wgrad {}", to_string(type), words(c)));
    }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaUnrolledColumnsGpu, testing::ValuesIn(kFewInputs));

TEST(WgmmaRepackedGpu, EveryTilingOfUnrolledColumns) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = kFewInputs[1];
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("fprop", Precision::allow_tf32);
    const Tensor x = g.input("x", c.x, DataType::f32, layout);
    g.output(g.conv_fprop(x, g.input("w", c.w, DataType::f32), c.options), {.layout = layout});
    expect_every_config_correct(g.finish(), "every tiling of unrolled columns " + words(c));
  }
}

}  // namespace
}  // namespace fusor
