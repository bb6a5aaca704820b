// Owns the tests of the wgmma_taps engine on the GPU: every candidate against the oracle, on planes and
// windows of all kinds that it takes.
#include <gtest/gtest.h>

#include <array>

#include "backend/engines/list.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/conv_case.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kTapsOnly{&wgmma_taps_engine()};

// Planes that end within a step or with one, rows shorter than a wgmma's eight, rings from three pieces to as
// many as fit; tails of channels and filters; images that parts cut in two; one tap a consumer, two, three,
// and consumers that lack one; padding of any height; dilation, mirrored windows, groups, one axis.
const ConvCase kCases[] = {
    {{2, 64, 14, 14}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{5, 256, 14, 14}, {256, 256, 3, 3}, {.padding = {1, 1}}},
    {{3, 64, 56, 56}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{133, 64, 8, 8}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 12, 20}, {72, 64, 3, 3}, {.padding = {1, 1}}},
    {{3, 20, 7, 4}, {24, 20, 3, 3}, {.padding = {1, 1}}},
    {{1, 3, 30, 30}, {17, 3, 3, 3}, {.padding = {1, 1}}},
    {{1, 130, 9, 12}, {100, 130, 3, 3}, {.padding = {0, 1}}},
    {{2, 64, 4, 224}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 112, 112}, {32, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 16, 16}, {64, 64, 1, 3}, {.padding = {0, 1}}},
    {{2, 64, 18, 14}, {200, 64, 3, 1}, {.padding = {1, 0}}},
    {{2, 64, 17, 20}, {64, 64, 1, 7}, {.padding = {0, 3}}},
    {{2, 64, 16, 16}, {96, 64, 2, 2}, {.post_padding = {1, 1}}},
    {{2, 64, 16, 18}, {64, 64, 2, 3}, {.pre_padding = {1, 1}, .post_padding = {0, 1}}},
    {{2, 64, 20, 20}, {64, 64, 3, 3}, {.padding = {2, 5}, .dilation = {2, 5}}},
    {{2, 64, 12, 18}, {64, 64, 3, 3}, {.pre_padding = {0, 2}, .post_padding = {4, 0}}},
    {{2, 64, 12, 18}, {64, 64, 3, 3}, {.padding = {1, 1}, .mode = ConvMode::convolution}},
    {{2, 128, 12, 12}, {96, 32, 3, 3}, {.padding = {1, 1}}},
    {{3, 64, 300}, {64, 64, 5}, {.padding = {2}}},
    {{3, 64, 300}, {64, 64, 9}, {}},
};

class WgmmaTapsGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaTapsGpu, EveryCandidateIsRight) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(wgrad_of(GetParam()), kTapsOnly, words(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaTapsGpu, testing::ValuesIn(kCases));

TEST(WgmmaTapsEpilogueGpu, ScaleAndAccumulation) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(
      scaled_and_accumulated_wgrad({{4, 64, 12, 24}, {72, 64, 3, 3}, {.padding = {1, 1}}}), kTapsOnly,
      "scale and accumulation");
}

TEST(WgmmaTapsRunsGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  const Graph graph = wgrad_of({{37, 64, 28, 28}, {64, 64, 3, 3}, {.padding = {1, 1}}});
  expect_same_bits(graph, build(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kTapsOnly}));
}

}  // namespace
}  // namespace fusor
