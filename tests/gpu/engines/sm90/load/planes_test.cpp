// Owns the tests of wgrad over planes of positions on the GPU: every candidate of the wgmma engine, and of
// wgmma_repacked where lines are no multiples of 16 bytes or channels lie side by side.
#include <gtest/gtest.h>

#include <array>

#include "backend/engines/list.h"
#include "tests/gpu/engines/conv_case.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kWgmmaOnly{&wgmma_engine()}, kRepackedOnly{&wgmma_repacked_engine()};

// Rows of multiples of 16 bytes in x and dy, and taps so far apart along the last axis: runs of several
// lines, tails of lines, rows, filters and channels, rows of one step that reach beyond the last, asymmetric
// padding, dilation, groups, 1 and 3 axes.
const ConvCase kCases[] = {
    {{2, 64, 16, 24}, {64, 64, 3, 1}, {.padding = {1, 0}}},
    {{3, 64, 13, 56}, {64, 64, 3, 1}, {.padding = {1, 0}}},
    {{2, 128, 9, 72}, {136, 128, 3, 3}, {.padding = {1, 8}, .dilation = {1, 8}}},
    {{2, 40, 11, 16}, {36, 40, 3, 1}, {.padding = {1, 0}}},
    {{2, 25, 7, 16}, {24, 25, 3, 1}, {.padding = {1, 0}}},
    {{2, 64, 15, 24}, {72, 64, 3, 1}, {.padding = {2, 0}, .dilation = {2, 1}}},
    {{2, 64, 14, 24}, {64, 64, 3, 2}, {.pre_padding = {2, 0}, .post_padding = {1, 8}, .dilation = {1, 8}}},
    {{2, 64, 12, 48}, {64, 64, 1, 3}, {.padding = {0, 16}, .dilation = {1, 16}}},
    {{2, 64, 12, 24}, {64, 64, 3, 1}, {.padding = {1, 0}}},
    {{2, 64, 12, 40}, {64, 64, 5, 5}, {.padding = {2, 16}, .dilation = {1, 8}}},
    {{2, 64, 12, 24}, {64, 64, 3, 3}, {.padding = {1, 8}, .dilation = {1, 8}, .mode = ConvMode::convolution}},
    {{2, 128, 10, 16}, {256, 64, 3, 1}, {.padding = {1, 0}}},
    {{4, 64, 96}, {96, 64, 5}, {.padding = {16}, .dilation = {8}}},
    {{2, 64, 5, 8, 16}, {64, 64, 3, 3, 1}, {.padding = {1, 1, 0}}},
    {{40, 64, 40, 40}, {64, 64, 3, 1}, {.padding = {1, 0}}},
};

// Planes that must be packed: odd widths, whole planes and rows; in either layout.
const ConvCase kPackedCases[] = {
    {{2, 64, 14, 14}, {64, 64, 3, 1}, {.padding = {1, 0}}},
    {{3, 256, 14, 14}, {256, 256, 3, 1}, {.padding = {1, 0}}},
    {{2, 64, 7, 7}, {72, 64, 3, 1}, {.padding = {1, 0}}},
    {{2, 20, 13, 11}, {36, 20, 3, 3}, {.padding = {1, 4}, .dilation = {1, 4}}},
    {{2, 64, 9, 57}, {64, 64, 3, 1}, {}},
    {{2, 64, 10, 13}, {64, 64, 3, 2}, {.padding = {1, 4}, .dilation = {1, 4}, .mode = ConvMode::convolution}},
    {{2, 128, 15, 9}, {136, 128, 1, 1}, {}},
    {{2, 128, 9, 9}, {256, 64, 3, 1}, {.padding = {1, 0}}},
    {{4, 64, 101}, {96, 64, 5}, {.padding = {8}, .dilation = {4}}},
    {{2, 64, 5, 7, 7}, {64, 64, 3, 3, 1}, {.padding = {1, 1, 0}}},
};

class WgmmaPlanesGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaPlanesGpu, Tf32) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(wgrad_of(GetParam(), DataType::f32, DataType::f32, Layout::nchw), kWgmmaOnly,
                              "tf32 " + words(GetParam()));
}

TEST_P(WgmmaPlanesGpu, Halves) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType type : {DataType::f16, DataType::bf16})
    expect_every_config_correct(wgrad_of(GetParam(), type, type, Layout::nchw), kWgmmaOnly,
                                std::string(to_string(type)) + " " + words(GetParam()));
}

TEST_P(WgmmaPlanesGpu, Bytes) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  const Graph graph = wgrad_of(c, DataType::i8, DataType::i32, Layout::nchw);
  for (const Tensor& tensor : graph.tensors)
    if (tensor.dims != c.w && tensor.dims[tensor.dims.rank() - 1] % 16 != 0)
      GTEST_SKIP() << "lines of 16 bytes";
  if (!c.options.dilation.empty() && c.options.dilation[c.w.rank() - 3] % 16 != 0 && c.w[c.w.rank() - 1] > 1)
    GTEST_SKIP() << "taps of 16 bytes";
  expect_every_config_correct(graph, kWgmmaOnly, "int8 " + words(c));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaPlanesGpu, testing::ValuesIn(kCases));

class WgmmaPackedPlanesGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaPackedPlanesGpu, Tf32) {
  FUSOR_NEEDS_HOPPER();
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    expect_every_config_correct(wgrad_of(GetParam(), DataType::f32, DataType::f32, layout), kRepackedOnly,
                                "packed tf32 " + words(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, WgmmaPackedPlanesGpu, testing::ValuesIn(kPackedCases));

TEST(WgmmaPlanesEpilogueGpu, ScaleAndAccumulation) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(
      scaled_and_accumulated_wgrad({{4, 64, 12, 24}, {72, 64, 3, 1}, {.padding = {1, 0}}}), kWgmmaOnly,
      "scale and accumulation");
}

}  // namespace
}  // namespace fusor
