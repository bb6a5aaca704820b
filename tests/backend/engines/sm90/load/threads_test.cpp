// Owns the tests of operands that the wgmma engine has threads load, for TMA cannot address them:
// which those are, what their plans rely on, and that their kernels compile. None needs a GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "backend/engines/sm90/load/threads.h"
#include "codegen/nvrtc.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor::threads_test {
namespace {

using namespace wgmma_cases;

using test::h200;

// The way of one operand in memory.
struct Lies {
  Strides strides = {};
  int64_t alignment = 16;
};

struct Case {
  int64_t m = 256, n = 320, k = 1001;
  DataType type = DataType::bf16;
  Lies a = {}, b = {};
  int64_t batch = 1;
  bool fused = false;  // bias and relu
};

Tensor operand(GraphBuilder& g, const char* name, const Dims& dims, DataType type, const Lies& lies) {
  TensorOptions options;
  options.alignment = lies.alignment;
  if (!lies.strides.empty()) options.strides = lies.strides;
  return g.input(name, dims, type, options);
}

Graph product(const Case& c) {
  GraphBuilder g("product", c.type == DataType::f32 ? Precision::allow_tf32 : Precision::allow_short_sums);
  const bool batched = c.batch > 1;
  const Dims a = batched ? Dims{c.batch, c.m, c.k} : Dims{c.m, c.k};
  Tensor y = g.matmul(operand(g, "a", a, c.type, c.a), operand(g, "b", {c.k, c.n}, c.type, c.b));
  if (c.fused) y = g.relu(g.add(y, g.input("bias", {1, c.n}, DataType::f32)));
  const bool integers = c.type == DataType::i8;
  g.output(y, {.name = "y", .type = integers ? DataType::i32 : DataType::bf16});
  return g.finish();
}

// The grain of what the kernel calls a and b; 0 for one that comes by TMA.
int64_t grain(const Lowered& lowered, const char* name) { return config_value(source_of(lowered), name); }

TEST(WgmmaLoader, LinesThatTheCopyEngineCannotStepOverAreLoadedByThreads) {
  for (const Lowered& one : lowerings(product({.b = {{328, 1}}}))) {
    const bool swapped = config_value(source_of(one), "swapped") != 0;
    EXPECT_EQ(grain(one, swapped ? "grain_b" : "grain_a"), 2) << "1001 elements a line";
    EXPECT_EQ(grain(one, swapped ? "grain_a" : "grain_b"), 0) << "328 elements a line";
  }
}

// Every rule that is about alignment, for operands that are adjacent some way.
TEST(WgmmaLoader, TakesWhateverIsAdjacentAlongKOrAcrossIt) {
  EXPECT_EQ(rule(product({})), "");
  EXPECT_EQ(rule(product({.a = {{1, 257}}, .b = {{1, 1001}}})), "");
  EXPECT_EQ(rule(product({.k = 64, .a = {.alignment = 2}})), "");
  EXPECT_EQ(rule(product({.k = 64, .a = {{256 * 64 + 1, 64, 1}}, .batch = 3})), "");
  EXPECT_EQ(rule(product({.b = {{640, 2}}})), "adjacent-operands");
  EXPECT_EQ(rule(product({.type = DataType::f32, .b = {{1, 1001}}})), "");
  EXPECT_EQ(rule(product({.n = 321, .type = DataType::f32})), "adjacent-k") << "across k, 32 bits wide";
  EXPECT_EQ(rule(product({.type = DataType::i8})), "adjacent-k");
}

// Rows that come from registers leave none for a loader.
TEST(WgmmaLoader, ASingleElementHasAnyStride) {
  EXPECT_EQ(rule(product({.m = 1, .n = 1, .k = 1, .a = {.alignment = 2}, .b = {.alignment = 2}})), "");
}

TEST(WgmmaLoader, DoesNotServeRowsFromRegisters) {
  const Case across{.n = 320, .k = 64, .type = DataType::f32};
  EXPECT_EQ(rule(product(across)), "");
  Case misaligned = across;
  misaligned.a = {{65, 1}};
  EXPECT_EQ(rule(product(misaligned)), "16-byte-lines");
}

std::vector<int64_t> loader_values(const Case& c) {
  const std::vector<Knob> knobs = test::knobs(wgmma_engine(), fusion_of(product(c)), h200());
  return std::ranges::find(knobs, "loader", &Knob::name)->values;
}

TEST(WgmmaLoader, IsAKnobOfAlignedOperandsAndAMustOfOthers) {
  using testing::ElementsAre;
  EXPECT_THAT(loader_values({.k = 64}), ElementsAre(0, 1));
  EXPECT_THAT(loader_values({.k = 65}), ElementsAre(1));
  EXPECT_THAT(loader_values({.k = 64, .type = DataType::f32}), ElementsAre(0)) << "rows from registers";
  for (const EngineConfig& config : configs(fusion_of(product({.k = 65})), h200()))
    EXPECT_EQ(config.knob("loader", 0), 1);
  for (const EngineConfig& config : configs(fusion_of(product({.k = 64})), h200())) {
    EXPECT_EQ(config.knob("loader", 0), 0);
    const Lowered lowered = test::lower(wgmma_engine(), fusion_of(product({.k = 64})), config, h200());
    EXPECT_FALSE(grain(lowered, "grain_a") > 0 || grain(lowered, "grain_b") > 0);
  }
}

int64_t guard_of(const Fusion& fusion, const Lowered& lowered, const char* tensor) {
  int64_t alignment = 1;
  for (const Guard& guard : lowered.guards)
    if (fusion.name_of(guard.operand) == tensor) alignment = guard.alignment;
  return alignment;
}

TEST(WgmmaLoader, PlansRelyOnWhatTheLoadersNeed) {
  struct Expected {
    Case c;
    int64_t a, b;
  };
  for (const Expected& one :
       {Expected{{.k = 1001, .b = {{328, 1}}}, 2, 16}, Expected{{.k = 1002, .b = {{328, 1}}}, 4, 16},
        Expected{{.k = 1004, .b = {{328, 1}}}, 8, 16}, Expected{{.k = 1008, .b = {{321, 1}}}, 16, 2},
        Expected{{.k = 1008, .a = {.alignment = 2}}, 2, 16},
        Expected{{.k = 1008, .a = {.alignment = 8}}, 8, 16},
        Expected{{.k = 1008, .a = {{1008 * 256 + 4, 1008, 1}}, .batch = 2}, 8, 16},
        Expected{{.k = 1001, .type = DataType::i8, .b = {{1, 1001}}}, 1, 1}}) {
    const Graph graph = product(one.c);
    const Fusion fusion = fusion_of(graph);
    for (const Lowered& lowered : lowerings(graph)) {
      EXPECT_EQ(guard_of(fusion, lowered, "a"), one.a) << one.c.k;
      EXPECT_EQ(guard_of(fusion, lowered, "b"), one.b) << one.c.k;
    }
  }
}

TEST(WgmmaLoader, AskedForItReliesOnElementsAlone) {
  const Graph graph = product({.k = 64});
  const Fusion fusion = fusion_of(graph);
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("loader", 1);
  config.set("cluster", 2);
  const Lowered lowered = test::lower(wgmma_engine(), fusion, config, h200());
  EXPECT_EQ(grain(lowered, "grain_a"), 2);
  EXPECT_EQ(grain(lowered, "grain_b"), 2);
  EXPECT_EQ(config_value(source_of(lowered), "cluster"), 1);
  EXPECT_EQ(guard_of(fusion, lowered, "a"), 2);
  EXPECT_EQ(guard_of(fusion, lowered, "b"), 2);
  EXPECT_EQ(guard_of(fusion, lowered, "y"), 16);
  EXPECT_EQ(std::get<Launch>(lowered.steps.at(0)).arguments.maps().size(), 1u) << "of the result";
}

TEST(WgmmaLoader, OperandsAreWalkedInBytes) {
  const Graph graph = product({.m = 130, .k = 77, .a = {{130 * 80 + 1, 80, 1}}, .b = {{321, 1}}, .batch = 3});
  const Fusion fusion = fusion_of(graph);
  const Contraction view = contraction_of(fusion).value();
  const ThreadLoad a = thread_load(fusion, view, false).value(), b = thread_load(fusion, view, true).value();
  EXPECT_EQ(a.line, 160);
  EXPECT_EQ(a.entry, (130 * 80 + 1) * 2);
  EXPECT_EQ(a.line_bytes, 77 * 2);
  EXPECT_EQ(a.lines, 130);
  EXPECT_EQ(a.bytes, 2 * a.entry + 129 * 160 + 77 * 2);
  EXPECT_EQ(a.grain, 2);
  EXPECT_EQ(b.line, 642);
  EXPECT_EQ(b.entry, 0) << "all entries share it";
  EXPECT_EQ(b.line_bytes, 640);
  EXPECT_EQ(b.lines, 77);
  EXPECT_EQ(b.bytes, 76 * 642 + 640);
}

// Whoever loads has registers for what is under way, and no time to move boxes.
TEST(WgmmaLoader, TilesLeaveRegistersAndNothingIsBroughtToBoxes) {
  GraphBuilder g("residual");
  const Tensor a = g.input("a", {4096, 1001}, DataType::bf16), b = g.input("b", {1001, 4096}, DataType::bf16);
  g.output(g.add(g.matmul(a, b), g.input("residual", {4096, 4096}, DataType::bf16)),
           {.type = DataType::bf16});
  const Graph graph = g.finish();
  for (const EngineConfig& config : configs(fusion_of(graph), h200())) {
    const int64_t consumers = config.knob("ping_pong", 0) != 0 ? 1 : 2;
    EXPECT_LE(config.knob("tile_m", 0) * config.knob("tile_n", 0) / 128 / consumers, 128);
    EXPECT_EQ(config.knob("cluster", 1), 1);
  }
  for (const Lowered& one : lowerings(graph)) EXPECT_EQ(config_value(source_of(one), "staged"), 0);
  expect_every_setting_lowers(graph);
  expect_every_setting_lowers(product({.type = DataType::f8_e4m3, .b = {{1, 1001}}}));
}

// Loads by threads take their time: more of it, the more there is to load.
TEST(WgmmaLoader, CostsMoreThanTheCopyEngine) {
  const auto efficiency = [](const Case& c) {
    double best = 0;
    for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion_of(product(c)), h200()))
      best = std::max(best, candidate.work.efficiency);
    return best;
  };
  const double copied = efficiency({.m = 4096, .n = 4096, .k = 1024}),
               one = efficiency({.m = 4096, .n = 4096, .k = 1025}),
               both = efficiency({.m = 4096, .n = 4096, .k = 1025, .b = {{1, 1025}}});
  EXPECT_LT(one, copied);
  EXPECT_LT(both, one);
  EXPECT_GT(both, 0.1);
}

Graph gated_pair(int64_t k, int64_t n) {
  GraphBuilder g("gated_pair");
  const Tensor x = g.input("x", {390, k}, DataType::bf16);
  const auto branch = [&](const char* name) { return g.matmul(x, g.input(name, {k, n}, DataType::bf16)); };
  g.output(g.mul(g.swish(branch("gate")), branch("up")), {.type = DataType::bf16});
  return g.finish();
}

// Channels in lines of 67 elements, positions in lines of 196.
Graph pointwise_convolution() {
  GraphBuilder g("pointwise");
  const Tensor x = g.input("x", {3, 67, 14, 14}, DataType::f16),
               w = g.input("w", {45, 67, 1, 1}, DataType::f16);
  const Tensor bias = g.input("bias", {1, 45, 1, 1}, DataType::f16);
  g.output(g.relu(g.add(g.conv_fprop(x, w), bias)), {.type = DataType::f16});
  return g.finish();
}

TEST(WgmmaLoader, PointwiseConvolutionsAreMatmuls) {
  const Graph graph = pointwise_convolution();
  ASSERT_EQ(rule(graph), "");
  for (const Lowered& one : lowerings(graph)) {
    EXPECT_EQ(config_value(source_of(one), "op"), static_cast<int64_t>(ContractionOp::matmul));
    const bool swapped = config_value(source_of(one), "swapped") != 0;
    EXPECT_EQ(grain(one, swapped ? "grain_b" : "grain_a"), 2) << "filter";
    EXPECT_EQ(grain(one, swapped ? "grain_a" : "grain_b"), 8) << "positions";
  }
}

TEST(WgmmaLoader, SiblingsAreLoadedAlike) {
  for (const Lowered& one : lowerings(gated_pair(136, 333))) {
    EXPECT_EQ(grain(one, "grain_a"), 0);
    EXPECT_EQ(grain(one, "grain_b"), 2);
  }
  for (const Lowered& one : lowerings(gated_pair(137, 336))) {
    EXPECT_EQ(grain(one, "grain_a"), 2);
    EXPECT_EQ(grain(one, "grain_b"), 0);
  }
}

TEST(WgmmaLoader, TextIsTheGoldenText) {
  const Graph graph = product({.m = 515, .n = 777, .fused = true});
  EXPECT_EQ(test::generated_text(lowerings(graph).front(), 0), test::golden_text("sm90/wgmma/threads"));
}

TEST(WgmmaLoader, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  for (const Case& c : {Case{.fused = true}, Case{.a = {{1, 257}}, .b = {{321, 1}}, .fused = true},
                        Case{.k = 1004, .b = {{1, 1004}}, .batch = 3},
                        Case{.type = DataType::f32, .b = {{1, 1001}}, .fused = true},
                        Case{.type = DataType::i8, .b = {{1, 1001}}},
                        Case{.type = DataType::f8_e4m3, .b = {{1, 1001}}, .fused = true}})
    expect_clean_kernels(product(c));
  expect_clean_kernels(gated_pair(137, 333));
  expect_clean_kernels(pointwise_convolution());
}

}  // namespace
}  // namespace fusor::threads_test
