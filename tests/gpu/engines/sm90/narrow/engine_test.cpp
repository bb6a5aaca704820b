// Owns the tests of the wgmma_narrow engine on the GPU: every candidate of convolutions of few channels, with
// tails, strides, paddings, layouts and ops around them; infinities that stay in their windows; and the same
// bits in every run.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "backend/engines/list.h"
#include "tests/gpu/engines/conv_case.h"
#include "tests/gpu/engines/conv_graphs.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kNarrowOnly{&wgmma_narrow_engine()};

void expect_config_correct(const Graph& graph, const Candidate& candidate, const std::string& what) {
  expect_config_correct(graph, candidate, kNarrowOnly, what);
}

void expect_every_config_correct(const Graph& graph, const std::string& what) {
  expect_every_config_correct(graph, kNarrowOnly, what);
}

const ConvCase kConvCases[] = {
    {{3, 3, 30, 38}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 224, 224}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{140, 3, 20, 20}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 41, 39}, {96, 3, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 4, 33, 64}, {40, 4, 5, 5}, {.padding = {2, 2}, .stride = {2, 2}}},
    {{2, 1, 28, 28}, {32, 1, 5, 5}, {.padding = {2, 2}}},
    {{2, 3, 32, 96}, {64, 3, 3, 3}, {.padding = {1, 1}}},
    {{2, 8, 19, 53}, {72, 8, 3, 3}, {.padding = {1, 1}}},
    {{1, 6, 21, 600}, {200, 6, 3, 5}, {.padding = {1, 2}}},
    {{1, 3, 40, 1100}, {64, 3, 3, 4}, {.padding = {0, 1}, .stride = {3, 2}}},
    {{2, 3, 20, 70}, {64, 3, 2, 2}, {.stride = {1, 2}}},
    {{2, 4, 16, 64}, {64, 4, 1, 1}, {}},
    {{2, 4, 18, 64}, {64, 4, 1, 1}, {.stride = {2, 2}}},
    {{2, 3, 25, 50}, {33, 3, 5, 3}, {.pre_padding = {2, 0}, .post_padding = {1, 3}, .stride = {1, 2}}},
    {{2, 3, 40, 50}, {64, 3, 3, 3}, {.padding = {4, 1}, .stride = {2, 1}, .dilation = {4, 1}}},
    {{2, 3, 30, 50}, {64, 3, 4, 7}, {.padding = {3, 3}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 5, 22, 50}, {16, 5, 3, 2}, {.padding = {1, 1}, .mode = ConvMode::convolution}},
    {{4, 2, 301}, {64, 2, 9}, {.padding = {4}, .stride = {2}}},
    {{4, 2, 303}, {64, 2, 9}, {.padding = {4}, .stride = {2}}},
    {{2, 3, 30, 85}, {64, 3, 7, 7}, {.stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 4, 40, 143}, {136, 4, 5, 5}, {.padding = {2, 2}, .stride = {2, 2}}},
    {{2, 5, 21, 600}, {70, 5, 3, 5}, {.padding = {1, 2}, .dilation = {2, 1}}},
    {{3, 7, 130}, {24, 7, 4}, {.pre_padding = {3}}},
};

class WgmmaNarrowConvGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaNarrowConvGpu, Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout x_layout : {Layout::nhwc, Layout::nchw})
    for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
      GraphBuilder g("fprop");
      const Tensor x = g.input("x", c.x, DataType::f16, x_layout);
      const Tensor w = g.input("w", c.w, DataType::f16, x_layout);
      g.output(g.conv_fprop(x, w, c.options), {.layout = layout});
      expect_every_config_correct(g.finish(), "fprop " + words(c));
    }
}

TEST_P(WgmmaNarrowConvGpu, FpropWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    expect_every_config_correct(fprop_bias_relu(c.x, c.w, c.options, DataType::bf16, layout),
                                "fprop, bias, relu " + words(c));
}

// Ops before both operands, a residual, and a second result.
TEST_P(WgmmaNarrowConvGpu, FpropAmongOps) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("fprop");
    const Tensor scale = g.input("scale", test::channel_dims(c.x.rank(), c.x[1]), DataType::bf16);
    const Tensor x = g.add(g.mul(g.input("x", c.x, DataType::bf16, layout), scale), g.constant(0.5),
                           {.type = DataType::bf16});
    const Tensor w =
        g.mul(g.input("w", c.w, DataType::bf16, layout), g.constant(2), {.type = DataType::bf16});
    const Tensor y = g.conv_fprop(x, w, c.options);
    g.output(y, {.name = "pre", .type = DataType::f32, .layout = layout});
    const Tensor residual = g.input("residual", y.dims, DataType::bf16, layout);
    g.output(g.relu(g.add(y, residual)), {.type = DataType::bf16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), "fprop among ops " + words(c));
  }
}

TEST_P(WgmmaNarrowConvGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  const Dims y = output_dims(c);
  if (y[y.rank() - 1] % 8 != 0)
    GTEST_SKIP() << "rows of " << y[y.rank() - 1] << " pixels are another engine's";
  for (const Layout dy_layout : {Layout::nhwc, Layout::nchw})
    for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
      if (dy_layout == Layout::nhwc && c.w[0] % 8 != 0) continue;
      GraphBuilder g("wgrad");
      const Tensor dy = g.input("dy", y, DataType::bf16, dy_layout);
      const Tensor x = g.input("x", c.x, DataType::bf16, layout);
      const Tensor dw = g.conv_wgrad(dy, g.mul(x, g.constant(0.5), {.type = DataType::bf16}), c.w, c.options);
      g.output(g.mul(dw, g.constant(2)), {.type = DataType::f32, .layout = layout});
      expect_every_config_correct(g.finish(), "wgrad " + words(c));
    }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaNarrowConvGpu, testing::ValuesIn(kConvCases));

void expect_tiles_and_strips_correct(const Graph& graph, int64_t widest_tile) {
  const PlannerOptions options{.engine_list = kNarrowOnly};
  Candidate candidate = candidates(graph, DeviceInfo::current(), options).front();
  for (int64_t tile = 48; tile <= widest_tile; tile += 16)
    for (const int64_t rows : {1, 2, 8, 23}) {
      candidate.fusions.front().config.set("tile_n", tile);
      candidate.fusions.front().config.set("rows", rows);
      expect_config_correct(graph, candidate, "tiles and strips");
    }
}

TEST(WgmmaNarrowGpu, EveryTileAndStrip) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", {3, 3, 45, 150}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {130, 3, 5, 5}, DataType::f16, Layout::nhwc);
  g.output(g.conv_fprop(x, w, {.padding = {2, 2}, .stride = {2, 2}}), {.layout = Layout::nhwc});
  expect_tiles_and_strips_correct(g.finish(), 256);
}

TEST(WgmmaNarrowGpu, EveryTileAndStripOfWgrad) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {3, 130, 23, 72}, DataType::f16, Layout::nchw);
  const Tensor x = g.input("x", {3, 3, 45, 143}, DataType::f16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {130, 3, 5, 5}, {.padding = {2, 2}, .stride = {2, 2}}),
           {.type = DataType::f32, .layout = Layout::nhwc});
  expect_tiles_and_strips_correct(g.finish(), 128);
}

// Columns of infinities: they reach the results whose windows see them, and no others.
TEST(WgmmaNarrowGpu, InfinitiesStayInTheirWindows) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t stride : {1, 2})
    for (const int64_t window : {3, 4, 5, 7}) {
      GraphBuilder g("infinities");
      const Tensor x = g.input("x", {2, 3, 24, 120}, DataType::bf16, Layout::nhwc);
      const Tensor column = g.cmp_eq(g.gen_index(x, 3), g.constant(51, DataType::i32));
      const Tensor poisoned = g.binary_select(g.constant(std::numeric_limits<double>::infinity()), x, column,
                                              {.type = DataType::bf16});
      const Tensor w = g.input("w", {64, 3, 3, window}, DataType::bf16, Layout::nhwc);
      g.output(g.conv_fprop(poisoned, w, {.padding = {1, 1}, .stride = {1, stride}}),
               {.type = DataType::f32, .layout = Layout::nhwc});
      expect_every_config_correct(g.finish(), "infinities");
    }
}

TEST(WgmmaNarrowGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", {16, 3, 64, 64}, DataType::bf16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 3, 7, 7}, DataType::bf16, Layout::nhwc);
  g.output(g.conv_fprop(x, w, {.padding = {3, 3}, .stride = {2, 2}}), {.name = "y", .layout = Layout::nhwc});
  const Graph graph = g.finish();
  expect_same_bits(graph, build(graph, DeviceInfo::current(), {.engine_list = kNarrowOnly}));
}

}  // namespace
}  // namespace fusor
