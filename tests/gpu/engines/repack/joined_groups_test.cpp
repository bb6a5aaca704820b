// Owns the GPU tests of the wgmma_repacked engine on groups of few channels, which it joins into blocks.
#include <gtest/gtest.h>

#include "tests/gpu/engines/conv_graphs.h"
#include "tests/gpu/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked_cases;

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
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    expect_every_config_correct(fprop_bias_relu(c.x, c.w, c.options, DataType::bf16, layout),
                                "grouped fprop " + words(c));
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

}  // namespace
}  // namespace fusor
