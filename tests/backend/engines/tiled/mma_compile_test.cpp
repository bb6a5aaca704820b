// Owns the check that the mma engine's kernels compile for every generation, without spills and without local
// memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/tiled/cases.h"

namespace fusor {
namespace {

using direct_cases::convolution;
using direct_cases::fusion_of;
using direct_cases::matmul;
using test::expect_all_compiled;
using test::KernelCase;

// Nothing before the operands, a bias and a ReLU after the result.
Fusion plain(ConvPass pass, DataType type, Layout layout, int64_t channels, int64_t stride,
             Precision precision = Precision::allow_tf32) {
  GraphBuilder g("plain", precision);
  const Dims x{8, channels, 28, 28}, w{256, channels, 3, 3}, y{8, 256, 27 / stride + 1, 27 / stride + 1};
  const ConvOptions options{.padding = {1, 1}, .stride = {stride, stride}};
  const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, type, layout);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, type, layout);
  const Tensor result = pass == ConvPass::fprop   ? g.conv_fprop(first, second, options)
                        : pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x, options)
                                                  : g.conv_wgrad(first, second, w, options);
  if (!is_real(type)) return fusion_of(g.finish({result}));
  const Tensor bias = g.input("bias", {1, result.dims[1], 1, 1}, DataType::f32);
  return fusion_of(g.finish({g.output(g.relu(g.add(result, bias)), {.type = type})}));
}

class MmaKernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
    device_ = DeviceInfo::named(GetParam());
    const std::vector<int> targets = nvrtc::targets();
    if (std::ranges::find(targets, device_.compute_capability) == targets.end())
      GTEST_SKIP() << "this NVRTC does not compile for " << device_.target();
  }
  void add(const std::string& name, const Fusion& fusion) {
    test::add_kernels(mma_engine(), name, fusion, device_, cases_);
  }
  DeviceInfo device_;
  std::vector<KernelCase> cases_;
};

TEST_P(MmaKernels, OfPlainConvolutionsCompileWithoutSpills) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      add(fmt::format("{} {}", to_string(pass), layout == Layout::nhwc ? "nhwc" : "nchw"),
          plain(pass, DataType::f16, layout, 64, 1));
  expect_all_compiled(cases_);
}

TEST_P(MmaKernels, OfStridesAndStemsCompileWithoutSpills) {
  add("strided dgrad", plain(ConvPass::dgrad, DataType::bf16, Layout::nhwc, 64, 2));
  add("stem nhwc", plain(ConvPass::fprop, DataType::bf16, Layout::nhwc, 3, 2));
  add("stem nchw", plain(ConvPass::fprop, DataType::bf16, Layout::nchw, 3, 2));
  add("wgrad of a stem", plain(ConvPass::wgrad, DataType::bf16, Layout::nhwc, 3, 2));
  expect_all_compiled(cases_);
}

TEST_P(MmaKernels, OfProloguesAndBytesCompileWithoutSpills) {
  for (const DataType type : {DataType::f16, DataType::f8_e4m3, DataType::i8}) {
    add(fmt::format("matmul {}", to_string(type)), matmul(type, 3, 1000, 720, 512));
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::wgrad})
      add(fmt::format("{} {}", to_string(pass), to_string(type)),
          convolution(pass, 2, type, Layout::nchw, 2));
    add(fmt::format("3d {}", to_string(type)), convolution(ConvPass::dgrad, 3, type, Layout::nhwc, 2));
  }
  add("64-bit indices", matmul(DataType::bf16, 1, 70000, 40000, 64));
  expect_all_compiled(cases_);
}

// Few results of many steps: the blocks of a cluster share a tile.
TEST_P(MmaKernels, OfClustersCompileWithoutSpills) {
  const bool offered = device_.compute_capability == 90;
  const auto clusters = [&](const std::string& name, const Fusion& fusion) {
    for (const EngineCandidate& candidate : test::candidates(mma_engine(), fusion, device_)) {
      if (candidate.config.knob("cluster", 1) == 1) continue;
      ASSERT_TRUE(offered);
      const Lowered lowered = test::lower(mma_engine(), fusion, candidate.config, device_);
      ASSERT_EQ(lowered.steps.size(), 1U);
      EXPECT_EQ(std::get<Launch>(lowered.steps[0]).cluster[0], candidate.config.knob("cluster", 1));
      test::add_kernels(name + " " + to_string(candidate.config), lowered, cases_);
    }
  };
  clusters("matmul", matmul(DataType::bf16, 1, 40, 200, 1024));
  clusters("tf32", matmul(DataType::f32, 1, 40, 200, 1024, Precision::allow_tf32));
  clusters("fp32 in parts", matmul(DataType::f32, 1, 40, 200, 1024));
  clusters("bytes", matmul(DataType::i8, 1, 40, 200, 2048));
  EXPECT_EQ(!cases_.empty(), offered);
  expect_all_compiled(cases_);
}

TEST_P(MmaKernels, OfTf32CompileWithoutSpills) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      add(fmt::format("{} {}", to_string(pass), layout == Layout::nhwc ? "nhwc" : "nchw"),
          plain(pass, DataType::f32, layout, 64, 1));
  add("stem nhwc", plain(ConvPass::fprop, DataType::f32, Layout::nhwc, 3, 2));
  add("strided dgrad", plain(ConvPass::dgrad, DataType::f32, Layout::nhwc, 64, 2));
  add("prologue", matmul(DataType::f32, 3, 1000, 720, 512, Precision::allow_tf32));
  add("64-bit indices", matmul(DataType::f32, 1, 70000, 40000, 64, Precision::allow_tf32));
  expect_all_compiled(cases_);
}

TEST_P(MmaKernels, OfFp32InPartsCompileWithoutSpills) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      add(fmt::format("{} {}", to_string(pass), layout == Layout::nhwc ? "nhwc" : "nchw"),
          plain(pass, DataType::f32, layout, 64, 1, Precision::exact));
  add("stem nhwc", plain(ConvPass::fprop, DataType::f32, Layout::nhwc, 3, 2, Precision::exact));
  add("strided dgrad", plain(ConvPass::dgrad, DataType::f32, Layout::nhwc, 64, 2, Precision::exact));
  add("prologue", matmul(DataType::f32, 3, 1000, 720, 512));
  add("64-bit indices", matmul(DataType::f32, 1, 70000, 40000, 64));
  expect_all_compiled(cases_);
}

INSTANTIATE_TEST_SUITE_P(Devices, MmaKernels, testing::Values("A100", "RTX 4090", "H200"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
}  // namespace fusor
