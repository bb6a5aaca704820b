// Owns the GPU tests of convolutions on the wgmma engine: all passes, in 16 bits, TF32, int8 and fp8, with
// strides, paddings, dilations and groups.
#include <gtest/gtest.h>

#include "tests/gpu/engines/conv_graphs.h"
#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

const ConvCase kConvCases[] = {
    {{2, 64, 14, 14}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{3, 72, 13, 11}, {40, 72, 3, 3}, {.padding = {1, 1}}},
    {{2, 128, 15, 9}, {136, 128, 1, 1}, {}},
    {{1, 16, 20, 18}, {24, 16, 5, 3}, {.pre_padding = {2, 0}, .post_padding = {1, 3}}},
    {{2, 64, 17, 16}, {72, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 64, 12, 12}, {64, 64, 1, 1}, {.stride = {2, 2}}},
    {{2, 64, 19, 17}, {64, 64, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}},
    {{2, 128, 10, 10}, {256, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 10, 12}, {64, 64, 3, 3}, {.padding = {1, 1}, .mode = ConvMode::convolution}},
    {{4, 64, 100}, {96, 64, 5}, {.padding = {2}}},
    {{2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}}},
    {{2, 48, 6, 9, 7}, {40, 48, 2, 3, 2}, {.padding = {1, 1, 0}}},
    // Windows in layers: two and four taps of a line, and one.
    {{2, 32, 6, 9, 7}, {32, 32, 3, 3, 3}, {.padding = {1, 1, 1}}},
    {{2, 16, 5, 8, 11}, {24, 16, 3, 3, 3}, {.padding = {1, 0, 1}}},
    {{1, 64, 7, 8, 9}, {24, 64, 3, 3, 3}, {.padding = {1, 1, 1}}},
    {{1, 32, 9, 6, 8}, {16, 32, 3, 3, 3}, {.padding = {2, 1, 1}, .dilation = {2, 1, 1}}},
    {{1, 16, 6, 7, 8}, {16, 16, 3, 3, 3}, {.padding = {1, 1, 1}, .mode = ConvMode::convolution}},
    {{1, 32, 20, 30, 40}, {64, 32, 3, 3, 3}, {.padding = {1, 1, 1}}},
    {{40, 64, 40, 40}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 18, 20}, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 72, 13, 11}, {40, 72, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{3, 128, 13, 14}, {136, 128, 1, 1}, {.stride = {2, 2}}},
    {{2, 64, 19, 16}, {64, 64, 5, 5}, {.padding = {2, 2}, .stride = {2, 2}}},
    {{2, 64, 17, 18}, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {3, 3}}},
    {{2, 64, 15, 14}, {72, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 1}}},
    {{2, 64, 19, 17}, {64, 64, 3, 3}, {.padding = {2, 2}, .stride = {2, 2}, .dilation = {2, 2}}},
    {{2, 64, 16, 16}, {64, 64, 2, 3}, {.padding = {1, 1}, .stride = {4, 4}}},
    {{2, 128, 11, 10}, {256, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 64, 10, 13}, {64, 64, 3, 2}, {.padding = {1, 1}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{4, 64, 101}, {96, 64, 5}, {.padding = {2}, .stride = {2}}},
    {{2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
    {{40, 64, 40, 40}, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    // Few channels: windows in lines of 32 and 64 bytes, positions as rows, and classes of a stride likewise.
    {{2, 16, 21, 19}, {16, 16, 3, 3}, {.padding = {1, 1}}},
    {{2, 24, 30, 40}, {32, 24, 3, 3}, {.padding = {1, 1}}},
    {{3, 32, 25, 18}, {24, 32, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}},
    {{2, 40, 14, 15}, {8, 40, 5, 3}, {.pre_padding = {2, 0}, .post_padding = {1, 1}}},
    {{20, 64, 40, 40}, {16, 64, 3, 3}, {.padding = {1, 1}}},
    {{40, 32, 40, 40}, {32, 32, 3, 3}, {.padding = {1, 1}}},
    {{4, 32, 100}, {16, 32, 5}, {.padding = {2}}},
    {{2, 16, 19, 20}, {64, 16, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 32, 17, 18}, {40, 32, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{20, 24, 40, 40}, {72, 24, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
};

class WgmmaConvGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaConvGpu, FpropWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  expect_every_config_correct(fprop_bias_relu(c.x, c.w, c.options, DataType::f16, Layout::nhwc),
                              "fprop " + words(c));
}

TEST_P(WgmmaConvGpu, Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::bf16, Layout::nhwc);
  g.output(g.conv_dgrad(dy, w, c.x, c.options), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "dgrad " + words(c));
}

// With operands of the epilogue, a second result, and one that no lines hold.
TEST_P(WgmmaConvGpu, DgradWithResidual) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (c.options.stride.empty()) GTEST_SKIP() << "the others leave by TMA, like fprop";
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("dgrad");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
    const Tensor w = g.input("w", c.w, DataType::bf16, Layout::nhwc);
    const Tensor dx = g.conv_dgrad(dy, w, c.x, c.options);
    const Tensor sum = g.add(dx, g.input("residual", c.x, DataType::bf16, layout));
    g.output(sum, {.name = "sum", .type = DataType::f32, .layout = layout});
    g.output(g.relu(sum), {.type = DataType::bf16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), "dgrad with residual " + words(c));
  }
}

TEST_P(WgmmaConvGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    GraphBuilder g("wgrad");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
    const Tensor x = g.input("x", c.x, DataType::bf16, Layout::nhwc);
    g.output(g.conv_wgrad(dy, x, c.w, c.options), {.type = type, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), "wgrad " + words(c));
  }
}

// Columns behind the channels of a group are the next one's, or zeros, and nobody's results.
TEST(WgmmaGroupsGpu, WgradOfGroupsThatFillNoBlock) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase cases[] = {
      {{3, 48, 13, 11}, {48, 16, 3, 3}, {.padding = {1, 1}}},
      {{2, 72, 18, 10}, {48, 24, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
      {{4, 40, 12, 12}, {80, 8, 5, 3}, {.padding = {2, 1}}},
      {{2, 216, 14, 14}, {216, 72, 3, 3}, {.padding = {1, 1}}},
      {{8, 96, 14}, {96, 48, 3}, {.padding = {1}}},
  };
  for (const ConvCase& c : cases)
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("wgrad");
      const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
      const Tensor x = g.input("x", c.x, DataType::bf16, Layout::nhwc);
      g.output(g.conv_wgrad(dy, x, c.w, c.options), {.type = type, .layout = Layout::nhwc});
      expect_every_config_correct(g.finish(), "wgrad of groups " + words(c));
    }
}

// The epilogue reads what lies along channels, and what lies as the result does; channels that fill up a tap
// have neither.
TEST_P(WgmmaConvGpu, WgradScaledAndAccumulated) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (c.x.rank() != 4) GTEST_SKIP() << "planes are enough";
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", c.x, DataType::bf16, Layout::nhwc);
  const Tensor scale = g.input("scale", {1, c.w[1], 1, 1}, DataType::f32);
  const Tensor before = g.input("before", c.w, DataType::bf16, Layout::nhwc);
  g.output(g.add(g.mul(g.conv_wgrad(dy, x, c.w, c.options), scale), before),
           {.type = DataType::bf16, .layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "accumulated wgrad " + words(c));
}

// fp32 in a graph that allows TF32: lines of 32 elements, along k.
TEST_P(WgmmaConvGpu, Tf32Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("fprop", Precision::allow_tf32);
  const Tensor x = g.input("x", c.x, DataType::f32, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f32, Layout::nhwc);
  g.output(g.relu(g.conv_fprop(x, w, c.options)), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "tf32 fprop " + words(c));
}

// The filter's output channels lie side by side.
TEST_P(WgmmaConvGpu, Tf32Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("dgrad", Precision::allow_tf32);
  Strides strides = packed_strides(c.w);
  int64_t next = c.w[0];
  strides[0] = 1;
  for (int i = c.w.rank() - 1; i >= 1; --i) {
    strides[i] = next;
    next *= c.w[i];
  }
  const Tensor dy = g.input("dy", output_dims(c), DataType::f32, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f32, TensorOptions{.strides = strides});
  g.output(g.conv_dgrad(dy, w, c.x, c.options), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "tf32 dgrad " + words(c));
}

TEST_P(WgmmaConvGpu, Int8Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  const int64_t groups = c.x[1] / c.w[1];
  if (c.w[1] % 16 != 0 || (groups > 1 && c.w[1] % 128 != 0)) GTEST_SKIP() << "lines of 16 bytes";
  for (const DataType type : {DataType::i8, DataType::u8}) {
    GraphBuilder g("fprop");
    const Tensor x = g.input("x", c.x, type, Layout::nhwc);
    const Tensor w = g.input("w", c.w, DataType::i8, Layout::nhwc);
    const Tensor y = g.conv_fprop(x, w, c.options);
    g.output(y, {.name = "sums", .type = DataType::i32, .layout = Layout::nhwc});
    g.output(g.mul(y, g.scalar("scale", DataType::f32)), {.type = DataType::f16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), "int8 fprop " + words(c));
  }
}

TEST_P(WgmmaConvGpu, Fp8FpropInShortSums) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  const int64_t groups = c.x[1] / c.w[1];
  if (c.w[1] % 16 != 0 || (groups > 1 && c.w[1] % 128 != 0)) GTEST_SKIP() << "lines of 16 bytes";
  GraphBuilder g("fprop", Precision::allow_short_sums);
  const Tensor x = g.input("x", c.x, DataType::f8_e4m3, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f8_e4m3, Layout::nhwc);
  g.output(g.relu(g.conv_fprop(x, w, c.options)), {.type = DataType::bf16, .layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "fp8 fprop " + words(c));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaConvGpu, testing::ValuesIn(kConvCases));

}  // namespace
}  // namespace fusor
