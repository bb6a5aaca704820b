// Owns the checks of the mma engine's rules, candidates and steps; its kernels:
// tests/backend/engines/tiled/mma_compile_test.cpp, its operand tiles:
// tests/backend/engines/tiled/swizzle_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/report/explain.h"
#include "heuristics/time_model.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/tiled/cases.h"

namespace fusor::mma_test {
namespace {

using direct_cases::convolution;
using direct_cases::fusion_of;
using direct_cases::h200;
using direct_cases::matmul;

std::string rule(const Fusion& fusion, const DeviceInfo& device = h200()) {
  const Support support = test::supports(mma_engine(), fusion, device);
  return support ? "" : support.refusal->rule;
}

DeviceInfo with_capability(int capability) {
  DeviceInfo device = h200();
  device.compute_capability = capability;
  return device;
}

EngineConfig tiled(int64_t tile_m, int64_t tile_n, int64_t tile_k, int64_t split = 1) {
  return {"mma", 1, {{"tile_m", tile_m}, {"tile_n", tile_n}, {"tile_k", tile_k}, {"split", split}}};
}

Lowered lowered(const Fusion& fusion, const EngineConfig& config = tiled(128, 128, 32)) {
  return test::lower(mma_engine(), fusion, config, h200());
}

const Launch& launch(const Lowered& lowered, size_t step = 0) {
  return std::get<Launch>(lowered.steps.at(step));
}

int64_t config_of(const Fusion& fusion, std::string_view name,
                  const EngineConfig& config = tiled(128, 128, 32)) {
  const Lowered steps = lowered(fusion, config);
  const std::vector<ConfigValue>& values = launch(steps).source->config;
  const auto found = std::ranges::find(values, name, &ConfigValue::name);
  return found == values.end() ? -1 : found->number();
}

DataType type_of(const Fusion& fusion, std::string_view name) {
  return static_cast<DataType>(config_of(fusion, name));
}

// x [2, channels, 14, 14] with a 3x3 window, and nothing around the convolution.
Fusion forward(int64_t channels, Layout layout, DataType type = DataType::f16) {
  GraphBuilder g("forward", Precision::allow_tf32);
  const Tensor x = g.input("x", {2, channels, 14, 14}, type, layout);
  const Tensor w = g.input("w", {40, channels, 3, 3}, type, layout);
  return fusion_of(g.finish({g.conv_fprop(x, w, {.padding = {1, 1}})}));
}

Fusion product(DataType a_type, DataType b_type, std::optional<DataType> compute = std::nullopt,
               Precision precision = Precision::exact) {
  GraphBuilder g("product", precision);
  const Tensor a = g.input("a", {64, 64}, a_type), b = g.input("b", {64, 64}, b_type);
  return fusion_of(g.finish({g.matmul(a, b, {.name = "mm", .compute = compute})}));
}

// --- supports ---

TEST(Mma, TakesEveryPassRankAndLayoutThatDirectTakes) {
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::i8, DataType::f8_e4m3})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (int spatial = 1; spatial <= 3; ++spatial)
        for (const Layout layout : {Layout::nchw, Layout::nhwc})
          EXPECT_EQ(rule(convolution(pass, spatial, type, layout, 2)), "");
}

TEST(Mma, NeedsAmpere) {
  EXPECT_EQ(rule(matmul(DataType::f16), with_capability(75)), "sm-80");
  for (const int capability : {80, 86, 89, 90, 100, 120})
    EXPECT_EQ(rule(matmul(DataType::f16), with_capability(capability)), "");
  DeviceInfo cpu = h200();
  cpu.kind = DeviceKind::cpu;
  EXPECT_EQ(rule(matmul(DataType::f16), cpu), "needs-gpu");
}

TEST(Mma, RefusesSumsThatTensorCoresDoNotHave) {
  EXPECT_EQ(rule(product(DataType::f64, DataType::f64)), "tensor-core-sums");
  EXPECT_EQ(rule(product(DataType::i64, DataType::i64)), "tensor-core-sums");
}

TEST(Mma, RefusesOperandsOfMoreBitsAndNamesThem) {
  const Support support = test::supports(
      mma_engine(), product(DataType::f16, DataType::f32, std::nullopt, Precision::strict), h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "tensor-core-operands");
  EXPECT_EQ(support.refusal->tensor, "b");
  EXPECT_EQ(support.refusal->actual, "fp32");
  EXPECT_EQ(support.refusal->remedy, "let the graph's precision be exact");
  EXPECT_EQ(rule(product(DataType::i32, DataType::i32)), "tensor-core-operands");
}

TEST(Mma, OperandsOfTwoTypesMeetInOneThatHoldsBoth) {
  EXPECT_EQ(type_of(product(DataType::f16, DataType::f8_e5m2), "ElementA"), DataType::f16);
  EXPECT_EQ(type_of(product(DataType::f8_e4m3, DataType::bf16), "ElementB"), DataType::bf16);
  EXPECT_EQ(type_of(product(DataType::i8, DataType::u8), "ElementB"), DataType::u8);
  EXPECT_EQ(type_of(product(DataType::i8, DataType::u8, DataType::f32), "ElementB"), DataType::f16);
  EXPECT_EQ(rule(product(DataType::f16, DataType::bf16, std::nullopt, Precision::strict)),
            "tensor-core-operands");
}

TEST(Mma, APrologueCountsByTheTypeOfItsResult) {
  const auto scaled = [](DataType type) {
    GraphBuilder g("scaled", Precision::strict);
    const Tensor a = g.input("a", {64, 64}, DataType::f16), s = g.input("s", {1, 64}, DataType::f32);
    const Tensor x = g.mul(a, s, {.name = "scale", .type = type});
    return fusion_of(g.finish({g.matmul(x, g.input("b", {64, 64}, DataType::f16))}));
  };
  EXPECT_EQ(rule(scaled(DataType::f16)), "");
  const Support support = test::supports(mma_engine(), scaled(DataType::f32), h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->node, "scale");
  EXPECT_FALSE(support.refusal->remedy.empty());
}

// relu of fp16 is declared fp32, but gives fp16's numbers only.
TEST(Mma, APrologueThatOnlyPassesNumbersOnKeepsTheirType) {
  EXPECT_EQ(rule(matmul(DataType::f16)), "");
  EXPECT_EQ(type_of(matmul(DataType::bf16), "ElementA"), DataType::bf16);
  EXPECT_EQ(config_of(matmul(DataType::f16), "a_plain"), 0);
  EXPECT_EQ(config_of(matmul(DataType::f16), "b_plain"), 1);
}

TEST(Mma, TakesFp32AsTf32WhereTheGraphAllowsIt) {
  const auto allowed = [](DataType a, DataType b, std::optional<DataType> compute = std::nullopt) {
    return product(a, b, compute, Precision::allow_tf32);
  };
  for (const DataType other :
       {DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3, DataType::u8}) {
    EXPECT_EQ(rule(allowed(DataType::f32, other)), "");
    EXPECT_EQ(type_of(allowed(other, DataType::f32), "ElementA"), DataType::f32);
    EXPECT_EQ(config_of(allowed(other, DataType::f32), "a_plain"), other == DataType::f32 ? 1 : 0);
    EXPECT_TRUE(test::notes(mma_engine(), allowed(other, DataType::f32), DeviceInfo::named("H200")).tf32);
  }
  EXPECT_EQ(rule(allowed(DataType::f64, DataType::f32)), "tensor-core-sums");
  EXPECT_EQ(rule(allowed(DataType::i32, DataType::f32)), "tensor-core-operands");
}

TEST(Mma, KeepsNumbersExactWhereItCanThoughTf32IsAllowed) {
  const Fusion fusion = product(DataType::f16, DataType::f16, std::nullopt, Precision::allow_tf32);
  EXPECT_EQ(type_of(fusion, "ElementA"), DataType::f16);
  EXPECT_FALSE(test::notes(mma_engine(), fusion, DeviceInfo::named("H200")).tf32);
}

TEST(Mma, TakesFp32InPartsUnlessTheGraphIsStrict) {
  for (const DataType other :
       {DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3, DataType::u8}) {
    EXPECT_EQ(rule(product(DataType::f32, other, std::nullopt, Precision::strict)), "tensor-core-operands");
    const Fusion fusion = product(DataType::f32, other);
    EXPECT_EQ(type_of(fusion, "ElementA"), DataType::bf16);
    EXPECT_EQ(config_of(fusion, "parts"), 3);
    EXPECT_EQ(config_of(fusion, "a_width"), 4);
    EXPECT_EQ(config_of(fusion, "stages"), 2);
    const Notes notes = test::notes(mma_engine(), fusion, h200());
    EXPECT_TRUE(notes.split_operands);
    EXPECT_FALSE(notes.tf32);
  }
  EXPECT_EQ(config_of(product(DataType::f16, DataType::bf16), "parts"), 3);
  EXPECT_EQ(config_of(product(DataType::f16, DataType::f16), "parts"), 1);
  EXPECT_FALSE(test::notes(mma_engine(), product(DataType::f16, DataType::f16), h200()).split_operands);
}

TEST(Mma, PlansNameTf32AndExactGraphsStayExact) {
  for (const Precision precision : {Precision::exact, Precision::allow_tf32}) {
    GraphBuilder g("product", precision);
    const Tensor a = g.input("a", {1024, 1024}, DataType::f32);
    const Graph graph = g.finish({g.matmul(a, a)});
    for (const Candidate& candidate : candidates(graph, DeviceInfo::named("A100"), {.compile = false})) {
      const std::string engine = candidate.fusions[0].config.engine;
      EXPECT_EQ(candidate.notes.tf32, engine == "mma" && precision == Precision::allow_tf32) << engine;
      EXPECT_EQ(candidate.notes.split_operands, engine == "mma" && precision == Precision::exact) << engine;
    }
    const std::string text = explain(graph, DeviceInfo::named("A100"), {.compile = false}, Detail::all);
    EXPECT_EQ(text.find("precision allow_tf32: the choice rounds operands to TF32") != std::string::npos,
              precision == Precision::allow_tf32)
        << text;
    EXPECT_EQ(text.find("mma accepts in tf32") != std::string::npos, precision == Precision::allow_tf32)
        << text;
  }
}

TEST(Mma, RefusesWhatDirectRefuses) {
  GraphBuilder g;
  const Tensor y = g.matmul(g.input("a", {8, 4}, DataType::f16), g.input("b", {4, 6}, DataType::f16));
  EXPECT_EQ(rule(fusion_of(g.finish({y, g.reduce(y, ReductionMode::add, {1})}))), "no-epilogue-reduction");
}

// --- lower ---

TEST(Mma, ChannelsMoveSixteenBytesAtATime) {
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "a_width"), 8);
  EXPECT_EQ(config_of(forward(12, Layout::nhwc), "a_width"), 4);
  EXPECT_EQ(config_of(forward(6, Layout::nhwc), "a_width"), 2);
  EXPECT_EQ(config_of(forward(3, Layout::nhwc), "a_width"), 1);
  EXPECT_EQ(config_of(forward(64, Layout::nchw), "a_width"), 1);
  EXPECT_EQ(config_of(forward(64, Layout::nhwc, DataType::i8), "a_width", tiled(128, 128, 64)), 16);
  EXPECT_EQ(config_of(forward(64, Layout::nhwc, DataType::f32), "a_width"), 4);
  EXPECT_EQ(config_of(forward(6, Layout::nhwc, DataType::f32), "a_width"), 2);
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "vector"), 8);
}

// One tap on every pixel cannot reach over the edge; nor can the gradient of the result.
TEST(Mma, PixelsMoveInVectorsWhereNoneIsPadding) {
  const auto pixels = [](ConvPass pass, int64_t window, int64_t stride, int64_t extent) {
    GraphBuilder g;
    const Dims x{2, 16, extent, extent}, w{32, 16, window, window};
    const ConvOptions options{.padding = {window / 2, window / 2}, .stride = {stride, stride}};
    const Dims y{2, 32, (extent - 1) / stride + 1, (extent - 1) / stride + 1};
    const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, DataType::f16);
    if (pass == ConvPass::fprop)
      return fusion_of(g.finish({g.conv_fprop(first, g.input("w", w, DataType::f16), options)}));
    return fusion_of(g.finish({g.conv_wgrad(first, g.input("x", x, DataType::f16), w, options)}));
  };
  EXPECT_EQ(config_of(pixels(ConvPass::fprop, 1, 1, 56), "a_width"), 8);
  EXPECT_EQ(config_of(pixels(ConvPass::fprop, 1, 1, 28), "a_width"), 4);
  EXPECT_EQ(config_of(pixels(ConvPass::fprop, 1, 1, 7), "a_width"), 1);
  EXPECT_EQ(config_of(pixels(ConvPass::fprop, 1, 2, 56), "a_width"), 1);
  EXPECT_EQ(config_of(pixels(ConvPass::fprop, 3, 1, 56), "a_width"), 1);
  EXPECT_EQ(config_of(pixels(ConvPass::wgrad, 3, 1, 56), "a_width"), 8);
  EXPECT_EQ(config_of(pixels(ConvPass::wgrad, 3, 1, 56), "b_width"), 1);
}

TEST(Mma, GuardsTheAlignmentOfVectors) {
  const Fusion fusion = forward(64, Layout::nhwc);
  const Lowered steps = lowered(fusion);
  for (const Guard& guard : steps.guards) EXPECT_EQ(guard.alignment, 16) << fusion.name_of(guard.operand);
  EXPECT_EQ(steps.guards.size(), 3u);
}

TEST(Mma, StagesFitTwoBlocksOnAnSm) {
  const Fusion fusion = forward(64, Layout::nhwc);
  EXPECT_LE(2 * (launch(lowered(fusion, tiled(128, 128, 64))).shared_bytes + 1024), h200().shared_per_sm);
  EXPECT_GE(config_of(fusion, "stages", tiled(128, 128, 64)), 3);
  EXPECT_LE(launch(lowered(fusion, tiled(128, 256, 64))).shared_bytes, h200().shared_per_block);
  EXPECT_EQ(config_of(forward(3, Layout::nhwc), "stages"), 2) << "registers are one turn ahead";
  const Fusion words = forward(64, Layout::nchw, DataType::f32);
  EXPECT_GE(config_of(words, "stages", tiled(128, 128, 32)), 3) << "single elements are copied, too";
  EXPECT_LE(2 * (launch(lowered(words, tiled(128, 128, 32))).shared_bytes + 1024), h200().shared_per_sm);
}

TEST(Mma, SplitSumsPartsInASecondLaunch) {
  const Fusion fusion = matmul(DataType::f16, 1, 64, 64, 1000);
  const Lowered steps = lowered(fusion, tiled(64, 64, 32, 4));
  ASSERT_EQ(steps.steps.size(), 2u);
  EXPECT_EQ(launch(steps, 0).grid[0], 4u);
  EXPECT_EQ(launch(steps, 1).entry, "split_finish");
  EXPECT_THAT(steps.scratch, testing::ElementsAre(4 * 64 * 64 * 4));
}

TEST(Mma, StructureDoesNotDependOnExtentsAndNames) {
  const Lowered one = lowered(matmul(DataType::f16, 3, 100, 72, 56));
  const Lowered other = lowered(matmul(DataType::f16, 5, 444, 80, 128));
  EXPECT_EQ(structure_hash(*launch(one).source), structure_hash(*launch(other).source));
}

// --- candidates ---

TEST(Mma, CandidatesStandInTheKnobs) {
  const Fusion fusions[] = {matmul(DataType::f16),
                            matmul(DataType::i8, 1, 20, 500, 100000),
                            convolution(ConvPass::wgrad, 2, DataType::f16),
                            matmul(DataType::f16, 1, 1, 1, 1),
                            forward(256, Layout::nhwc),
                            forward(256, Layout::nchw, DataType::f32),
                            matmul(DataType::f32, 1, 300, 300, 300)};
  for (const int capability : {80, 89, 90})
    for (const Fusion& fusion : fusions) {
      const DeviceInfo device = with_capability(capability);
      const std::vector<Knob> knobs = test::knobs(mma_engine(), fusion, device);
      const auto candidates = test::candidates(mma_engine(), fusion, device);
      EXPECT_FALSE(candidates.empty());
      for (const EngineCandidate& candidate : candidates)
        for (const Knob& knob : knobs)
          EXPECT_THAT(knob.values,
                      testing::Contains(candidate.config.knob(knob.name, knob.name == "cluster" ? 1 : -1)))
              << knob.name;
    }
}

TEST(Mma, CandidatesFitTheSharedMemoryOfEveryGeneration) {
  for (const char* name : {"A100", "RTX 4090", "H200"})
    for (const Fusion& fusion :
         {forward(512, Layout::nhwc), product(DataType::f32, DataType::f32), matmul(DataType::f32)}) {
      const DeviceInfo device = DeviceInfo::named(name);
      for (const EngineCandidate& candidate : test::candidates(mma_engine(), fusion, device)) {
        const Lowered steps = test::lower(mma_engine(), fusion, candidate.config, device);
        EXPECT_LE(launch(steps).shared_bytes, device.shared_per_block) << name << to_string(candidate.config);
        EXPECT_GE(candidate.work.tiles_per_sm, 1);
      }
    }
}

TEST(Mma, WorkCountsTheProductsOfWholeTilesOnTensorCores) {
  for (const EngineCandidate& candidate :
       test::candidates(mma_engine(), matmul(DataType::f16, 1, 128, 64, 64), h200())) {
    EXPECT_EQ(candidate.work.tensor_flops, 2.0 * 128 * 64 * 64);
    EXPECT_EQ(candidate.work.dram_bytes, 2.0 * (128 * 64 + 64 * 64 + 128 * 64));
  }
}

TEST(Mma, IsCheaperThanTheCudaCores) {
  const auto best = [](const Engine& engine, const Fusion& fusion) {
    double seconds = 1e9;
    for (const EngineCandidate& candidate : test::candidates(engine, fusion, DeviceInfo::named("H200")))
      seconds = std::min(seconds, estimate_seconds(candidate.work, DeviceInfo::named("H200")));
    return seconds;
  };
  GraphBuilder conv, product;
  const Tensor x = conv.input("x", {64, 256, 14, 14}, DataType::f16, Layout::nhwc);
  const Tensor w = conv.input("w", {256, 256, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor a = product.input("a", {1024, 1024}, DataType::f16);
  for (const Fusion& fusion : {fusion_of(conv.finish({conv.conv_fprop(x, w, {.padding = {1, 1}})})),
                               fusion_of(product.finish({product.matmul(a, a)}))})
    EXPECT_LT(best(mma_engine(), fusion), best(direct_engine(), fusion));
}

TEST(MmaText, IsTheGoldenText) {
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {2, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {128, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 128, 1, 1}, DataType::f16);
  const Fusion fusion = fusion_of(g.finish({g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b))}));
  EXPECT_EQ(test::generated_text(lowered(fusion, tiled(128, 128, 64)), 0), test::golden_text("tiled/mma"));
}

}  // namespace
}  // namespace fusor::mma_test
