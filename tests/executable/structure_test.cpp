// Owns the promise that names and extents are no part of a kernel: the same structure again compiles nothing.
#include <gtest/gtest.h>

#include "backend/build.h"
#include "codegen/kernel_cache.h"
#include "codegen/nvrtc.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

Graph chain(const std::string& prefix, int64_t rows, int64_t columns) {
  GraphBuilder g(prefix);
  const Tensor x = g.input(prefix + "x", {rows, columns}, DataType::bf16);
  const Tensor b = g.input(prefix + "b", {1, columns}, DataType::bf16);
  return g.finish({g.gelu(g.add(x, b, {.name = prefix + "bias"}), {.name = prefix + "act"})});
}

Graph convolution(const std::string& prefix, int64_t n, int64_t c, int64_t k, int64_t size) {
  GraphBuilder g(prefix);
  const Tensor x = g.input(prefix + "x", {n, c, size, size}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input(prefix + "w", {k, c, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input(prefix + "b", {1, k, 1, 1}, DataType::f16);
  return g.finish({g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b))});
}

Graph wgrad(const std::string& prefix, int64_t n, int64_t c, int64_t k, int64_t size) {
  GraphBuilder g(prefix);
  const Tensor dy = g.input(prefix + "dy", {n, k, size, size}, DataType::f16, Layout::nhwc);
  const Tensor x = g.input(prefix + "x", {n, c, size, size}, DataType::f16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {k, c, 3, 3}, {.padding = {1, 1}}), {.layout = Layout::nhwc});
  return g.finish();
}

Graph matmul(const std::string& prefix, int64_t m, int64_t n, int64_t k) {
  GraphBuilder g(prefix);
  const Tensor a = g.input(prefix + "a", {m, k}, DataType::bf16);
  return g.finish({g.matmul(a, g.input(prefix + "b", {k, n}, DataType::bf16))});
}

void expect_nothing_compiled(const Graph& first, const Graph& second) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  const Plan plan = build(first, device);
  const int64_t before = cache_stats().compilations;
  const Plan other = build(second, device);
  EXPECT_EQ(cache_stats().compilations, before) << to_string(plan.fusions.at(0).config) << "\n"
                                                << to_string(other.fusions.at(0).config);
}

TEST(Structure, OtherNamesAndExtentsOfAChainCompileNothing) {
  expect_nothing_compiled(chain("p", 4096, 8192), chain("other", 8192, 5120));
}

// Extents choose tiles, and tiles are part of a kernel: the two are alike enough to choose the same ones.
TEST(Structure, OtherNamesAndExtentsOfAConvolutionCompileNothing) {
  expect_nothing_compiled(convolution("p", 256, 256, 256, 56), convolution("other", 512, 256, 256, 30));
}

TEST(Structure, OtherNamesAndExtentsOfAWgradCompileNothing) {
  expect_nothing_compiled(wgrad("p", 256, 256, 256, 56), wgrad("other", 512, 256, 256, 30));
}

TEST(Structure, OtherNamesAndExtentsOfATensorCoreMatmulCompileNothing) {
  expect_nothing_compiled(matmul("p", 8192, 6144, 2048), matmul("other", 12288, 4096, 2304));
}

}  // namespace
}  // namespace fusor
