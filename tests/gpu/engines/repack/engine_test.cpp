// Owns the tests of the wgmma_repacked engine on the GPU: every candidate of convolutions whose operands and
// results lie otherwise than its copies want them. Matmuls, groups, results in planes and the rewrites have
// files of their own.
#include <gtest/gtest.h>

#include <utility>

#include "tests/gpu/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked_cases;

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

class WgmmaRepackedConvGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaRepackedConvGpu, FpropWithBiasReluAndResidual) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", c.x, DataType::f16);
  const Tensor w = g.input("w", c.w, DataType::f16);
  const Tensor bias = g.input("bias", test::channel_dims(c.x.rank(), c.w[0]), DataType::f16);
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
