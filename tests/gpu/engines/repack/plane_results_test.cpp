// Owns the GPU tests of the wgmma_repacked engine's results that lie NCHW, where the product itself stores
// them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked_cases;

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
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kRepackedOnly}))
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
    const Tensor bias = g.input("bias", test::channel_dims(c.x.rank(), c.w[0]), DataType::f16);
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

}  // namespace
}  // namespace fusor
