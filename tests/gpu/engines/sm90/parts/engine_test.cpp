// Owns the tests of wgmma_parts on the GPU: every candidate against the oracle, for odd sizes, transposes,
// strides, prologues, epilogues and batches, and for the three passes of convolutions. Numbers chosen against
// it: tests/gpu/engines/tiled/parts_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/contraction_cases.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor {
namespace {

void expect_correct_by_wgmma(const Graph& graph, const std::string& what) {
  static const std::array<const Engine*, 2> kEngines = {&wgmma_parts_engine(), &elementwise_engine()};
  expect_every_candidate_correct(graph, what, {.engine_list = kEngines});
}

TEST(WgmmaPartsGpu, MatmulOfOddSizes) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{1, 1, 16}, Dims{17, 33, 65}, Dims{129, 67, 1000}, Dims{300, 8, 21},
                          Dims{200, 264, 136}, Dims{64, 48, 6001}}) {
    GraphBuilder g("matmul");
    const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::f32);
    const Tensor b = g.input("b", {mnk[2], mnk[1]}, DataType::f32);
    expect_correct_by_wgmma(g.finish({g.matmul(a, b)}), to_string(mnk));
  }
}

TEST(WgmmaPartsGpu, MatmulOfEveryTransposeAndStride) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a_strides : {Strides{72, 1}, Strides{1, 160}, Strides{145, 2}, Strides{73, 1}})
    for (const Strides& b_strides : {Strides{208, 1}, Strides{1, 72}, Strides{2, 401}}) {
      GraphBuilder g("matmul");
      const Tensor a = g.input("a", {160, 72}, DataType::f32, {.strides = a_strides, .alignment = 4});
      const Tensor b = g.input("b", {72, 200}, DataType::f32, {.strides = b_strides});
      g.output(g.matmul(a, b));
      expect_correct_by_wgmma(g.finish(), fmt::format("{} {}", to_string(a_strides), to_string(b_strides)));
    }
}

TEST(WgmmaPartsGpu, ProloguesEpiloguesAndBatches) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t k : {61, 128}) {
    GraphBuilder g("prologue");
    const Tensor a = g.input("a", {3, 61, k}, DataType::f32), b = g.input("b", {k, 48}, DataType::f32);
    const Tensor scale = g.input("scale", {1, k}, DataType::f32),
                 bias = g.input("bias", {1, 48}, DataType::f32);
    const Tensor c = g.matmul(g.add(g.mul(a, scale), g.constant(0.5)), b);
    g.output(g.relu(g.add(c, bias)));
    expect_correct_by_wgmma(g.finish(), fmt::format("k {}", k));
    for (const Dims& heads : {Dims{1, 3, k, 72}, Dims{2, 1, k, 72}}) {
      GraphBuilder shared("shared");
      shared.output(shared.matmul(shared.input("a", {2, 3, 40, k}, DataType::f32),
                                  shared.input("b", heads, DataType::f32)));
      expect_correct_by_wgmma(shared.finish(), fmt::format("weights {}", to_string(heads)));
    }
    GraphBuilder batch("batch");
    batch.output(batch.matmul(batch.input("a", {2, 3, 40, k}, DataType::f32),
                              batch.input("b", {2, 3, k, 72}, DataType::f32)));
    expect_correct_by_wgmma(batch.finish(), fmt::format("batch, k {}", k));
  }
}

struct Pass {
  ConvPass pass;
  const char* name;
};

class WgmmaPartsConvGpu : public testing::TestWithParam<Pass> {};

// Images of a weight gradient fill up steps with zeros, channels of the other passes.
TEST_P(WgmmaPartsConvGpu, IsRightForEveryCandidate) {
  FUSOR_NEEDS_HOPPER();
  int taken = 0;
  for (const contraction_cases::PaddedConv& c : contraction_cases::kConvs)
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      for (const ConvMode mode : {ConvMode::cross_correlation, ConvMode::convolution}) {
        if (c.w[1] != c.x[1]) continue;
        const std::string what =
            fmt::format("{}, {}", contraction_cases::to_string(c, GetParam().pass, DataType::f32, layout),
                        to_string(mode));
        expect_correct_by_wgmma(
            contraction_cases::convolution(c, GetParam().pass, DataType::f32, layout, mode), what);
        ++taken;
      }
  EXPECT_GT(taken, 20);
}

// Memory's neighbours are what steps of k walk, scratch's are others: zeros fill up steps there, too.
TEST(WgmmaPartsGpu, NeighboursAlongK) {
  FUSOR_NEEDS_HOPPER();
  const Dims x{5, 24, 6, 7}, w{40, 24, 3, 3}, y{5, 40, 6, 7};
  const ConvOptions options{.padding = {1, 1}};
  const auto first_axis_adjacent = [](const Dims& dims) {
    return Strides{1, dims[0], dims[0] * dims[1] * dims[3], dims[0] * dims[1]};
  };
  const auto input = [&](GraphBuilder& g, const char* name, const Dims& dims) {
    return g.input(name, dims, DataType::f32, {.strides = first_axis_adjacent(dims), .alignment = 4});
  };
  GraphBuilder dgrad("dgrad");
  dgrad.output(dgrad.conv_dgrad(dgrad.input("dy", y, DataType::f32), input(dgrad, "w", w), x, options));
  expect_correct_by_wgmma(dgrad.finish(), "output channels of the filter");
  GraphBuilder wgrad("wgrad");
  wgrad.output(wgrad.conv_wgrad(input(wgrad, "dy", y), input(wgrad, "x", x), w, options));
  expect_correct_by_wgmma(wgrad.finish(), "images");
}

INSTANTIATE_TEST_SUITE_P(Passes, WgmmaPartsConvGpu,
                         testing::Values(Pass{ConvPass::fprop, "Fprop"}, Pass{ConvPass::dgrad, "Dgrad"},
                                         Pass{ConvPass::wgrad, "Wgrad"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fusor
