// Owns the GPU tests of the rewrite that cuts a wgrad of strides into phases.
#include <gtest/gtest.h>

#include "tests/gpu/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked_cases;

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
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kRepackedOnly}))
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

}  // namespace
}  // namespace fusor
