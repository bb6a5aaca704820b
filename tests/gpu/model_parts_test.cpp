// Owns the tests on the GPU of parts of models that meet several engines: norms behind permuted convolutions,
// gradients of biases in other axes, filters of patches.
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

// A convolution of 1x1 with a bias, channels last: [n, channels, size, size].
Tensor convolution(GraphBuilder& g, int64_t n, int64_t channels, int64_t size) {
  const Tensor x = g.input("x", {n, 64, size, size}, DataType::bf16, Layout::nhwc);
  const Tensor product = g.conv_fprop(x, g.input("w", {channels, 64, 1, 1}, DataType::bf16));
  return g.add(product, g.input("b", {1, channels, 1, 1}, DataType::bf16), {.type = DataType::bf16});
}

TEST(ModelPartsGpu, MeansOverChannelsOfAConvolution) {
  FUSOR_NEEDS_GPU();
  for (const int64_t channels : {96, 640}) {
    GraphBuilder g;
    const Tensor y = convolution(g, 8, channels, 32);
    g.output(y, {.name = "y", .layout = Layout::nhwc});
    g.output(g.reduce(y, ReductionMode::avg, {1}), {.name = "mean", .type = DataType::f32});
    expect_correct(g.finish(), "means over " + std::to_string(channels) + " channels");
  }
}

TEST(ModelPartsGpu, ANormBehindAPermutedConvolution) {
  FUSOR_NEEDS_GPU();
  for (const int64_t channels : {96, 640}) {
    GraphBuilder g;
    const Tensor y = convolution(g, 8, channels, 32);
    g.output(y, {.name = "y", .layout = Layout::nhwc});
    const Tensor tokens = g.reshape(g.transpose(y, {0, 2, 3, 1}), {8, 1024, channels});
    const Tensor apart = g.sub(tokens, g.reduce(tokens, ReductionMode::avg, {2}));
    const Tensor variance = g.reduce(g.mul(apart, apart), ReductionMode::avg, {2});
    g.output(g.mul(apart, g.rsqrt(g.add(variance, g.constant(1e-5)))),
             {.name = "normed", .type = DataType::bf16});
    expect_correct(g.finish(), "a norm of " + std::to_string(channels) + " channels");
  }
}

// Sequences first in memory, as PyTorch's attention layers leave gradients; sums for biases in merged and
// turned rows.
TEST(ModelPartsGpu, BiasGradientsBesideANormsGradient) {
  FUSOR_NEEDS_GPU();
  for (const int64_t width : {96, 640, 768}) {
    GraphBuilder g;
    constexpr int64_t kEntries = 8, kTokens = 197;
    const Dims dims{kEntries, kTokens, width}, statistics{kEntries, kTokens, 1};
    const Tensor turned = g.input("dy", {kTokens, kEntries, width}, DataType::bf16);
    const NormGradients made = g.norm_bwd(g.transpose(turned, {1, 0, 2}), g.input("x", dims, DataType::bf16),
                                          {.norm = NormMode::layer_norm,
                                           .scale = g.input("scale", {1, 1, width}, DataType::bf16),
                                           .mean = g.input("mean", statistics, DataType::f32),
                                           .inv_std = g.input("inv_std", statistics, DataType::f32)});
    const Tensor y = g.add(g.input("beside", dims, DataType::bf16), made.dx, {.type = DataType::bf16});
    const Tensor rows = g.reshape(g.transpose(y, {1, 0, 2}), {kEntries * kTokens, width});
    g.output(y, {.name = "y"});
    g.output(made.dscale, {.name = "dscale"});
    g.output(made.dbias, {.name = "dbias"});
    g.output(g.reduce(rows, ReductionMode::add, {0}), {.name = "sum", .type = DataType::bf16});
    expect_correct(g.finish(), "rows of " + std::to_string(width));
  }
}

// The gradient's launch is there when the product in front of it still runs: nothing may be loaded before
// that has ended.
TEST(ModelPartsGpu, ANormsGradientBehindAProduct) {
  FUSOR_NEEDS_GPU();
  for (const int64_t width : {96, 768}) {
    GraphBuilder g;
    constexpr int64_t kRows = 6304;
    const Dims dims{kRows, width}, statistics{kRows, 1};
    const Tensor dy =
        g.matmul(g.input("dz", {kRows, width}, DataType::bf16), g.input("w", {width, width}, DataType::bf16));
    const NormGradients made = g.norm_bwd(dy, g.input("x", dims, DataType::bf16),
                                          {.norm = NormMode::layer_norm,
                                           .scale = g.input("scale", {1, width}, DataType::bf16),
                                           .mean = g.input("mean", statistics, DataType::f32),
                                           .inv_std = g.input("inv_std", statistics, DataType::f32)});
    g.output(made.dx, {.name = "dx", .type = DataType::bf16});
    g.output(made.dscale, {.name = "dscale", .type = DataType::bf16});
    g.output(made.dbias, {.name = "dbias", .type = DataType::bf16});
    expect_correct(g.finish(), "rows of " + std::to_string(width));
  }
}

TEST(ModelPartsGpu, FiltersOfPatches) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g;
  const Tensor x = g.input("x", {8, 3, 224, 224}, DataType::bf16, Layout::nhwc);
  const Tensor tokens = g.input("dy", {8, 197, 768}, DataType::bf16);
  const Tensor dy =
      g.reshape(g.transpose(g.slice(tokens, {0, 1, 0}, {8, 197, 768}), {0, 2, 1}), {8, 768, 14, 14});
  const Tensor dw = g.conv_wgrad(dy, x, {768, 3, 16, 16}, {.stride = {16, 16}});
  g.output(dw, {.name = "dw", .type = DataType::bf16, .layout = Layout::nhwc});
  expect_correct(g.finish(), "filters of patches");
}

}  // namespace
}  // namespace fusor
