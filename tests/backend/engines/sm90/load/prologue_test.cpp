// Owns the tests of operands that pass ops before the wgmma engine multiplies them: which those are, what
// their plans rely on, what is kept of them in shared memory, and that their kernels compile. None needs a
// GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/engines/sm90/load/prologue.h"
#include "codegen/nvrtc.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor::prologue_test {
namespace {

using namespace wgmma_cases;

using test::h200;

struct Case {
  int64_t m = 256, n = 320, k = 1008;
  DataType stored = DataType::i8, type = DataType::bf16;
  Strides weights = {1, 1008};
  int64_t alignment = 16;
  bool scales_first = false;  // the other operand by a vector along k, too
};

// a * (scale * b): a scale of every column.
Graph dequantised(const Case& c) {
  GraphBuilder g("dequantised");
  TensorOptions options;
  options.strides = c.weights;
  options.alignment = c.alignment;
  Tensor a = g.input("a", {c.m, c.k}, c.type);
  if (c.scales_first)
    a = g.mul(a, g.input("factor", {1, c.k}, DataType::bf16), {.type = c.type, .compute = DataType::f32});
  const Tensor scale = g.input("scale", {1, c.n}, DataType::f32);
  const Tensor b = g.mul(g.input("b", {c.k, c.n}, c.stored, options), scale,
                         {.name = "dequantise", .type = c.type, .compute = DataType::f32});
  g.output(g.relu(g.matmul(a, b)), {.name = "y", .type = DataType::bf16});
  return g.finish();
}

Graph converted() {
  GraphBuilder g("converted");
  const Tensor b = g.input("b", {264, 72}, DataType::f32);
  g.output(g.matmul(g.input("a", {131, 264}, DataType::bf16), g.identity(b, {.type = DataType::bf16})));
  return g.finish();
}

// Both operands of fp32, two results.
Graph converted_twice() {
  GraphBuilder g("converted_twice");
  const PointwiseOptions to_bf16{.type = DataType::bf16};
  const Tensor a = g.identity(g.input("a", {512, 264}, DataType::f32), to_bf16);
  const Tensor b = g.identity(g.input("b", {264, 512}, DataType::f32), to_bf16);
  const Tensor y = g.output(g.matmul(a, b), {.name = "y", .type = DataType::f32});
  g.output(g.relu(y), {.name = "z", .type = DataType::f32});
  return g.finish();
}

TEST(WgmmaPrologues, OfWholeVectorsInLinesThatAreAdjacentArePassedByThreads) {
  EXPECT_EQ(rule(dequantised({})), "");
  EXPECT_EQ(rule(dequantised({.weights = {320, 1}})), "") << "across k";
  EXPECT_EQ(rule(dequantised({.stored = DataType::f8_e4m3, .type = DataType::f16})), "");
  EXPECT_EQ(rule(dequantised({.stored = DataType::f32})), "");
  EXPECT_EQ(rule(dequantised({.scales_first = true})), "");
  EXPECT_EQ(rule(dequantised({.weights = {2, 2016}})), "plain-operands") << "nothing is adjacent";
  EXPECT_EQ(rule(dequantised({.k = 1001, .weights = {1, 1008}})), "plain-operands") << "a part of a vector";
  EXPECT_EQ(rule(dequantised({.weights = {1, 1001}})), "plain-operands") << "lines of any start";
  EXPECT_EQ(rule(dequantised({.alignment = 8})), "plain-operands");
  EXPECT_NE(rule(dequantised({.type = DataType::f32})), "") << "32 bits behind the ops";
}

TEST(WgmmaPrologues, LeaveTheOtherOperandToTheCopyEngine) {
  GraphBuilder g("misaligned");
  TensorOptions odd;
  odd.strides = Strides{1009, 1};
  const Tensor b = g.mul(g.input("b", {1008, 320}, DataType::i8), g.input("scale", {1, 320}, DataType::f32),
                         {.type = DataType::bf16, .compute = DataType::f32});
  g.output(g.matmul(g.input("a", {256, 1008}, DataType::bf16, odd), b));
  EXPECT_EQ(rule(g.finish()), "plain-operands") << "which leaves both to threads";
}

TEST(WgmmaPrologues, OperandsAreBroughtAsTheyAreStored) {
  const Graph graph = dequantised({});
  const Fusion fusion = fusion_of(graph);
  const PrologueOperand b = prologue_operand(fusion, contraction_of(fusion).value(), true, 128).value();
  EXPECT_EQ(fusion.name_of(b.stored.operand), "b");
  EXPECT_EQ(b.stored.map.type, DataType::i8);
  EXPECT_EQ(b.stored.map.dims, (Dims{1008, 320, 1}));
  EXPECT_EQ(b.stored.map.stride_bytes[0], 1008);
  EXPECT_EQ(b.stored.map.box, (Dims{64, 128, 1}));
  EXPECT_EQ(b.vector_axis, 0) << "along k";
  EXPECT_FALSE(prologue_operand(fusion, contraction_of(fusion).value(), false, 128)) << "it has no ops";
}

TEST(WgmmaPrologues, PlansRelyOnWholeVectorsOfTheStoredTensor) {
  const Graph graph = dequantised({.scales_first = true});
  const Fusion fusion = fusion_of(graph);
  for (const Lowered& one : lowerings(graph))
    for (const Guard& guard : one.guards) {
      const std::string& name = fusion.name_of(guard.operand);
      if (name == "y") continue;
      EXPECT_EQ(guard.alignment, name == "scale" ? 4 : 16) << name;
    }
}

TEST(WgmmaPrologues, StandWhereTheTensorCoresHaveTheOperand) {
  for (const Lowered& one : lowerings(dequantised({}))) {
    const bool swapped = config_value(source_of(one), "swapped") != 0;
    EXPECT_EQ(config_value(source_of(one), "prologue_a") != 0, swapped);
    EXPECT_EQ(config_value(source_of(one), "prologue_b") != 0, !swapped);
    EXPECT_EQ(config_value(source_of(one), "grain_a") + config_value(source_of(one), "grain_b"), 0);
  }
}

TEST(WgmmaPrologues, OpsWithoutArgumentsTakeNone) {
  for (const Lowered& one : lowerings(converted())) {
    const bool swapped = config_value(source_of(one), "swapped") != 0;
    const char* const field = swapped ? "prologue_a" : "prologue_b";
    const auto& fields = source_of(one).parameters;
    const auto found = std::ranges::find(fields, field, &ParameterField::path);
    ASSERT_NE(found, fields.end());
    EXPECT_EQ(found->type, swapped ? "alignas(8) A::Args" : "alignas(8) B::Args") << "an empty struct";
  }
}

TEST(WgmmaPrologues, KeepStepsInSharedMemoryBesideTheRing) {
  for (const Graph& graph :
       {dequantised({}), dequantised({.scales_first = true}), converted(), converted_twice()}) {
    for (const Lowered& one : lowerings(graph)) {
      EXPECT_GE(config_value(source_of(one), "ahead"), 1);
      EXPECT_GE(config_value(source_of(one), "stages"), 2);
      EXPECT_LE(launch_of(one).shared_bytes, h200().shared_per_block);
    }
    expect_every_setting_lowers(graph);
  }
}

TEST(WgmmaPrologues, LeaveRoomForAllBlocksThatAreLaunched) {
  for (const Graph& graph : {dequantised({}), converted(), converted_twice()})
    for (const Lowered& one : lowerings(graph)) {
      const int64_t together = config_value(source_of(one), "blocks_per_sm");
      EXPECT_LE((launch_of(one).shared_bytes + 1024) * together, h200().shared_per_sm);
    }
}

TEST(WgmmaPrologues, HaveNoMoreThan128LinesInATile) {
  for (const Lowered& one : lowerings(dequantised({.m = 4096, .n = 4096}))) {
    const bool swapped = config_value(source_of(one), "swapped") != 0;
    EXPECT_LE(config_value(source_of(one), swapped ? "tile_m" : "tile_n"), 128);
  }
}

// From fp64 to fp32 to bf16 would be other numbers.
TEST(WgmmaPrologues, AreRoundedOnce) {
  GraphBuilder g("fp64");
  const Tensor scale = g.input("scale", {1, 320}, DataType::f64);
  const Tensor b = g.mul(g.input("b", {256, 320}, DataType::i8), scale,
                         {.type = DataType::bf16, .compute = DataType::f64});
  g.output(g.matmul(g.input("a", {256, 256}, DataType::bf16), b));
  for (const Lowered& one : lowerings(g.finish())) {
    const std::string text = test::generated_text(one, 0);
    EXPECT_NE(text.find("round_to<bf16>(narrow<double>(v0) * "), std::string::npos) << text;
    EXPECT_EQ(text.find("narrow<float>(narrow<double>"), std::string::npos);
  }
}

TEST(WgmmaPrologues, AreChosenForFewRowsOfDequantisedWeightsBehindMmaWeights) {
  const Graph graph = dequantised({.m = 16, .n = 14336, .k = 4096, .weights = {1, 4096}});
  EXPECT_EQ(build(graph, h200(), {.compile = false}).fusions[0].config.engine, "mma_weights");
  BuildOptions options{.compile = false};
  options.forbid = {"mma_weights"};
  const Plan plan = build(graph, h200(), options);
  ASSERT_EQ(plan.fusions.size(), 1u);
  EXPECT_EQ(plan.fusions[0].config.engine, "wgmma");
}

TEST(WgmmaPrologues, TextIsTheGoldenText) {
  EXPECT_EQ(test::generated_text(lowerings(dequantised({})).front(), 0),
            test::golden_text("sm90/wgmma/prologue"));
}

TEST(WgmmaPrologues, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  for (const Case& c : {Case{}, Case{.weights = {320, 1}}, Case{.stored = DataType::f8_e4m3},
                        Case{.stored = DataType::f32, .scales_first = true}})
    expect_clean_kernels(dequantised(c));
  expect_clean_kernels(converted());
}

}  // namespace
}  // namespace fusor::prologue_test
