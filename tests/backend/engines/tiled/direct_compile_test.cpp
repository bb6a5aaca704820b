// Owns the check that the direct engine's kernels compile for every target, without spills and without local
// memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/tiled/cases.h"

namespace fusor {
namespace {

using direct_cases::convolution;
using direct_cases::matmul;
using test::expect_all_compiled;
using test::KernelCase;

constexpr std::array kTypes{DataType::f16, DataType::bf16,    DataType::f32,    DataType::f64,
                            DataType::i8,  DataType::f8_e4m3, DataType::f8_e5m2};

class DirectKernels : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
    const std::vector<int> targets = nvrtc::targets();
    if (std::ranges::find(targets, GetParam()) == targets.end())
      GTEST_SKIP() << "this NVRTC does not compile for compute capability " << GetParam();
    device_ = direct_cases::h200();
    device_.compute_capability = GetParam();
  }
  // One candidate of the fusion: targets differ in the conversions and in nothing else.
  void add_first(const std::string& name, const Fusion& fusion, std::vector<KernelCase>& cases) const {
    std::vector<KernelCase> all;
    test::add_kernels(direct_engine(), name, fusion, device_, all);
    cases.push_back(all.front());
  }
  DeviceInfo device_;
};

TEST_P(DirectKernels, OfEveryPassRankAndTypeCompileWithoutSpills) {
  std::vector<KernelCase> cases;
  for (const DataType type : kTypes) {
    add_first(fmt::format("matmul {}", to_string(type)), matmul(type), cases);
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (int spatial = 1; spatial <= 3; ++spatial)
        add_first(fmt::format("{} {}d {}", to_string(pass), spatial, to_string(type)),
                  convolution(pass, spatial, type), cases);
  }
  expect_all_compiled(cases);
}

INSTANTIATE_TEST_SUITE_P(Targets, DirectKernels, testing::Values(75, 80, 86, 89, 90, 100, 120),
                         [](const auto& instance) { return fmt::format("sm_{}", instance.param); });

class DirectVariants : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  }
};

TEST_F(DirectVariants, OfEveryTileLayoutAndStrideCompileWithoutSpills) {
  std::vector<KernelCase> cases;
  for (const DataType type : {DataType::f16, DataType::f64})
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
        test::add_kernels(direct_engine(),
                          fmt::format("{} {}", to_string(pass), layout == Layout::nhwc ? "nhwc" : "nchw"),
                          convolution(pass, 2, type, layout, 2), direct_cases::h200(), cases);
  expect_all_compiled(cases);
}

TEST_F(DirectVariants, OfASplitAndOf64BitIndicesCompileWithoutSpills) {
  std::vector<KernelCase> cases;
  for (const DataType type : {DataType::f16, DataType::i8, DataType::f64}) {
    test::add_kernels(direct_engine(), "long k", matmul(type, 1, 64, 64, 100000), direct_cases::h200(),
                      cases);
    test::add_kernels(direct_engine(), "wide", matmul(type, 1, 70000, 40000, 64), direct_cases::h200(),
                      cases);
  }
  EXPECT_TRUE(std::ranges::any_of(
      cases, [](const KernelCase& one) { return one.source->root == "tiled/split_finish.cuh"; }));
  expect_all_compiled(cases);
}

TEST_F(DirectVariants, AResultThatOnlyTellsItsCoordinatesCompiles) {
  GraphBuilder g;
  const Tensor product = g.matmul(g.input("a", {8, 8}, DataType::f32), g.input("b", {8, 8}, DataType::f32));
  std::vector<KernelCase> cases;
  test::add_kernels(direct_engine(), "index", test::fusion_of(g.finish({g.gen_index(product, 1)})),
                    direct_cases::h200(), cases);
  ASSERT_FALSE(cases.empty());
  expect_all_compiled(cases);
}

}  // namespace
}  // namespace fusor
