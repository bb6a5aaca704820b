// Owns the tests of the wgmma engine that need no GPU: its refusals, its launches, and what NVRTC says of its
// kernels.
#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/engines.h"
#include "backend/planner.h"
#include "codegen/expr_emitter.h"
#include "codegen/nvrtc.h"
#include "frontend/graph_builder.h"
#include "tests/backend/golden_text.h"

namespace fusor {
namespace {

using testing::HasSubstr;
using testing::Not;

Fusion fusion_of(const Graph& graph) {
  std::vector<int> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) ops.push_back(static_cast<int>(i));
  return make_fusion(graph, fold_views(graph), ops);
}

Graph matmul(int64_t m, int64_t n, int64_t k, DataType type, Strides b_strides = {}) {
  GraphBuilder g("matmul");
  const Tensor a = g.input("a", {m, k}, type);
  TensorOptions options;
  if (!b_strides.empty()) options.strides = b_strides;
  const Tensor b = g.input("b", {k, n}, type, options);
  return g.finish({g.matmul(a, b, {.name = "mm"})});
}

std::string rule(const Graph& graph, const char* device = "H200") {
  const Support support = wgmma_engine().supports(fusion_of(graph), DeviceInfo::named(device));
  return support ? "" : support.refusal->rule;
}

TEST(Wgmma, TakesSixteenBitMatmulsOnHopperOnly) {
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16)), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f16), "H100"), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16), "A100"), "sm-90");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f32)), "16-bit-operands");
}

TEST(Wgmma, RefusesLinesThatTheCopyEngineCannotWalk) {
  EXPECT_EQ(rule(matmul(256, 250, 64, DataType::bf16)), "16-byte-lines");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16, Strides{1024, 2})), "adjacent-operands");
  EXPECT_EQ(rule(matmul(256, 250, 64, DataType::bf16, Strides{1, 64})), "");
}

TEST(Wgmma, RefusesAPrologueAtItsOp) {
  GraphBuilder g("prologue");
  const Tensor a = g.input("a", {64, 64}, DataType::f16);
  const Graph graph = g.finish({g.matmul(g.relu(a, {.name = "relu"}), a)});
  const Support support = wgmma_engine().supports(fusion_of(graph), DeviceInfo::named("H200"));
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "plain-operands");
  EXPECT_EQ(support.refusal->node, "relu");
  EXPECT_EQ(support.refusal->op, 0);
}

TEST(Wgmma, IsChosenForALargeMatmul) {
  const Plan plan =
      build(matmul(4096, 4096, 4096, DataType::bf16), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_TRUE(plan.notes.tensor_cores);
}

TEST(Wgmma, LaunchesOneBlockAnSmAtMost) {
  const Graph graph = matmul(4096, 4096, 4096, DataType::bf16);
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(graph);
  for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
    const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    EXPECT_EQ(launch.grid[0], 132u);
    EXPECT_LE(launch.shared_bytes, device.shared_per_block);
    ASSERT_EQ(launch.arguments.maps().size(), 2u);
    EXPECT_EQ(launch.arguments.patches()[0].at % kTensorMapAlignment, 0);
  }
}

// matmul + bias + gelu of 512 x 256 x 320.
Fusion fused(const Strides& b_strides) {
  GraphBuilder g("fused");
  const Tensor a = g.input("a", {512, 320}, DataType::bf16);
  const Tensor b = g.input("b", {320, 256}, DataType::bf16, TensorOptions{.strides = b_strides});
  const Tensor bias = g.input("bias", {1, 256}, DataType::bf16);
  return fusion_of(g.finish({g.gelu(g.add(g.matmul(a, b), bias))}));
}

TEST(Wgmma, TextIsTheGoldenText) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fused({256, 1});
  const EngineConfig config = wgmma_engine().candidates(fusion, device).front().config;
  EXPECT_EQ(test::generated_text(wgmma_engine().lower(fusion, config, device), 0),
            test::golden_text("wgmma_matmul"));
}

TEST(Wgmma, KernelsCompileWithoutSpillsOrSerialisation) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Strides& b_strides : {Strides{256, 1}, Strides{1, 320}}) {
    const Fusion fusion = fused(b_strides);
    for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
      SCOPED_TRACE(to_string(candidate.config));
      const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
      const KernelSource& source = *std::get<Launch>(lowered.steps.at(0)).source;
      const nvrtc::Compilation compilation = nvrtc::compile(source.root, emit_header(source), source.target);
      EXPECT_THAT(compilation.log, HasSubstr("0 bytes spill stores"));
      EXPECT_THAT(compilation.log, Not(HasSubstr("serialized")));
      EXPECT_THAT(compilation.log, Not(HasSubstr("warning")));
    }
  }
}

}  // namespace
}  // namespace fusor
