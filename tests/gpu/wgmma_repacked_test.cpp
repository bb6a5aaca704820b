// Owns the tests of the wgmma_repacked engine on the GPU: every candidate of contractions whose operands and
// results lie otherwise than its copies want them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "backend/engines.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/every_config.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kRepackedOnly{&wgmma_repacked_engine()};

void expect_every_config_correct(const Graph& graph, const std::string& what) {
  expect_every_config_correct(graph, kRepackedOnly, what);
}

struct ConvCase {
  Dims x, w;
  ConvOptions options;
};

const ConvCase kConvCases[] = {
    {{2, 64, 14, 14}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{3, 20, 13, 11}, {36, 20, 3, 3}, {.padding = {1, 1}}},
    {{2, 3, 34, 34}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 128, 15, 9}, {136, 128, 1, 1}, {}},
    {{2, 64, 17, 16}, {70, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 128, 10, 10}, {256, 64, 3, 3}, {.padding = {1, 1}}},
    {{4, 64, 100}, {96, 64, 5}, {.padding = {2}}},
    {{2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}}},
};

std::string words(const ConvCase& c) { return to_string(c.x) + " * " + to_string(c.w); }

Dims output_dims(const ConvCase& c) {
  GraphBuilder g("shape");
  return g.conv_fprop(g.input("x", c.x, DataType::f16), g.input("w", c.w, DataType::f16), c.options).dims;
}

class WgmmaRepackedConvGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaRepackedConvGpu, FpropWithBiasReluAndResidual) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", c.x, DataType::f16);
  const Tensor w = g.input("w", c.w, DataType::f16);
  Dims bias_dims = Dims::filled(c.x.rank(), 1);
  bias_dims[1] = c.w[0];
  const Tensor bias = g.input("bias", bias_dims, DataType::f16);
  const Tensor residual = g.input("residual", output_dims(c), DataType::f16);
  g.output(g.add(g.relu(g.add(g.conv_fprop(x, w, c.options), bias)), residual));
  expect_every_config_correct(g.finish(), "fprop " + words(c));
}

TEST_P(WgmmaRepackedConvGpu, PlainFprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("fprop");
  g.output(g.conv_fprop(g.input("x", c.x, DataType::bf16), g.input("w", c.w, DataType::bf16), c.options));
  expect_every_config_correct(g.finish(), "plain fprop " + words(c));
}

TEST_P(WgmmaRepackedConvGpu, FpropOfFilterKcrs) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  bool has_taps = false;
  for (int i = 2; i < c.w.rank(); ++i) has_taps |= c.w[i] > 1;
  if (!has_taps && c.w[1] % 8 == 0) GTEST_SKIP() << "one tap lies right in either layout";
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", c.x, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f16);
  g.output(g.conv_fprop(x, w, c.options), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "filter KCRS " + words(c));
}

TEST_P(WgmmaRepackedConvGpu, Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (!c.options.stride.empty()) GTEST_SKIP() << "dgrad of a stride is another engine's";
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16);
  const Tensor w = g.input("w", c.w, DataType::bf16);
  g.output(g.conv_dgrad(dy, w, c.x, c.options));
  expect_every_config_correct(g.finish(), "dgrad " + words(c));
}

TEST_P(WgmmaRepackedConvGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (c.w[1] % 64 != 0) GTEST_SKIP() << "wgrad of ragged channels is another engine's";
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16);
  const Tensor x = g.input("x", c.x, DataType::bf16);
  g.output(g.conv_wgrad(dy, x, c.w, c.options), {.type = DataType::f32});
  expect_every_config_correct(g.finish(), "wgrad " + words(c));
}

TEST_P(WgmmaRepackedConvGpu, Tf32FpropAndDgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const bool forward : {true, false}) {
    if (!forward && !c.options.stride.empty()) continue;
    GraphBuilder g("tf32", Precision::allow_tf32);
    const Tensor first = g.input("first", forward ? c.x : output_dims(c), DataType::f32);
    const Tensor w = g.input("w", c.w, DataType::f32);
    const Tensor y = forward ? g.conv_fprop(first, w, c.options) : g.conv_dgrad(first, w, c.x, c.options);
    g.output(g.relu(y));
    expect_every_config_correct(g.finish(), (forward ? "tf32 fprop " : "tf32 dgrad ") + words(c));
  }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaRepackedConvGpu, testing::ValuesIn(kConvCases));

// Results that lie NCHW and leave in units of 8, 4, 2 and 1 pixels, of whole grids and of windows' padded
// ones; tails of channels and of pixels, groups.
const ConvCase kPlaneCases[] = {
    {{3, 128, 14, 14}, {136, 128, 3, 3}, {.padding = {1, 1}}},
    {{5, 128, 7, 7}, {72, 128, 3, 3}, {.padding = {1, 1}}},
    {{2, 128, 16, 8}, {65, 128, 3, 3}, {.padding = {1, 1}}},
    {{3, 72, 13, 14}, {130, 72, 3, 3}, {.padding = {1, 1}}},
    {{1, 64, 56, 56}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{3, 64, 14, 14}, {68, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 12, 12}, {64, 64, 5, 3}, {.padding = {2, 1}}},
    {{2, 128, 14, 14}, {128, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 128, 6, 4, 4}, {64, 128, 3, 3, 3}, {.padding = {1, 1, 1}}},
};

void expect_every_direct_way_correct(const Graph& graph, const std::string& what) {
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), BuildOptions{.engine_list = kRepackedOnly}))
    if (candidate.fusions.front().config.knob("repack_y", 0) == 0)
      expect_config_correct(graph, candidate, kRepackedOnly, what);
}

class WgmmaPlaneResultsGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaPlaneResultsGpu, FpropWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const DataType type : {DataType::f16, DataType::f32}) {
    GraphBuilder g("fprop");
    const Tensor x = g.input("x", c.x, DataType::f16), w = g.input("w", c.w, DataType::f16);
    Dims bias_dims = Dims::filled(c.x.rank(), 1);
    bias_dims[1] = c.w[0];
    const Tensor bias = g.input("bias", bias_dims, DataType::f16);
    g.output(g.relu(g.add(g.conv_fprop(x, w, c.options), bias)), {.type = type});
    expect_every_direct_way_correct(g.finish(), "planes " + words(c));
  }
}

TEST_P(WgmmaPlaneResultsGpu, Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16), w = g.input("w", c.w, DataType::bf16);
  g.output(g.conv_dgrad(dy, w, c.x, c.options), {.type = DataType::bf16});
  expect_every_direct_way_correct(g.finish(), "planes of dgrad " + words(c));
}

TEST_P(WgmmaPlaneResultsGpu, Tf32) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("tf32", Precision::allow_tf32);
  const Tensor x = g.input("x", c.x, DataType::f32), w = g.input("w", c.w, DataType::f32);
  g.output(g.conv_fprop(x, w, c.options), {.type = DataType::f32});
  expect_every_direct_way_correct(g.finish(), "planes of tf32 " + words(c));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaPlaneResultsGpu, testing::ValuesIn(kPlaneCases));

// Gaps between planes stay as they are, and low promises give small units.
TEST(WgmmaRepackedGpu, PlanesFarApartAndOfLowAlignment) {
  FUSOR_NEEDS_HOPPER();
  const Dims x{2, 128, 16, 16};
  for (const int64_t plane : {256, 260, 258, 257})
    for (const int64_t alignment : {16, 4, 2}) {
      GraphBuilder g("planes");
      const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16),
                                    g.input("w", {72, 128, 3, 3}, DataType::f16), {.padding = {1, 1}});
      g.output(g.relu(y),
               {.type = DataType::f16, .strides = Strides{80 * plane, plane, 16, 1}, .alignment = alignment});
      expect_every_direct_way_correct(g.finish(),
                                      fmt::format("planes of {}, aligned to {}", plane, alignment));
    }
}

// Groups of few channels: joined to blocks of 64, to several blocks, to less than one, and altogether.
const ConvCase kGroupedCases[] = {
    {{2, 128, 14, 14}, {128, 4, 3, 3}, {.padding = {1, 1}}},
    {{3, 128, 13, 11}, {256, 4, 3, 3}, {.padding = {1, 1}}},
    {{2, 192, 10, 9}, {192, 24, 3, 3}, {.padding = {1, 1}}},
    {{2, 32, 15, 13}, {32, 4, 3, 3}, {.padding = {1, 1}}},
    {{2, 96, 12, 12}, {96, 8, 3, 3}, {.padding = {1, 1}}},
    {{2, 128, 12, 10}, {128, 32, 1, 1}, {}},
    {{2, 128, 15, 14}, {128, 16, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 64, 40}, {96, 2, 5}, {.padding = {2}}},
};

class WgmmaJoinedGroupsGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaJoinedGroupsGpu, Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("fprop");
    const Tensor x = g.input("x", c.x, DataType::bf16, layout);
    const Tensor w = g.input("w", c.w, DataType::bf16, layout);
    Dims bias_dims = Dims::filled(c.x.rank(), 1);
    bias_dims[1] = c.w[0];
    const Tensor bias = g.input("bias", bias_dims, DataType::bf16);
    g.output(g.relu(g.add(g.conv_fprop(x, w, c.options), bias)), {.layout = layout});
    expect_every_config_correct(g.finish(), "grouped fprop " + words(c));
  }
}

TEST_P(WgmmaJoinedGroupsGpu, Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f16, Layout::nhwc);
  g.output(g.conv_dgrad(dy, w, c.x, c.options), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "grouped dgrad " + words(c));
}

TEST_P(WgmmaJoinedGroupsGpu, WgradWithScale) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (c.x[1] % 64 != 0) GTEST_SKIP() << "wgrad of ragged channels is another engine's";
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", c.x, DataType::bf16, Layout::nhwc);
  const Tensor dw = g.mul(g.conv_wgrad(dy, x, c.w, c.options), g.constant(0.5));
  g.output(dw, {.type = DataType::f32, .layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "grouped wgrad " + words(c));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaJoinedGroupsGpu, testing::ValuesIn(kGroupedCases));

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
                  BuildOptions{.max_candidates = kAll, .engine_list = kRepackedOnly})) {
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
    Dims bias_dims = Dims::filled(c.x.rank(), 1);
    bias_dims[1] = c.x[1];
    const Tensor bias = g.input("bias", bias_dims, DataType::bf16);
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

// Operands of few channels: odd widths, padding that differs, strides of 1 to 4, columns that no window
// meets, dilation, flipped taps, channels that fill several lines of k, several filters' tiles, one and three
// axes.
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
};

// The best few of every way out of unrolled columns.
void expect_unrolled_correct(const Graph& graph, const std::string& what) {
  constexpr int kOfEach = 6, kAll = 1000;
  std::map<int64_t, int> taken;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(),
                  BuildOptions{.max_candidates = kAll, .engine_list = kRepackedOnly})) {
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
      Dims bias_dims = Dims::filled(c.x.rank(), 1);
      bias_dims[1] = c.w[0];
      const Tensor bias = g.input("bias", bias_dims, type);
      const Tensor residual = g.input("residual", y.dims, type, layout);
      g.output(g.add(g.relu(g.add(y, bias)), residual), {.type = type, .layout = layout});
      expect_unrolled_correct(g.finish(),
                              fmt::format("fused unrolled {} fprop {}", to_string(type), words(c)));
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

// wgrad of strides: odd extents, padding that differs, strides of 1 to 4, rows that no window meets,
// dilation, flipped taps, more channels than a block has, groups, one and three axes.
const ConvCase kStrided[] = {
    {{2, 3, 64, 64}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{3, 3, 31, 33}, {72, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 20, 28, 56}, {36, 20, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 5, 27, 29}, {64, 5, 3, 4}, {.padding = {1, 1}, .stride = {3, 2}}},
    {{2, 3, 32, 64}, {64, 3, 4, 4}, {.stride = {4, 4}}},
    {{2, 3, 21, 18}, {20, 3, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{2, 3, 23, 37}, {136, 3, 3, 3}, {.padding = {1, 4}, .stride = {1, 2}, .dilation = {2, 3}}},
    {{2, 2, 17, 16}, {64, 2, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 128, 16, 16}, {128, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 2, 301}, {64, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 9, 10, 11}, {64, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
};

void expect_phases_correct(const Graph& graph, const std::string& what) {
  int taken = 0;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), BuildOptions{.engine_list = kRepackedOnly}))
    if (candidate.fusions.front().config.knob("phases", 0) != 0 && taken++ < 8)
      expect_config_correct(graph, candidate, kRepackedOnly, what);
  EXPECT_GT(taken, 0) << what;
}

class WgmmaStridePhasesGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaStridePhasesGpu, Tf32Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    GraphBuilder g("wgrad", Precision::allow_tf32);
    const Tensor dy = g.input("dy", output_dims(c), DataType::f32, layout);
    g.output(g.conv_wgrad(dy, g.input("x", c.x, DataType::f32, layout), c.w, c.options), {.layout = layout});
    expect_phases_correct(g.finish(), "strided wgrad " + words(c));
  }
}

TEST_P(WgmmaStridePhasesGpu, Tf32WgradWithReluAndDecay) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("wgrad", Precision::allow_tf32);
  const Tensor dy = g.input("dy", output_dims(c), DataType::f32);
  const Tensor x = g.relu(g.input("x", c.x, DataType::f32), {.type = DataType::f32});
  const Tensor dw = g.conv_wgrad(dy, x, c.w, c.options);
  g.output(g.add(g.mul(g.relu(dw), g.constant(0.5)), g.input("w", c.w, DataType::f32)));
  expect_phases_correct(g.finish(), "fused strided wgrad " + words(c));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaStridePhasesGpu, testing::ValuesIn(kStrided));

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

TEST(WgmmaRepackedGpu, SeveralResults) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("two_results");
  const Tensor x = g.input("x", {2, 64, 12, 12}, DataType::f16);
  const Tensor pre = g.conv_fprop(x, g.input("w", {72, 64, 3, 3}, DataType::f16));
  g.output(pre, {.name = "pre", .type = DataType::f32});
  g.output(g.relu(pre), {.type = DataType::f16, .layout = Layout::nhwc});
  g.output(g.cmp_gt(pre, g.constant(0)));
  expect_every_config_correct(g.finish(), "fp32 NCHW, fp16 NHWC and a mask");
}

TEST(WgmmaRepackedGpu, MisalignedMatmuls) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{71, 1}, Strides{1, 131}, Strides{142, 2}})
    for (const Strides& b : {Strides{99, 1}, Strides{1, 71}, Strides{2, 142}}) {
      GraphBuilder g("matmul");
      const Tensor left = g.input("a", {131, 71}, DataType::bf16, TensorOptions{.strides = a});
      const Tensor right = g.input("b", {71, 99}, DataType::bf16, TensorOptions{.strides = b});
      g.output(g.matmul(left, right), {.strides = Strides{200, 2}});
      expect_every_config_correct(g.finish(), fmt::format("{} {}", to_string(a), to_string(b)));
    }
}

TEST(WgmmaRepackedGpu, Tf32MatmulsOfEveryTranspose) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{71, 1}, Strides{1, 132}, Strides{142, 2}})
    for (const Strides& b : {Strides{99, 1}, Strides{1, 71}, Strides{100, 1}}) {
      GraphBuilder g("matmul", Precision::allow_tf32);
      const Tensor left = g.input("a", {131, 71}, DataType::f32, TensorOptions{.strides = a});
      const Tensor right = g.input("b", {71, 99}, DataType::f32, TensorOptions{.strides = b});
      g.output(g.matmul(left, right));
      expect_every_config_correct(g.finish(), fmt::format("tf32 {} {}", to_string(a), to_string(b)));
    }
}

Graph of_planes(bool forward, const Dims& x, int64_t outputs, DataType type) {
  GraphBuilder g("pointwise", Precision::allow_tf32);
  const Tensor w = g.input("w", {outputs, x[1], 1, 1}, type);
  const Tensor first = g.input("first", forward ? x : Dims{x[0], outputs, x[2], x[3]}, type);
  g.output(g.relu(forward ? g.conv_fprop(first, w) : g.conv_dgrad(first, w, x)), {.type = type});
  return g.finish();
}

// Planes are read where they lie; of their filters, dgrad's lie across k in TF32, and 18 channels are no
// whole lines of 16 bytes.
TEST(WgmmaRepackedGpu, FiltersOfPointwiseConvolutions) {
  FUSOR_NEEDS_HOPPER();
  for (const auto& [x, outputs] : {std::pair{Dims{2, 64, 14, 12}, 96}, {Dims{5, 256, 28, 28}, 64}})
    expect_every_config_correct(of_planes(false, x, outputs, DataType::f32), "tf32 dgrad " + to_string(x));
  for (const bool forward : {true, false})
    for (const DataType type : {DataType::f32, DataType::bf16})
      expect_every_config_correct(of_planes(forward, {3, 18, 12, 12}, 42, type), "18 channels");
}

TEST(WgmmaRepackedGpu, Tf32MatmulsWhoseOperandsBothLieAcrossK) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mn : {Dims{300, 260}, Dims{132, 516}}) {
    GraphBuilder g("matmul", Precision::allow_tf32);
    const Tensor a = g.input("a", {mn[0], 200}, DataType::f32, TensorOptions{.strides = Strides{1, mn[0]}});
    g.output(g.matmul(a, g.input("b", {200, mn[1]}, DataType::f32)));
    expect_every_config_correct(g.finish(), "tf32 " + to_string(mn));
  }
}

TEST(WgmmaRepackedGpu, BytesInInt32) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{71, 1}, Strides{1, 144}, Strides{142, 2}})
    for (const Strides& b : {Strides{99, 1}, Strides{1, 71}}) {
      GraphBuilder g("matmul");
      const Tensor left = g.input("a", {131, 71}, DataType::i8, TensorOptions{.strides = a});
      const Tensor right = g.input("b", {71, 99}, DataType::u8, TensorOptions{.strides = b});
      g.output(g.matmul(left, right), {.type = DataType::i32});
      expect_every_config_correct(g.finish(), fmt::format("int8 {} {}", to_string(a), to_string(b)));
    }
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {2, 32, 12, 12}, DataType::i8);
  const Tensor w = g.input("w", {48, 32, 3, 3}, DataType::i8);
  g.output(g.conv_fprop(x, w, {.padding = {1, 1}}), {.type = DataType::i32});
  expect_every_config_correct(g.finish(), "int8 fprop NCHW");
  GraphBuilder h("dgrad");
  const Tensor dx = h.conv_dgrad(h.input("dy", {2, 48, 12, 12}, DataType::i8),
                                 h.input("w", w.dims, DataType::i8), x.dims, {.padding = {1, 1}});
  h.output(dx, {.type = DataType::i32});
  expect_every_config_correct(h.finish(), "int8 dgrad NCHW");
}

TEST(WgmmaRepackedGpu, BytesSummedInFp32) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType first : {DataType::f8_e4m3, DataType::f8_e5m2, DataType::i8})
    for (const DataType second : {DataType::f8_e4m3, DataType::f16, DataType::bf16})
      for (const Dims& mnk : {Dims{300, 260, 1000}, Dims{131, 99, 71}}) {
        GraphBuilder g("matmul");
        const Tensor a = g.input("a", {mnk[0], mnk[2]}, first);
        const Tensor b = g.input("b", {mnk[1], mnk[2]}, second);
        const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
        g.output(g.mul(c, g.scalar("scale", DataType::f32)), {.type = DataType::bf16});
        expect_every_config_correct(
            g.finish(), fmt::format("{} x {} {}", to_string(first), to_string(second), to_string(mnk)));
      }
}

TEST(WgmmaRepackedGpu, BatchesAndLowAlignment) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("batched");
  const Tensor a = g.input("a", {3, 2, 130, 97}, DataType::bf16);
  const Tensor b = g.input("b", {97, 152}, DataType::bf16, TensorOptions{.alignment = 2});
  const Tensor bias = g.input("bias", {152}, DataType::f32);
  g.output(g.gelu(g.add(g.matmul(a, b), bias)));
  expect_every_config_correct(g.finish(), "batched, misaligned");
}

TEST(WgmmaRepackedGpu, OpsBeforeOperands) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("prologue");
  const Tensor x = g.input("x", {2, 64, 12, 12}, DataType::f32);
  const Tensor scale = g.input("scale", {1, 64, 1, 1}, DataType::f32);
  const Tensor normal = g.relu(g.mul(x, scale), {.type = DataType::f16});
  g.output(g.conv_fprop(normal, g.input("w", {64, 64, 3, 3}, DataType::f16)));
  expect_every_config_correct(g.finish(), "scale and relu before the convolution");
}

}  // namespace
}  // namespace fusor
