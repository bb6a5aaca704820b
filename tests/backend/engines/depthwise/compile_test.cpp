// Owns the check that the depthwise engine's kernels compile for every target, without spills and without
// local memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/depthwise/cases.h"

namespace fusor {
namespace {

using depthwise_cases::Case;
using test::expect_all_compiled;
using test::KernelCase;

// The kernels of the candidates of a case, or of the last one only.
void add_kernels(const Case& c, const DeviceInfo& device, bool all, std::vector<KernelCase>& kernels) {
  const Fusion fusion = depthwise_cases::fusion(c);
  const auto candidates = test::candidates(depthwise_engine(), fusion, device);
  for (size_t i = all ? 0 : candidates.size() - 1; i < candidates.size(); ++i)
    test::add_kernels(
        fmt::format("{} {} {}", to_string(c.pass), to_string(c.type), to_string(candidates[i].config)),
        test::lower(depthwise_engine(), fusion, candidates[i].config, device), kernels);
}

// Those of the first candidate, which multiplies on tensor cores where any does.
void add_first_kernel(const std::string& what, const Fusion& fusion, const DeviceInfo& device,
                      std::vector<KernelCase>& kernels) {
  const EngineConfig config = test::candidates(depthwise_engine(), fusion, device).front().config;
  test::add_kernels(fmt::format("{} {}", what, to_string(config)),
                    test::lower(depthwise_engine(), fusion, config, device), kernels);
}
void add_first_kernel(const Case& c, const DeviceInfo& device, std::vector<KernelCase>& kernels) {
  add_first_kernel(fmt::format("{} {}", to_string(c.pass), to_string(c.type)), depthwise_cases::fusion(c),
                   device, kernels);
}

// Bias, a gradient of gelu by a saved value, a residual; three results.
Fusion with_epilogue(int64_t window) {
  GraphBuilder g("epilogue");
  const Dims dims{4, 64, 28, 28};
  const auto pixels = [&](const char* name) { return g.input(name, dims, DataType::bf16, Layout::nhwc); };
  const Tensor dy = pixels("dy"), w = g.input("w", {64, 1, window, window}, DataType::bf16);
  const int64_t padding = window / 2;
  const Tensor dx = g.conv_dgrad(dy, w, dims, {.padding = {padding, padding}});
  const Tensor biased = g.add(dx, g.input("bias", {1, 64, 1, 1}, DataType::f32));
  const Tensor gradient = g.gelu_bwd(biased, pixels("saved")), sum = g.add(gradient, pixels("residual"));
  const auto result = [&](const Tensor& value) { return g.output(value, {.layout = Layout::nhwc}); };
  return depthwise_cases::fusion_of(g.finish({result(biased), result(gradient), result(g.relu(sum))}));
}

class DepthwiseKernels : public testing::TestWithParam<int> {};

TEST_P(DepthwiseKernels, OfEveryPassAndTypeCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const std::vector<int> targets = nvrtc::targets();
  if (std::ranges::find(targets, GetParam()) == targets.end())
    GTEST_SKIP() << "this NVRTC does not compile for compute capability " << GetParam();
  DeviceInfo device = DeviceInfo::named("H200");
  device.compute_capability = GetParam();
  std::vector<KernelCase> kernels;
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const DataType type : {DataType::f16, DataType::bf16, DataType::f32})
      add_kernels({.pass = pass, .type = type, .fused = true}, device, false, kernels);
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    add_kernels({.extent = 56, .pass = pass, .type = DataType::bf16, .layout = Layout::nchw, .fused = true},
                device, false, kernels);
  expect_all_compiled(kernels);
}

INSTANTIATE_TEST_SUITE_P(Targets, DepthwiseKernels, testing::Values(75, 80, 86, 89, 90, 100, 120),
                         [](const auto& instance) { return fmt::format("sm_{}", instance.param); });

TEST(DepthwiseVariants, OfEveryWindowStrideAndVectorCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<KernelCase> kernels;
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad}) {
    for (const int64_t window : {3, 5, 7, 9})
      add_kernels({.window = window, .pass = pass}, device, true, kernels);
    for (const int64_t stride : {2, 5}) add_kernels({.stride = stride, .pass = pass}, device, true, kernels);
    for (const int64_t channels : {7, 12})
      add_kernels({.channels = channels, .pass = pass}, device, false, kernels);
    add_kernels({.channels = 64, .extent = 1024, .images = 64, .pass = pass}, device, false, kernels);
  }
  expect_all_compiled(kernels);
}

TEST(DepthwiseVariants, OnTensorCoresCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  DeviceInfo device = DeviceInfo::named("H200");
  std::vector<KernelCase> kernels;
  for (const int target : nvrtc::targets()) {
    if (target < 80) continue;
    device.compute_capability = target;
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (const int64_t channels : {8, 16, 96})
        add_first_kernel({.channels = channels, .window = 7, .pass = pass, .type = DataType::bf16}, device,
                         kernels);
    for (const int64_t window : {3, 4, 5, 6})
      add_first_kernel({.window = window, .type = DataType::f16}, device, kernels);
    for (const int64_t window : {3, 5, 7})
      add_first_kernel("epilogue", with_epilogue(window), device, kernels);
  }
  expect_all_compiled(kernels);
}

TEST(DepthwiseVariants, OfPlanesCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<KernelCase> kernels;
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad}) {
    for (const int64_t window : {3, 5, 7})
      for (const int64_t extent : {7, 14, 28, 56})
        add_kernels({.window = window, .extent = extent, .pass = pass, .layout = Layout::nchw}, device,
                    extent == 56, kernels);
    for (const int64_t stride : {2, 3})
      add_kernels({.stride = stride, .extent = 56, .pass = pass, .layout = Layout::nchw}, device, true,
                  kernels);
    for (const DataType type : {DataType::f32, DataType::f16})
      add_kernels(
          {.window = 5, .extent = 30, .pass = pass, .type = type, .layout = Layout::nchw, .fused = true},
          device, true, kernels);
    add_kernels({.dilation = 2, .extent = 28, .pass = pass, .layout = Layout::nchw}, device, false, kernels);
    add_kernels({.spatial = 1, .window = 7, .extent = 512, .pass = pass, .layout = Layout::nchw}, device,
                true, kernels);
  }
  expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
