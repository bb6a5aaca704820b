// Owns the GPU tests of pointwise convolutions on the wgmma engine, which carries them out as matmuls.
#include <gtest/gtest.h>

#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// Pointwise convolutions, which are matmuls: channels last or first, tails of positions and channels.
const ConvCase kPointwiseCases[] = {
    {{2, 64, 16, 16}, {128, 64, 1, 1}, {}},    {{3, 72, 12, 14}, {40, 72, 1, 1}, {}},
    {{5, 128, 28, 28}, {264, 128, 1, 1}, {}},  {{1, 64, 24, 17}, {72, 64, 1, 1}, {}},
    {{24, 64, 28, 28}, {136, 64, 1, 1}, {}},   {{4, 64, 200}, {96, 64, 1}, {}},
    {{2, 64, 3, 8, 7}, {64, 64, 1, 1, 1}, {}},
};

class WgmmaPointwiseGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaPointwiseGpu, FpropWithBiasResidualAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout from : {Layout::nhwc, Layout::nchw})
    for (const Layout to : {Layout::nhwc, Layout::nchw}) {
      GraphBuilder g("fprop");
      const Tensor x = g.input("x", c.x, DataType::f16, from);
      const Tensor w = g.input("w", c.w, DataType::f16);
      const Tensor bias = g.input("bias", test::channel_dims(c.x.rank(), c.w[0]), DataType::f16);
      const Tensor residual = g.input("residual", output_dims(c), DataType::f16, to);
      g.output(g.relu(g.add(g.add(g.conv_fprop(x, w), bias), residual)), {.layout = to});
      expect_every_config_correct(g.finish(), "pointwise fprop " + words(c));
    }
}

TEST_P(WgmmaPointwiseGpu, DgradWithTwoResults) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("dgrad");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, layout);
    const Tensor dx = g.conv_dgrad(dy, g.input("w", c.w, DataType::bf16), c.x);
    g.output(dx, {.name = "dx", .type = DataType::bf16, .layout = layout});
    g.output(g.mul(dx, g.constant(0.5)), {.type = DataType::f32, .layout = layout});
    expect_every_config_correct(g.finish(), "pointwise dgrad " + words(c));
  }
}

TEST_P(WgmmaPointwiseGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("wgrad");
      const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, layout);
      const Tensor x = g.input("x", c.x, DataType::bf16, layout);
      g.output(g.conv_wgrad(dy, x, c.w), {.type = type});
      expect_every_config_correct(g.finish(), "pointwise wgrad " + words(c));
    }
}

// k side by side: channels of NHWC, positions of NCHW.
TEST_P(WgmmaPointwiseGpu, Tf32FpropAndWgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder forward("fprop", Precision::allow_tf32);
  const Tensor rows = forward.input("x", c.x, DataType::f32, Layout::nhwc);
  forward.output(forward.conv_fprop(rows, forward.input("w", c.w, DataType::f32)), {.layout = Layout::nhwc});
  expect_every_config_correct(forward.finish(), "tf32 pointwise fprop " + words(c));
  GraphBuilder g("wgrad", Precision::allow_tf32);
  const Tensor dy = g.input("dy", output_dims(c), DataType::f32), x = g.input("x", c.x, DataType::f32);
  g.output(g.conv_wgrad(dy, x, c.w));
  expect_every_config_correct(g.finish(), "tf32 pointwise wgrad " + words(c));
}

// Positions are the rows, and lie across k.
TEST_P(WgmmaPointwiseGpu, Tf32FpropOfPlanesWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  int64_t positions = 1;
  for (int i = 2; i < c.x.rank(); ++i) positions *= c.x[i];
  if (positions % 4 != 0 || c.w[1] % 4 != 0) GTEST_SKIP() << "lines of 16 bytes";
  for (const DataType type : {DataType::f32, DataType::f16}) {
    GraphBuilder g("fprop", Precision::allow_tf32);
    const Tensor y = g.conv_fprop(g.input("x", c.x, DataType::f32), g.input("w", c.w, DataType::f32));
    g.output(g.relu(g.add(y, g.input("bias", test::channel_dims(c.x.rank(), c.w[0]), DataType::f32))),
             {.type = type});
    expect_every_config_correct(g.finish(), "tf32 planes " + words(c));
  }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaPointwiseGpu, testing::ValuesIn(kPointwiseCases));

}  // namespace
}  // namespace fusor
