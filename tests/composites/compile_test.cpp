// Tests that NVRTC compiles what composites expand to.
#include <gtest/gtest.h>

#include "backend/build.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

void expect_kernels(const Graph& graph) {
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = true});
  EXPECT_FALSE(plan.fusions.empty());
}

TEST(CompositeKernels, OfSoftmax) {
  GraphBuilder g;
  const SoftmaxResults all =
      g.softmax(g.input("x", {64, 1000}, DataType::bf16), {.sink = g.input("sink", {64, 1}, DataType::f32)});
  expect_kernels(g.finish({all.y, all.logsumexp}));
}

TEST(CompositeKernels, OfANormsGradients) {
  GraphBuilder g;
  const Tensor dy = g.input("dy", {8, 32, 6, 6}, DataType::f16, Layout::nhwc);
  const Tensor x = g.input("x", {8, 32, 6, 6}, DataType::f16, Layout::nhwc);
  const NormGradients all = g.norm_bwd(
      dy, x,
      {.norm = NormMode::group_norm, .groups = 4, .scale = g.input("s", {1, 32, 1, 1}, DataType::f32)});
  expect_kernels(g.finish({all.dx, all.dscale, all.dbias}));
}

TEST(CompositeKernels, OfMaxPool) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 8, 20, 20}, DataType::f16, Layout::nhwc);
  const ResampleOptions options{
      .window = {3, 3}, .stride = {2, 2}, .pre_padding = {1, 1}, .post_padding = {1, 1}};
  const ResampleResults all = g.resample_fwd(x, options);
  const Tensor dy = g.input("dy", {4, 8, 10, 10}, DataType::f16, Layout::nhwc);
  expect_kernels(g.finish({all.y, all.index, g.resample_bwd(dy, x.dims, options, {}, all.index)}));
}

}  // namespace
}  // namespace fusor
