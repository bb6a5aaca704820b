// Owns the checks of the mma_stream engine's rules, candidates and kernels.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::stream_test {
namespace {

using test::fusion_of;

struct Case {
  Dims mnk = {10000, 72, 24};
  DataType a = DataType::f16, b = DataType::f16;
  std::optional<Strides> a_strides = std::nullopt, y_strides = std::nullopt;
  int64_t batch = 1;
};

Fusion product(const Case& c) {
  GraphBuilder g("product");
  const auto dims = [&](int64_t rows, int64_t columns) {
    return c.batch == 1 ? Dims{rows, columns} : Dims{c.batch, rows, columns};
  };
  const Tensor a = g.input("a", dims(c.mnk[0], c.mnk[2]), c.a, {.strides = c.a_strides}),
               b = g.input("b", dims(c.mnk[2], c.mnk[1]), c.b);
  const Tensor bias = g.input("bias", dims(1, c.mnk[1]), DataType::f32);
  return fusion_of(g.finish(
      {g.output(g.relu(g.add(g.matmul(a, b), bias)), {.type = DataType::f16, .strides = c.y_strides})}));
}

Fusion convolution(ConvPass pass, int64_t window, int64_t stride, Layout layout = Layout::nhwc) {
  GraphBuilder g("conv");
  const int64_t pad = window / 2;
  const Dims x{8, 16, 28, 28}, w{8, 16, window, window}, y{8, 8, 27 / stride + 1, 27 / stride + 1};
  const ConvOptions options{.padding = {pad, pad}, .stride = {stride, stride}};
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, DataType::bf16, layout);
  const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, DataType::bf16, layout);
  const Tensor made = pass == ConvPass::fprop   ? g.conv_fprop(first, second, options)
                      : pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x, options)
                                                : g.conv_wgrad(first, second, w, options);
  return fusion_of(g.finish({g.output(made, {.type = DataType::bf16})}));
}

std::string rule(const Fusion& fusion, const DeviceInfo& device = test::h200()) {
  const Support support = test::supports(mma_stream_engine(), fusion, device);
  return support ? "" : support.refusal->rule;
}

TEST(Stream, TakesFewChannels) {
  EXPECT_EQ(rule(product({})), "");
  EXPECT_EQ(rule(product({.mnk = {1, 1, 8}})), "");
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
    for (const int64_t window : {1, 3})
      for (const int64_t stride : {1, 2}) EXPECT_EQ(rule(convolution(pass, window, stride)), "") << window;
}

TEST(Stream, RefusesByRule) {
  EXPECT_EQ(rule(product({.mnk = {10000, 72, 20}})), "chunks-of-8");
  EXPECT_EQ(rule(product({.a_strides = Strides{1, 10000}})), "rows-along-k");
  EXPECT_EQ(rule(product({.a_strides = Strides{25, 1}})), "chunks-of-8");
  EXPECT_EQ(rule(product({.y_strides = Strides{1, 10000}})), "rows-of-results");
  EXPECT_EQ(rule(product({.a = DataType::f32, .b = DataType::f32})), "half-operands");
  EXPECT_EQ(rule(product({.b = DataType::bf16})), "half-operands");
  EXPECT_EQ(rule(product({.mnk = {10000, 72, 1024}})), "few-channels");
  EXPECT_EQ(rule(product({.mnk = {10000, 1000, 24}})), "few-channels");
  EXPECT_EQ(rule(product({.batch = 4})), "one-product");
  EXPECT_EQ(rule(convolution(ConvPass::wgrad, 3, 1)), "no-wgrad");
  EXPECT_EQ(rule(convolution(ConvPass::wgrad, 1, 1)), "rows-along-k");  // as a matmul
  EXPECT_EQ(rule(product({}), DeviceInfo::named("T4")), "sm-80");
}

TEST(Stream, CandidatesStandInTheKnobsAndFitEveryGeneration) {
  for (const char* name : {"A100", "RTX 4090", "H200"}) {
    const DeviceInfo device = DeviceInfo::named(name);
    for (const Fusion& fusion :
         {product({}), product({.mnk = {100, 200, 8}}), convolution(ConvPass::dgrad, 3, 1)}) {
      const std::vector<Knob> knobs = test::knobs(mma_stream_engine(), fusion, device);
      for (const EngineCandidate& candidate : test::candidates(mma_stream_engine(), fusion, device)) {
        EXPECT_THAT(knobs[0].values, testing::Contains(candidate.config.knob("stages", -1)));
        const Lowered lowered = test::lower(mma_stream_engine(), fusion, candidate.config, device);
        EXPECT_LE(std::get<Launch>(lowered.steps[0]).shared_bytes, device.shared_per_block) << name;
      }
    }
  }
}

TEST(Stream, ReadsEachOperandOnce) {
  for (const EngineCandidate& candidate : test::candidates(mma_stream_engine(), product({}), test::h200()))
    EXPECT_EQ(candidate.work.dram_bytes, 2.0 * (10000 * 24 + 24 * 72 + 10000 * 72) + 4 * 72);
}

class StreamKernels : public testing::TestWithParam<const char*> {};

TEST_P(StreamKernels, CompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named(GetParam());
  const std::vector<int> targets = nvrtc::targets();
  if (std::ranges::find(targets, device.compute_capability) == targets.end())
    GTEST_SKIP() << "this NVRTC does not compile for " << device.target();
  std::vector<test::KernelCase> cases;
  for (const int64_t k : {8, 24, 72})
    for (const int64_t n : {8, 40, 72})
      test::add_kernels(mma_stream_engine(), fmt::format("{} x {}", k, n), product({.mnk = {10000, n, k}}),
                        device, cases);
  if (device.shared_per_block > 160 * 1024)
    test::add_kernels(mma_stream_engine(), "wide", product({.mnk = {1000000, 136, 136}}), device, cases);
  test::add_kernels(mma_stream_engine(), "many rows", product({.mnk = {1000000, 24, 24}}), device, cases);
  test::add_kernels(mma_stream_engine(), "window", convolution(ConvPass::fprop, 1, 2), device, cases);
  test::add_kernels(mma_stream_engine(), "strided dgrad", convolution(ConvPass::dgrad, 3, 2), device, cases);
  if (device.shared_per_block > 160 * 1024)
    test::add_kernels(mma_stream_engine(), "64-bit indices", product({.mnk = {12000000, 24, 192}}), device,
                      cases);
  for (const test::KernelCase& one : cases) test::expect_compiled(one);
}

INSTANTIATE_TEST_SUITE_P(Devices, StreamKernels, testing::Values("A100", "RTX 4090", "H200"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
}  // namespace fusor::stream_test
