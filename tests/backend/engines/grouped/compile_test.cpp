// Owns the check that the grouped engine's kernel compiles for every target, without spills and without local
// memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/grouped/cases.h"

namespace fusor {
namespace {

using grouped_cases::Case;
using test::expect_all_compiled;
using test::KernelCase;

void add_kernels(const Case& c, const DeviceInfo& device, size_t most, std::vector<KernelCase>& kernels) {
  const Fusion fusion = grouped_cases::fusion(c);
  const auto candidates = test::candidates(grouped_engine(), fusion, device);
  for (size_t i = 0; i < candidates.size() && i < most; ++i)
    test::add_kernels(fmt::format("{} {} of {} and {} {}", to_string(c.pass), to_string(c.type), c.in, c.out,
                                  to_string(candidates[i].config)),
                      test::lower(grouped_engine(), fusion, candidates[i].config, device), kernels);
}

TEST(GroupedKernels, OfEveryTargetCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  DeviceInfo device = DeviceInfo::named("H200");
  std::vector<KernelCase> kernels;
  for (const int target : nvrtc::targets()) {
    if (target < 80) continue;
    device.compute_capability = target;
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
      add_kernels({.pass = pass, .type = target % 20 == 0 ? DataType::bf16 : DataType::f16, .fused = true},
                  device, 1, kernels);
  }
  expect_all_compiled(kernels);
}

TEST(GroupedKernels, OfEveryNumberOfChannelsCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<KernelCase> kernels;
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
    for (const int64_t channels : {8, 16, 24, 32, 40, 48})
      add_kernels({.in = channels, .out = channels, .pass = pass}, device, channels == 24 ? 16 : 3, kernels);
  expect_all_compiled(kernels);
}

TEST(GroupedKernels, OfOtherWindowsAndFiltersCompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<KernelCase> kernels;
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad}) {
    add_kernels({.stride = 2, .pass = pass}, device, 3, kernels);
    add_kernels({.stride = 3, .pass = pass, .fused = true}, device, 1, kernels);
    add_kernels({.in = 8, .out = 24, .window = 7, .pass = pass}, device, 2, kernels);
    add_kernels({.dilation = 2, .pass = pass}, device, 1, kernels);
    add_kernels({.spatial = 1, .extent = 300, .pass = pass}, device, 1, kernels);
    add_kernels({.in = 32, .out = 8, .pass = pass, .narrows_filters = true}, device, 2, kernels);
  }
  expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
