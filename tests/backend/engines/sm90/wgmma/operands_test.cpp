// Owns the tests of epilogue operands that the wgmma engine has brought by TMA: which those are,
// where they lie in shared memory, and that their kernels compile. None needs a GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "codegen/nvrtc.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::operands_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The way of one result and of one operand.
struct Like {
  DataType type = DataType::bf16;
  Strides strides = {};
};

Tensor product(GraphBuilder& g, int64_t m, int64_t n, int64_t k) {
  return g.matmul(g.input("a", {m, k}, DataType::bf16), g.input("b", {k, n}, DataType::bf16));
}
Tensor operand(GraphBuilder& g, const char* name, const Dims& dims, const Like& like) {
  TensorOptions options;
  if (!like.strides.empty()) options.strides = like.strides;
  return g.input(name, dims, like.type, options);
}

Graph with_residual(int64_t m, int64_t n, int64_t k, const Like& residual = {}, const Like& result = {}) {
  GraphBuilder g("residual");
  const Tensor sum = g.add(product(g, m, n, k), operand(g, "residual", {m, n}, residual));
  OutputOptions options{.name = "y", .type = result.type};
  if (!result.strides.empty()) options.strides = result.strides;
  g.output(sum, options);
  return g.finish();
}

// The gradient of a GELU's operand, and its sums over rows: a bias' gradient.
Graph gelu_gradient(int64_t m, int64_t n, int64_t k, DataType type = DataType::bf16) {
  GraphBuilder g("gelu_gradient");
  const Tensor dy = g.gelu_bwd(product(g, m, n, k), operand(g, "z", {m, n}, {type}));
  const Tensor y = g.output(dy, {.name = "y", .type = DataType::bf16});
  g.output(g.reduce(y, ReductionMode::add, {0}), {.name = "sums", .type = DataType::f32});
  return g.finish();
}

// The gradients of a gated product, whose two factors were saved.
Graph gated_gradients(int64_t m, int64_t n, int64_t k, DataType gate_type = DataType::bf16) {
  GraphBuilder g("gated_gradients");
  const Tensor dy = product(g, m, n, k);
  const Tensor gate = operand(g, "gate", {m, n}, {gate_type}), up = operand(g, "up", {m, n}, {});
  g.output(g.mul(dy, g.swish(gate)), {.name = "dup", .type = DataType::bf16});
  g.output(g.mul(g.swish_bwd(dy, gate), up), {.name = "dgate", .type = DataType::bf16});
  return g.finish();
}

std::optional<int64_t> config_value(const KernelSource& source, const std::string& name) {
  const auto found = std::ranges::find(source.config, name, &ConfigValue::name);
  return found == source.config.end() ? std::nullopt : std::optional(found->number());
}

struct Lowering {
  EngineConfig config;
  Lowered lowered;

  const Launch& launch() const { return std::get<Launch>(lowered.steps.at(0)); }
  const KernelSource& source() const { return *launch().source; }
  int64_t value(const char* name) const { return config_value(source(), name).value_or(0); }
  // The types of its elements.
  std::vector<DataType> staged() const {
    std::vector<DataType> types;
    for (int64_t i = 0; i < value("staged"); ++i)
      types.push_back(static_cast<DataType>(value(i == 0 ? "Staged0" : "Staged1")));
    return types;
  }
  int loads() const {
    const auto& nodes = source().sites.at(0).expr.nodes;
    return static_cast<int>(std::ranges::count(nodes, Node::Kind::load, &Node::kind));
  }
};

std::vector<Lowering> lowerings(const Graph& graph) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = test::fusion_of(graph);
  std::vector<Lowering> all;
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device))
    if (candidate.config.knob("split", 1) == 1)
      all.push_back({candidate.config, test::lower(wgmma_engine(), fusion, candidate.config, device)});
  EXPECT_FALSE(all.empty());
  return all;
}

// As codegen/device/sm90/epilogue/boxes.cuh counts them.
constexpr DataType kF16 = DataType::f16, kBf16 = DataType::bf16, kF32 = DataType::f32;

TEST(WgmmaOperands, AnOperandThatLiesAsTheResultComesByTheCopyEngine) {
  for (const Strides& strides : {Strides{2048, 1}, Strides{1, 4096}}) {
    const Like like{DataType::bf16, strides};
    for (const Lowering& one : lowerings(with_residual(4096, 2048, 512, like, like))) {
      SCOPED_TRACE(to_string(one.config));
      EXPECT_THAT(one.staged(), ElementsAre(kBf16));
      EXPECT_EQ(one.loads(), 0);
      ASSERT_EQ(one.launch().arguments.maps().size(), 4u);
      const TensorMap &result = one.launch().arguments.maps()[2], &map = one.launch().arguments.maps()[3];
      EXPECT_EQ(map.box, result.box);
      EXPECT_EQ(map.dims, result.dims);
      EXPECT_EQ(map.stride_bytes, result.stride_bytes);
      EXPECT_NE(one.launch().arguments.patches()[2].index, one.launch().arguments.patches()[3].index);
      EXPECT_LE(one.launch().shared_bytes, DeviceInfo::named("H200").shared_per_block);
    }
  }
}

TEST(WgmmaOperands, ASavedActivationComesBesideAReduction) {
  for (const Lowering& one : lowerings(gelu_gradient(4096, 2048, 512))) {
    EXPECT_THAT(one.staged(), ElementsAre(kBf16)) << to_string(one.config);
    EXPECT_EQ(one.loads(), 0);
    EXPECT_NE(one.value("reduced"), 0);
  }
}

// The most sums of a thread, of candidates whose consumers take boxes.
int64_t most_sums(const Graph& graph, int64_t swap) {
  int64_t sums = 0;
  for (const Lowering& one : lowerings(graph))
    if (one.config.knob("swap", 0) == swap && one.config.knob("ping_pong", 0) == 1)
      sums = std::max(sums, one.config.knob("tile_m", 0) * one.config.knob("tile_n", 0) / 128);
  return sums;
}

// Totals of rows and operands that nobody loads leave registers for wide tiles; totals of columns do not.
TEST(WgmmaOperands, AReductionOfRowsBesideWhatComesInBoxesLeavesRoomForWideTiles) {
  EXPECT_EQ(most_sums(gelu_gradient(4096, 2048, 512), 1), 192);
  EXPECT_EQ(most_sums(gelu_gradient(4096, 2048, 512), 0), 128);
  EXPECT_EQ(most_sums(gelu_gradient(4096, 2048, 512, DataType::f32), 1), 128);
}

TEST(WgmmaOperands, AnOperandAloneLeavesRoomForWideTilesAndTwoDoNot) {
  for (const int64_t swap : {0, 1}) {
    EXPECT_EQ(most_sums(with_residual(4096, 2048, 512), swap), 192);
    EXPECT_EQ(most_sums(gated_gradients(4096, 2048, 512), swap), 128);
  }
}

TEST(WgmmaOperands, TwoOperandsComeToTheBoxesOfTwoResults) {
  for (const Lowering& one : lowerings(gated_gradients(4096, 2048, 512))) {
    EXPECT_THAT(one.staged(), ElementsAre(kBf16, kBf16)) << to_string(one.config);
    EXPECT_EQ(one.launch().arguments.maps().size(), 6u);
    EXPECT_EQ(one.loads(), 0);
  }
}

TEST(WgmmaOperands, AnOperandOfAnotherSizeHasABoxOfItsOwn) {
  for (const Lowering& one : lowerings(with_residual(4096, 2048, 512, {DataType::f32}))) {
    SCOPED_TRACE(to_string(one.config));
    if (one.value("blocks_per_sm") > 1) {
      EXPECT_THAT(one.staged(), IsEmpty());
      continue;
    }
    EXPECT_THAT(one.staged(), ElementsAre(kF32));
    EXPECT_LE(one.value("box_columns"), 32);
    EXPECT_EQ(one.launch().arguments.maps().at(3).type, DataType::f32);
    EXPECT_LE(one.launch().shared_bytes, DeviceInfo::named("H200").shared_per_block);
  }
}

TEST(WgmmaOperands, ElementsOfOneSizeShareABox) {
  for (const Lowering& one : lowerings(with_residual(4096, 2048, 512, {DataType::f16})))
    EXPECT_THAT(one.staged(), ElementsAre(kF16)) << to_string(one.config);
}

TEST(WgmmaOperands, WhatLiesOtherwiseIsLoadedByThreads) {
  const Strides rows{2048, 1}, columns{1, 4096}, odd{2049, 1};
  for (const Graph& graph :
       {with_residual(4096, 2048, 512, {DataType::bf16, columns}, {DataType::bf16, rows}),
        with_residual(4096, 2048, 512, {DataType::bf16, rows}, {DataType::bf16, columns}),
        with_residual(4096, 2048, 512, {DataType::bf16, odd}), with_residual(4096, 2048, 512, {DataType::i8}),
        with_residual(4096, 2048, 512, {DataType::f64})})
    for (const Lowering& one : lowerings(graph)) {
      EXPECT_THAT(one.staged(), IsEmpty()) << to_string(one.config);
      EXPECT_EQ(one.loads(), 1);
    }
}

TEST(WgmmaOperands, ABroadcastOperandIsLoadedByThreads) {
  GraphBuilder g("bias");
  g.output(g.add(product(g, 4096, 2048, 512), operand(g, "bias", {1, 2048}, {})), {.type = DataType::bf16});
  for (const Lowering& one : lowerings(g.finish())) {
    EXPECT_THAT(one.staged(), IsEmpty()) << to_string(one.config);
    EXPECT_EQ(one.value("staged"), 0);
    EXPECT_EQ(one.loads(), 1);
  }
}

TEST(WgmmaOperands, OfThreeTwoAreBrought) {
  GraphBuilder g("three");
  Tensor y = product(g, 4096, 2048, 512);
  for (const char* name : {"first", "second", "third"}) y = g.add(y, operand(g, name, {4096, 2048}, {}));
  g.output(y, {.type = DataType::bf16});
  for (const Lowering& one : lowerings(g.finish())) {
    const bool alone = one.value("blocks_per_sm") == 1;
    EXPECT_EQ(std::ssize(one.staged()), one.value("staged")) << to_string(one.config);
    EXPECT_LE(one.value("staged"), 2);
    EXPECT_GE(one.value("staged"), alone ? 1 : 0) << to_string(one.config);
    EXPECT_EQ(one.loads() + one.value("staged"), 3);
  }
}

TEST(WgmmaOperands, AConvolutionsResidualIsBrought) {
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {128, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor residual = g.input("residual", {8, 128, 28, 28}, DataType::f16, Layout::nhwc);
  const Tensor sum = g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), residual);
  g.output(g.relu(sum), {.type = DataType::f16, .layout = Layout::nhwc});
  for (const Lowering& one : lowerings(g.finish())) {
    if (one.value("store") != 1) continue;
    EXPECT_THAT(one.staged(), ElementsAre(kF16)) << to_string(one.config);
  }
}

// Boxes ahead of those in hand are no dearer than stages that the main loop can do without.
TEST(WgmmaOperands, BoxesComeAheadWhereStagesAreLeft) {
  for (const Lowering& one : lowerings(with_residual(8192, 4096, 4096))) {
    SCOPED_TRACE(to_string(one.config));
    const int64_t boxes = one.value("boxes");
    EXPECT_GE(boxes, 2);
    EXPECT_LE(boxes, 4);
    const int64_t lines = one.config.knob("tile_m", 0) + one.config.knob("tile_n", 0);
    if (lines <= 320 && one.value("blocks_per_sm") == 1) {
      EXPECT_EQ(boxes, 4);
      EXPECT_GE(one.value("stages"), 4);
    }
  }
}

TEST(WgmmaOperands, WhatIsBroughtIsAligned) {
  const Graph graph = with_residual(4096, 2048, 512);
  for (const Lowering& one : lowerings(graph))
    for (const Guard& guard : one.lowered.guards) EXPECT_EQ(guard.alignment, 16) << to_string(one.config);
}

TEST(WgmmaOperands, TextIsTheGoldenText) {
  const auto all = lowerings(gelu_gradient(4096, 2048, 512));
  EXPECT_EQ(test::generated_text(all.front().lowered, 0),
            test::golden_text("sm90/wgmma/contraction.operands"));
}

TEST(WgmmaOperands, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const char* name, const Graph& graph, int64_t least_columns) {
    for (const Lowering& one : lowerings(graph))
      if (one.config.knob("cluster", 1) == 1 && one.config.knob("tile_n", 0) >= least_columns)
        test::add_kernels(fmt::format("{} {}", name, to_string(one.config)), one.lowered, kernels);
  };
  add("dgelu", gelu_gradient(4096, 2048, 512), 192);
  add("residual", with_residual(4096, 2048, 512), 192);
  add("fp32 residual", with_residual(4096, 2048, 512, {DataType::f32}), 192);
  add("fp32 both", with_residual(4096, 2048, 512, {DataType::f32}, {DataType::f32}), 192);
  add("gated", gated_gradients(4096, 2048, 512), 192);
  // Many steps and rounds, in which a short epilogue's text stands once.
  add("long residual", with_residual(16384, 8192, 2048), 192);
  add("long fp32 residual", with_residual(16384, 8192, 2048, {DataType::f32}), 192);
  add("long fp32 both", with_residual(16384, 8192, 2048, {DataType::f32}, {DataType::f32}), 192);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor::operands_test
