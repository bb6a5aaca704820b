// Owns the GPU tests of convolutions of patches that the wgmma engine carries out as ones of strides 1.
#include <gtest/gtest.h>

#include "tests/gpu/engines/conv_graphs.h"
#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// Lines of a window that are a multiple of 16 bytes: of one line of a box, of more, of two sizes; one axis.
const ConvCase kPatches[] = {
    {{3, 3, 64, 48}, {72, 3, 16, 16}, {.stride = {16, 16}}},
    {{2, 3, 96, 64}, {64, 3, 32, 32}, {.stride = {32, 32}}},
    {{5, 4, 36, 40}, {136, 4, 9, 10}, {.stride = {9, 10}}},
    {{2, 24, 30, 45}, {64, 24, 10, 9}, {.stride = {10, 9}}},
    {{4, 4, 240}, {64, 4, 12}, {.stride = {12}}},
};

class WgmmaPatchesGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaPatchesGpu, FpropWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  expect_every_config_correct(fprop_bias_relu(c.x, c.w, c.options, DataType::f16, Layout::nhwc),
                              "fprop of patches " + words(c));
}

TEST_P(WgmmaPatchesGpu, Gradients) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const ConvPass pass : {ConvPass::dgrad, ConvPass::wgrad}) {
    GraphBuilder g("patches");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
    const bool is_dgrad = pass == ConvPass::dgrad;
    const Tensor other = g.input(is_dgrad ? "w" : "x", is_dgrad ? c.w : c.x, DataType::bf16, Layout::nhwc);
    const Tensor result =
        is_dgrad ? g.conv_dgrad(dy, other, c.x, c.options) : g.conv_wgrad(dy, other, c.w, c.options);
    g.output(result, {.layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), std::string(to_string(pass)) + " of patches " + words(c));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, WgmmaPatchesGpu, testing::ValuesIn(kPatches));

}  // namespace
}  // namespace fusor
