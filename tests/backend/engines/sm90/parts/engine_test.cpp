// Owns the tests of the wgmma_parts engine: what it refuses, its launches, and its kernels' compilation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/planning.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor {
namespace {

Graph matmul(const Dims& mnk, DataType type = DataType::f32, Precision precision = Precision::exact) {
  GraphBuilder g("matmul", precision);
  g.output(g.matmul(g.input("a", {mnk[0], mnk[2]}, type), g.input("b", {mnk[2], mnk[1]}, type)));
  return g.finish();
}

std::string rule(const Graph& graph, const char* device = "H200") {
  const Support support =
      test::supports(wgmma_parts_engine(), test::fusion_of(graph), DeviceInfo::named(device));
  return support.refusal ? support.refusal->rule : "";
}

TEST(WgmmaParts, TakesMatmulsOfFp32ThatMayNotBeRounded) {
  EXPECT_EQ(rule(matmul({512, 512, 512})), "");
  EXPECT_EQ(rule(matmul({512, 512, 512}, DataType::bf16)), "numbers-in-parts");
  EXPECT_EQ(rule(matmul({512, 512, 512}, DataType::f32, Precision::allow_tf32)), "numbers-in-parts");
  EXPECT_EQ(rule(matmul({512, 512, 512}, DataType::f32, Precision::strict)), "tensor-core-operands");
  EXPECT_EQ(rule(matmul({512, 512, 15})), "terms-of-a-sum");
  EXPECT_EQ(rule(matmul({512, 512, 16})), "");
  EXPECT_EQ(rule(matmul({1, 8, (1 << 23) + 1})), "terms-of-a-sum");
  EXPECT_NE(rule(matmul({512, 512, 512}), "A100"), "");
}

// A launch for both operands, the product, and the launch that flags ask for, each begun as early as it can
// be.
TEST(WgmmaParts, SplitsBothOperandsBeforeTheProduct) {
  const Graph graph = matmul({512, 384, 60});
  const Fusion fusion = test::fusion_of(graph);
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const EngineCandidate& candidate : test::candidates(wgmma_parts_engine(), fusion, device)) {
    const Lowered lowered = test::lower(wgmma_parts_engine(), fusion, candidate.config, device);
    ASSERT_GE(lowered.steps.size(), 3U);
    EXPECT_EQ(std::get<Launch>(lowered.steps[0]).entry, "split_floats");
    const Launch& product = std::get<Launch>(lowered.steps[1]);
    const Launch& otherwise = std::get<Launch>(lowered.steps.back());
    EXPECT_EQ(product.entry, "wgmma_contraction");
    EXPECT_EQ(otherwise.entry, "mma");
    // Three parts of 64 steps, of which 60 exist, in 16 bits.
    EXPECT_EQ(lowered.scratch[0], 512 * 3 * 64 * 2);
    EXPECT_EQ(lowered.scratch[1], 384 * 3 * 64 * 2);
  }
}

// Weights of heads, whether images share them by an extent of 1 or by a stride of 0.
TEST(WgmmaParts, SplitsOnceWhatSomeEntriesOfABatchShare) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const int64_t images : {1, 3}) {
    GraphBuilder g("heads");
    const Tensor a = g.input("a", {3, 5, 512, 64}, DataType::f32);
    const TensorOptions shared{.strides = Strides{0, 64 * 384, 384, 1}};
    const Tensor b = g.input("b", {images, 5, 64, 384}, DataType::f32, shared);
    const Fusion fusion = test::fusion_of(g.finish({g.matmul(a, b)}));
    for (const EngineCandidate& candidate : test::candidates(wgmma_parts_engine(), fusion, device)) {
      const Lowered lowered = test::lower(wgmma_parts_engine(), fusion, candidate.config, device);
      EXPECT_EQ(lowered.scratch[0], 3 * 5 * 512 * 3 * 64 * 2);
      EXPECT_EQ(lowered.scratch[1], 5 * 384 * 3 * 64 * 2);
    }
  }
}

Graph convolution(ConvPass pass, const Dims& x, const Dims& w, Layout layout = Layout::nhwc) {
  GraphBuilder g("convolution");
  const ConvOptions options{.padding = {1, 1}};
  const Dims y{x[0], w[0], x[2], x[3]};
  const auto input = [&](const char* name, const Dims& dims) {
    return g.input(name, dims, DataType::f32, layout);
  };
  if (pass == ConvPass::fprop)
    g.output(g.conv_fprop(input("x", x), input("w", w), options));
  else if (pass == ConvPass::dgrad)
    g.output(g.conv_dgrad(input("dy", y), input("w", w), x, options));
  else
    g.output(g.conv_wgrad(input("dy", y), input("x", x), w, options));
  return g.finish();
}

// Parts lie along the channels of a tap; along the images of a weight gradient, with as many more as fill up
// the last step.
TEST(WgmmaParts, PartsOfConvolutionsComeToWholeSteps) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const auto scratch_of = [&](ConvPass pass) {
    const Fusion fusion = test::fusion_of(convolution(pass, {4, 40, 14, 14}, {72, 40, 3, 3}));
    const EngineCandidate first = test::candidates(wgmma_parts_engine(), fusion, device).front();
    return test::lower(wgmma_parts_engine(), fusion, first.config, device).scratch;
  };
  const int64_t pixels = 14 * 14, part = 3 * 2;
  const auto fprop = scratch_of(ConvPass::fprop), dgrad = scratch_of(ConvPass::dgrad),
             wgrad = scratch_of(ConvPass::wgrad);
  EXPECT_EQ(fprop[0], 4 * pixels * 64 * part);
  EXPECT_EQ(fprop[1], 72 * 9 * 64 * part);
  EXPECT_EQ(dgrad[0], 4 * pixels * 128 * part);
  EXPECT_EQ(dgrad[1], 128 * 9 * 40 * part);
  EXPECT_EQ(wgrad[0], 5 * pixels * 72 * part);
  EXPECT_EQ(wgrad[1], 5 * pixels * 40 * part);
}

// Channels of a filter whose taps lie between them are no neighbours.
TEST(WgmmaParts, AFilterOfPlanesLeavesThroughScratch) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    const Fusion fusion =
        test::fusion_of(convolution(ConvPass::wgrad, {4, 40, 14, 14}, {72, 40, 3, 3}, layout));
    const EngineCandidate first = test::candidates(wgmma_parts_engine(), fusion, device).front();
    const Lowered lowered = test::lower(wgmma_parts_engine(), fusion, first.config, device);
    const Launch& copy = std::get<Launch>(lowered.steps[lowered.steps.size() - 2]);
    EXPECT_EQ(copy.source->root.starts_with("elementwise/"), layout == Layout::nchw) << copy.source->root;
    EXPECT_EQ(std::ranges::count(lowered.scratch, 72 * 40 * 9 * 4), layout == Layout::nchw ? 1 : 0);
    EXPECT_EQ(std::get<Launch>(lowered.steps.back()).entry, "mma");
  }
}

TEST(WgmmaParts, TakesConvolutionsOfOneGroup) {
  EXPECT_EQ(rule(convolution(ConvPass::fprop, {4, 64, 14, 14}, {64, 64, 3, 3})), "");
  EXPECT_EQ(rule(convolution(ConvPass::fprop, {4, 64, 14, 14}, {64, 32, 3, 3})), "one-group");
}

// TMA fetches a line that begins between two of memory's as two.
TEST(WgmmaParts, LongLinesBeginOnMultiplesOf128Bytes) {
  const Fusion fusion = test::fusion_of(matmul({1000, 1000, 1000}));
  const DeviceInfo device = DeviceInfo::named("H200");
  const EngineCandidate best = test::candidates(wgmma_parts_engine(), fusion, device).front();
  const Lowered lowered = test::lower(wgmma_parts_engine(), fusion, best.config, device);
  // The second operand has 1000 neighbouring columns, and 1024 lines for each of the three parts.
  const auto& maps = std::get<Launch>(lowered.steps[1]).arguments.maps();
  EXPECT_TRUE(std::ranges::any_of(maps, [](const TensorMap& map) {
    return map.dims == Dims{1000, 3 * 1024, 1} && map.stride_bytes[0] == 2 * 1024;
  }));
}

TEST(WgmmaParts, IsTheChoiceForLargeMatmulsOnHopper) {
  const Plan plan = build(matmul({4096, 4096, 4096}), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions[0].config.engine, "wgmma_parts");
  EXPECT_TRUE(plan.notes.split_operands);
}

TEST(WgmmaParts, KernelsCompileForEveryOrderOfAnOperand) {
  std::vector<test::KernelCase> cases;
  for (const Dims& mnk : {Dims{2048, 2048, 2048}, Dims{520, 72, 1000}})
    for (const bool along_k : {false, true}) {
      GraphBuilder g("matmul");
      const Strides a_strides = along_k ? Strides{mnk[2], 1} : Strides{1, mnk[0]};
      const Strides b_strides = along_k ? Strides{1, mnk[2]} : Strides{mnk[1], 1};
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::f32, {.strides = a_strides});
      const Tensor b = g.input("b", {mnk[2], mnk[1]}, DataType::f32, {.strides = b_strides});
      const Tensor c = g.matmul(g.mul(a, g.constant(0.1)), b);
      g.output(g.relu(g.add(c, g.input("bias", {1, mnk[1]}, DataType::f32))));
      test::add_kernels(wgmma_parts_engine(), to_string(mnk), test::fusion_of(g.finish()),
                        DeviceInfo::named("H200"), cases);
    }
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
    test::add_kernels(wgmma_parts_engine(), fmt::format("pass {}", static_cast<int>(pass)),
                      test::fusion_of(convolution(pass, {4, 72, 20, 20}, {40, 72, 3, 3})),
                      DeviceInfo::named("H200"), cases);
  test::expect_distinct_compiled(std::move(cases));
}

}  // namespace
}  // namespace fusor
