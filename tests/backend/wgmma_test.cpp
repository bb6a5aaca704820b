// Owns the tests of the wgmma engine that need no GPU: its refusals, its launches and its generated text.
// That its kernels compile is tests/suite_kernels'.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines.h"
#include "backend/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/compiled_kernels.h"
#include "tests/backend/golden_text.h"

namespace fusor {
namespace {

Fusion fusion_of(const Graph& graph) {
  std::vector<int> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) ops.push_back(static_cast<int>(i));
  return make_fusion(graph, fold_views(graph), ops);
}

Graph matmul(int64_t m, int64_t n, int64_t k, DataType type, Strides b_strides = {},
             Precision precision = Precision::exact) {
  GraphBuilder g("matmul", precision);
  const Tensor a = g.input("a", {m, k}, type);
  TensorOptions options;
  if (!b_strides.empty()) options.strides = b_strides;
  const Tensor b = g.input("b", {k, n}, type, options);
  return g.finish({g.matmul(a, b, {.name = "mm"})});
}

int64_t config_value(const KernelSource& source, const char* name) {
  return std::ranges::find(source.config, name, &ConfigValue::name)->value;
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

// b's columns lie along k.
Graph tf32_matmul(int64_t m, int64_t n, int64_t k) {
  return matmul(m, n, k, DataType::f32, Strides{1, k}, Precision::allow_tf32);
}

TEST(Wgmma, TakesFp32AsTf32AlongKWhereTheGraphAllowsIt) {
  EXPECT_EQ(rule(tf32_matmul(256, 256, 64)), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f32, Strides{1, 64})), "16-bit-operands");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f32, {}, Precision::allow_tf32)), "");
  EXPECT_EQ(rule(tf32_matmul(256, 250, 62)), "16-byte-lines");
  EXPECT_TRUE(wgmma_engine().notes_on(fusion_of(tf32_matmul(256, 256, 64))).tf32);
  EXPECT_FALSE(wgmma_engine().notes_on(fusion_of(matmul(256, 256, 64, DataType::f16))).tf32);
  const Plan plan = build(tf32_matmul(4096, 4096, 4096), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_TRUE(plan.notes.tf32);
}

// c[m, n] = a b of so many m, n and k in TF32; each row-major unless it is said to lie in columns.
struct Tf32Case {
  Dims mnk;
  bool a_columns = false, b_columns = false, c_columns = false;
};

Graph tf32_product(const Tf32Case& c, DataType result = DataType::f32) {
  const int64_t m = c.mnk[0], n = c.mnk[1], k = c.mnk[2];
  GraphBuilder g("tf32", Precision::allow_tf32);
  const auto operand = [&](const char* name, int64_t rows, int64_t columns, bool in_columns) {
    const Strides strides = in_columns ? Strides{1, rows} : Strides{columns, 1};
    return g.input(name, {rows, columns}, DataType::f32, TensorOptions{.strides = strides});
  };
  const Tensor y = g.matmul(operand("a", m, k, c.a_columns), operand("b", k, n, c.b_columns));
  g.output(y, {.type = result, .strides = c.c_columns ? Strides{1, m} : Strides{n, 1}});
  return g.finish();
}

TEST(Wgmma, OneTf32OperandMayLieAcrossKForItIsOnTheRows) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const bool in_columns : {true, false}) {
    const int64_t swap = in_columns ? 0 : 1;
    const Graph graph = tf32_product({{512, 384, 256}, in_columns, in_columns});
    EXPECT_EQ(rule(graph), "");
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = wgmma_engine().knobs(fusion, device);
    EXPECT_THAT(std::ranges::find(knobs, "swap", &Knob::name)->values, testing::ElementsAre(swap));
    for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
      EXPECT_EQ(candidate.config.knob("swap", -1), swap);
      const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      EXPECT_EQ(config_value(*launch.source, "a_rows_adjacent"), 1);
      EXPECT_EQ(config_value(*launch.source, "b_columns_adjacent"), 0);
      const TensorMap& across = launch.arguments.maps().at(0);
      EXPECT_EQ(across.dims, (Dims{in_columns ? 512 : 384, 256, 1}));
      EXPECT_EQ(across.box, (Dims{32, 32, 1}));
      EXPECT_TRUE(across.rounds_to_tf32);
      if (config_value(*launch.source, "way_out") != 1) continue;
      EXPECT_EQ(config_value(*launch.source, "y_along_columns"), in_columns ? 1 : 0);
      EXPECT_LE(launch.arguments.maps().at(2).box[0], 32);
    }
  }
}

TEST(Wgmma, OfTwoTf32OperandsAcrossKTheSmallerIsRefused) {
  const auto refused = [](const Dims& mnk) {
    const Support support =
        wgmma_engine().supports(fusion_of(tf32_product({mnk, true})), DeviceInfo::named("H200"));
    return support ? "" : support.refusal->rule + " " + support.refusal->tensor;
  };
  EXPECT_EQ(refused({512, 384, 256}), "adjacent-k b");
  EXPECT_EQ(refused({384, 512, 256}), "adjacent-k a");
  // What cannot be copied anyway leaves the rows to the other one.
  EXPECT_EQ(refused({384, 510, 256}), "adjacent-k b");
}

TEST(Wgmma, Tf32AcrossKHasNoReductions) {
  GraphBuilder g("reduced", Precision::allow_tf32);
  const Tensor product =
      g.matmul(g.input("a", {256, 64}, DataType::f32), g.input("b", {64, 256}, DataType::f32));
  const Tensor c = g.output(product, {.name = "c", .type = DataType::f32});
  g.output(g.reduce(c, ReductionMode::add, {0}), {.type = DataType::f32});
  EXPECT_EQ(rule(g.finish()), "adjacent-k");
}

// Images of planes: the filter is broadcast over them, and positions are the rows.
Graph tf32_planes(ConvPass pass) {
  GraphBuilder g("planes", Precision::allow_tf32);
  const Dims x{128, 64, 56, 56}, y{128, 256, 56, 56};
  const Tensor w = g.input("w", {256, 64, 1, 1}, DataType::f32);
  if (pass == ConvPass::fprop) {
    const Tensor sums = g.conv_fprop(g.input("x", x, DataType::f32), w);
    g.output(g.relu(g.add(sums, g.input("bias", {1, 256, 1, 1}, DataType::f32))));
  } else {
    g.output(g.conv_dgrad(g.input("dy", y, DataType::f32), w, x));
  }
  return g.finish();
}

TEST(Wgmma, PlanesInTf32AreReadWhereTheyLie) {
  const DeviceInfo device = DeviceInfo::named("H200");
  EXPECT_EQ(rule(tf32_planes(ConvPass::fprop)), "");
  EXPECT_EQ(rule(tf32_planes(ConvPass::dgrad)), "adjacent-channels");
  const Plan fprop = build(tf32_planes(ConvPass::fprop), device, {.compile = false});
  EXPECT_EQ(fprop.fusions.at(0).config.engine, "wgmma");
  EXPECT_LT(fprop.seconds, 160e-6);
  // Its filter is packed, the images are not.
  const Plan dgrad = build(tf32_planes(ConvPass::dgrad), device, {.compile = false});
  EXPECT_EQ(dgrad.fusions.at(0).config.engine, "wgmma_repacked");
  EXPECT_EQ(dgrad.workspace_bytes, 256 * 64 * 4);
  EXPECT_LT(dgrad.seconds, 160e-6);
}

TEST(Wgmma, TakesBytesAlongKInInt32) {
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::i8, Strides{1, 64})), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::u8)), "adjacent-k");
  EXPECT_EQ(rule(matmul(256, 256, 72, DataType::i8, Strides{1, 72})), "16-byte-lines");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::i32, Strides{1, 64})), "16-bit-operands");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f8_e4m3, Strides{1, 64})), "16-bit-operands");
  EXPECT_EQ(build(matmul(4096, 4096, 4096, DataType::i8, Strides{1, 4096}), DeviceInfo::named("H200"),
                  {.compile = false})
                .fusions.at(0)
                .config.engine,
            "wgmma");
}

// Signed by unsigned, the product dequantised.
Graph dequantised_matmul() {
  GraphBuilder g("dequantised");
  const Tensor a = g.input("a", {2048, 1024}, DataType::i8);
  const Tensor b = g.input("b", {1024, 2048}, DataType::u8, TensorOptions{.strides = Strides{1, 1024}});
  const Tensor scale = g.input("scale", {1, 2048}, DataType::f32);
  const Tensor y = g.mul(g.matmul(a, b), scale);
  return g.finish({g.output(y, {.type = DataType::f16})});
}

TEST(Wgmma, BytesOfEitherSignMeet) {
  const Fusion fusion = fusion_of(dequantised_matmul());
  ASSERT_EQ(rule(dequantised_matmul()), "");
  for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, DeviceInfo::named("H200"))) {
    const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, DeviceInfo::named("H200"));
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    const int64_t swapped = candidate.config.knob("swap", 0);
    EXPECT_EQ(config_value(*launch.source, "type"), 3 + swapped);
    EXPECT_EQ(config_value(*launch.source, "type_b"), 4 - swapped);
    EXPECT_EQ(launch.arguments.maps().at(0).box[0], 128);
  }
}

TEST(Wgmma, RefusesOperandsOfTwoTypes) {
  GraphBuilder g("mixed");
  const Tensor a = g.input("a", {64, 64}, DataType::f16), b = g.input("b", {64, 64}, DataType::bf16);
  EXPECT_EQ(rule(g.finish({g.matmul(a, b)})), "operands-of-one-type");
}

TEST(Wgmma, Tf32IsCopiedInLinesOf32Elements) {
  const Fusion fusion = fusion_of(tf32_matmul(520, 392, 1000));
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
    const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    EXPECT_LE(launch.shared_bytes, device.shared_per_block);
    for (size_t i : {0, 1}) {
      const TensorMap& map = launch.arguments.maps().at(i);
      EXPECT_TRUE(map.rounds_to_tf32);
      EXPECT_EQ(map.box[0], 32);
      EXPECT_EQ(map.dims[0], 1000);
      EXPECT_EQ(map.stride_bytes[0], 4000);
    }
  }
}

TEST(Wgmma, RefusesLinesThatTheCopyEngineCannotWalk) {
  EXPECT_EQ(rule(matmul(256, 250, 64, DataType::bf16)), "16-byte-lines");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::bf16, Strides{1024, 2})), "adjacent-operands");
  EXPECT_EQ(rule(matmul(256, 250, 64, DataType::bf16, Strides{1, 64})), "");
}

TEST(Wgmma, CountsRowsColumnsStepsAndTilesIn32Bits) {
  constexpr int64_t kTooMany = int64_t{1} << 31, kMost = kTooMany - 8192;
  EXPECT_EQ(rule(matmul(kMost, 64, 64, DataType::bf16)), "");
  EXPECT_EQ(rule(matmul(kTooMany, 64, 64, DataType::bf16)), "32-bit-coordinates");
  EXPECT_EQ(rule(matmul(64, kTooMany, 64, DataType::bf16)), "32-bit-coordinates");
  EXPECT_EQ(rule(matmul(64, 64, kTooMany, DataType::bf16)), "32-bit-coordinates");
  for (const int64_t entries : {kMost, kTooMany}) {
    GraphBuilder g("batched");
    const Tensor a = g.input("a", {entries, 8, 8}, DataType::bf16);
    const Graph graph = g.finish({g.matmul(a, g.input("b", {8, 8}, DataType::bf16))});
    EXPECT_EQ(rule(graph), entries == kMost ? "" : "32-bit-coordinates");
  }
}

TEST(Wgmma, AddressesAreAsWideAsTheBuffers) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(matmul(70000, 70000, 64, DataType::bf16));
  ASSERT_TRUE(wgmma_engine().supports(fusion, device));
  for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
    const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
    EXPECT_EQ(config_value(*std::get<Launch>(lowered.steps.at(0)).source, "index_bits"), 64);
  }
}

TEST(Wgmma, PartsAreNoMoreThan32BitsCount) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(matmul(int64_t{1} << 30, 64, 8192, DataType::bf16));
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("split", 128);
  const Lowered lowered = wgmma_engine().lower(fusion, config, device);
  ASSERT_EQ(lowered.steps.size(), 2u);
  EXPECT_EQ(std::get<Launch>(lowered.steps[1]).grid[1], 1u);
  EXPECT_LT(lowered.scratch.at(0), int64_t{128} * (int64_t{1} << 30) * 64 * 4);
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

std::vector<EngineConfig> configs(const Fusion& fusion, const DeviceInfo& device) {
  std::vector<EngineConfig> found;
  for (EngineCandidate& candidate : wgmma_engine().candidates(fusion, device))
    found.push_back(std::move(candidate.config));
  return found;
}

TEST(Wgmma, LaunchesWhatTheDeviceHoldsAtOnce) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(matmul(4096, 4096, 4096, DataType::bf16));
  for (const EngineConfig& config : configs(fusion, device)) {
    SCOPED_TRACE(to_string(config));
    const Lowered lowered = wgmma_engine().lower(fusion, config, device);
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    const int64_t blocks_per_sm = launch.grid[0] / 132;
    EXPECT_EQ(launch.grid[0], 132u * blocks_per_sm);
    EXPECT_LE((launch.shared_bytes + 1024) * blocks_per_sm, device.shared_per_sm);
    EXPECT_LE(launch.shared_bytes, device.shared_per_block);
    ASSERT_EQ(launch.arguments.maps().size(), 3u);
    EXPECT_EQ(launch.arguments.patches()[0].at % kTensorMapAlignment, 0);
  }
}

TEST(Wgmma, CandidatesAreSettingsOfItsKnobs) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Graph& graph : {matmul(4096, 4096, 4096, DataType::bf16), matmul(16, 8192, 8192, DataType::f16),
                             matmul(64, 576, 100000, DataType::bf16)}) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = wgmma_engine().knobs(fusion, device);
    for (const EngineConfig& config : configs(fusion, device))
      for (const auto& [name, value] : config.knobs) {
        const auto knob = std::ranges::find(knobs, name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name;
        EXPECT_THAT(knob->values, testing::Contains(value)) << name;
      }
  }
}

// Settings that no candidate has, but a plan file may.
void expect_every_setting_lowers(const Graph& graph) {
  SCOPED_TRACE(graph.name);
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(graph);
  for (const int64_t tile_m : {64, 128, 256})
    for (const int64_t tile_n : {16, 32, 64, 96, 128, 160, 192, 224, 256})
      for (const int64_t swap : {0, 1})
        for (const int64_t ping_pong : {0, 1})
          for (const int64_t cluster : {1, 2})
            for (const int64_t split : {1, 2, 16}) {
              EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
              config.set("tile_m", tile_m);
              config.set("tile_n", tile_n);
              config.set("swap", swap);
              config.set("ping_pong", ping_pong);
              config.set("cluster", cluster);
              config.set("split", split);
              const Lowered lowered = wgmma_engine().lower(fusion, config, device);
              const Launch& launch = std::get<Launch>(lowered.steps.at(0));
              EXPECT_LE(launch.shared_bytes, device.shared_per_block) << to_string(config);
              EXPECT_EQ(launch.grid[0] % launch.cluster[0], 0u) << to_string(config);
              EXPECT_LE(launch.arguments.bytes().size(), 4096u) << to_string(config);
            }
}

TEST(Wgmma, LowersEverySettingOfItsKnobs) {
  expect_every_setting_lowers(tf32_matmul(300, 520, 1000));
  expect_every_setting_lowers(tf32_product({.mnk = {300, 520, 1000}}));
  expect_every_setting_lowers(tf32_product({.mnk = {300, 520, 1000}, .a_columns = true, .b_columns = true}));
  expect_every_setting_lowers(dequantised_matmul());
  expect_every_setting_lowers(matmul(300, 520, 1000, DataType::bf16));
}

// --- Gated pairs ---

// swish(x gate) * (x up) with the weights' strides.
Graph gated_pair(int64_t m, int64_t n, int64_t k, Strides gate_strides = {}, Strides up_strides = {},
                 DataType up_type = DataType::bf16) {
  GraphBuilder g("gated pair");
  const Tensor x = g.input("x", {m, k}, DataType::bf16);
  const auto weights = [&](const char* name, const Strides& strides, DataType type) {
    TensorOptions options;
    if (!strides.empty()) options.strides = strides;
    const Tensor w = g.input(name, {k, n}, type, options);
    return type == DataType::bf16 ? w : g.identity(w, {.type = DataType::bf16});
  };
  const Tensor gate = g.matmul(x, weights("wg", gate_strides, DataType::bf16), {.name = "gate"});
  const Tensor up = g.matmul(x, weights("wu", up_strides, up_type), {.name = "up"});
  g.output(g.mul(g.swish(gate), up), {.type = DataType::bf16});
  return g.finish();
}

TEST(Wgmma, TakesPairsOfMatmulsThatLieAlike) {
  EXPECT_EQ(rule(gated_pair(256, 264, 64)), "");
  EXPECT_EQ(rule(gated_pair(256, 250, 64, Strides{1, 64}, Strides{1, 72})), "");
  EXPECT_EQ(rule(gated_pair(256, 264, 64, {}, Strides{1, 64})), "like-siblings");
  EXPECT_EQ(rule(gated_pair(256, 264, 64, {}, {}, DataType::f16)), "plain-operands");
  const Support support = wgmma_engine().supports(fusion_of(gated_pair(8, 264, 64, {}, Strides{1, 64})),
                                                  DeviceInfo::named("H200"));
  EXPECT_EQ(support.refusal->node, "up");
  EXPECT_EQ(support.refusal->tensor, "wu");
  EXPECT_EQ(support.refusal->op, 1);
}

TEST(Wgmma, PairOfConvolutionsIsCut) {
  GraphBuilder g("pair");
  const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::f16, Layout::nhwc);
  const auto convolution = [&](const char* name) {
    return g.conv_fprop(x, g.input(name, {64, 64, 3, 3}, DataType::f16, Layout::nhwc), {.padding = {1, 1}});
  };
  g.output(g.add(convolution("w"), convolution("v")), {.layout = Layout::nhwc});
  const Graph graph = g.finish();
  EXPECT_EQ(rule(graph), "one-contraction");
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 2u);
  for (const PlannedFusion& planned : plan.fusions) EXPECT_EQ(planned.config.engine, "wgmma");
}

TEST(Wgmma, PairOfPointwiseConvolutionsIsAPairOfMatmuls) {
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("pair");
    const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::f16, layout);
    const auto convolution = [&](const char* name) {
      return g.conv_fprop(x, g.input(name, {128, 64, 1, 1}, DataType::f16));
    };
    const Tensor gate = convolution("w"), up = convolution("v");
    g.output(g.mul(g.sigmoid(gate), up), {.type = DataType::f16, .layout = layout});
    const Graph graph = g.finish();
    // Channels first, the filters are the left operands, of which there are two.
    EXPECT_EQ(rule(graph), layout == Layout::nhwc ? "" : "adjacent-channels");
    const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
    EXPECT_EQ(plan.fusions.size(), layout == Layout::nhwc ? 1u : 2u);
  }
}

TEST(Wgmma, LargePairIsOneKernelAndElsewhereTwo) {
  const Graph graph = gated_pair(8192, 14336, 4096, Strides{1, 4096}, Strides{1, 4096});
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1u);
  EXPECT_EQ(plan.fusions[0].config.engine, "wgmma");
  const Plan elsewhere = build(graph, DeviceInfo::named("A100"), {.compile = false});
  ASSERT_EQ(elsewhere.fusions.size(), 2u);
  for (const PlannedFusion& planned : elsewhere.fusions) EXPECT_EQ(planned.config.engine, "mma");
}

TEST(Wgmma, TilesOfAPairHoldTwoOperands) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Graph& graph :
       {gated_pair(1024, 2048, 512), gated_pair(1024, 2048, 512, Strides{1, 512}, Strides{1, 512})}) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = wgmma_engine().knobs(fusion, device);
    const double flops = 2.0 * 1024 * 2048 * 512 * 2;
    for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
      SCOPED_TRACE(to_string(candidate.config));
      for (const auto& [name, value] : candidate.config.knobs)
        EXPECT_THAT(std::ranges::find(knobs, name, &Knob::name)->values, testing::Contains(value)) << name;
      const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
      ASSERT_EQ(lowered.steps.size(), 1u);
      const Launch& launch = std::get<Launch>(lowered.steps[0]);
      ASSERT_EQ(launch.arguments.maps().size(), 4u);
      const std::vector<TensorMap>& maps = launch.arguments.maps();
      EXPECT_EQ(maps[1].box, maps[2].box);
      const int64_t columns = candidate.config.knob("tile_n", 0) / 2 / candidate.config.knob("cluster", 1);
      EXPECT_EQ(maps[1].box[1], maps[1].stride_bytes[0] == 512 * 2 ? columns : 64);
      EXPECT_GE(candidate.work.tensor_flops, flops);
      EXPECT_LE(candidate.work.tensor_flops, 1.1 * flops);
    }
  }
}

TEST(Wgmma, PairOfAnySizeHasACandidate) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const int64_t n : {8, 16, 24, 40, 64})
    for (const int64_t m : {1, 8, 500}) {
      EXPECT_FALSE(configs(fusion_of(gated_pair(m, n, 64)), device).empty()) << m << " " << n;
      EXPECT_FALSE(configs(fusion_of(gated_pair(m, n, 64, Strides{1, 64}, Strides{1, 64})), device).empty());
    }
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForPairs) {
  expect_every_setting_lowers(gated_pair(300, 520, 1000));
  expect_every_setting_lowers(gated_pair(300, 20, 1000, Strides{1, 1000}, Strides{1, 1000}));
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForReductions) {
  for (const Dims& over : {Dims{0}, Dims{1}, Dims{0, 1}}) {
    GraphBuilder g("reduced");
    const Tensor c =
        g.matmul(g.input("a", {300, 1000}, DataType::bf16), g.input("b", {1000, 520}, DataType::bf16));
    g.output(g.reduce(c, ReductionMode::add, over), {.type = DataType::f32});
    expect_every_setting_lowers(g.finish());
  }
}

// --- Convolutions ---

Graph fprop(const Dims& x, const Dims& w, Layout layout, const ConvOptions& options = {}) {
  GraphBuilder g("fprop");
  const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16, layout),
                                g.input("w", w, DataType::f16, Layout::nhwc), options);
  g.output(y, {.layout = layout});
  return g.finish();
}

TEST(Wgmma, TakesConvolutionsWithAdjacentChannels) {
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, Layout::nhwc)), "");
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, Layout::nchw)), "adjacent-channels");
  EXPECT_EQ(rule(fprop({2, 3, 9, 9}, {64, 3, 3, 3}, Layout::nhwc)), "16-byte-lines");
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 32, 3, 3}, Layout::nhwc)), "channel-blocks");
  EXPECT_EQ(rule(fprop({2, 64, 400, 400}, {64, 64, 3, 3}, Layout::nhwc, {.padding = {150, 150}})),
            "window-limits");
}

Graph dgrad(const Dims& x, const Dims& w, const ConvOptions& options) {
  GraphBuilder shape("shape");
  const Dims y =
      shape.conv_fprop(shape.input("x", x, DataType::f16), shape.input("w", w, DataType::f16), options).dims;
  GraphBuilder g("dgrad");
  const Tensor dx = g.conv_dgrad(g.input("dy", y, DataType::f16, Layout::nhwc),
                                 g.input("w", w, DataType::f16, Layout::nhwc), x, options);
  g.output(dx, {.layout = Layout::nhwc});
  return g.finish();
}

TEST(Wgmma, TakesDgradOfAStrideClassByClass) {
  const Dims w{64, 64, 3, 3};
  EXPECT_EQ(rule(dgrad({2, 64, 16, 16}, w, {.padding = {1, 1}, .stride = {2, 2}})), "");
  EXPECT_EQ(rule(dgrad({2, 64, 16, 16}, w, {.padding = {1, 1}, .stride = {4, 4}})), "");
  EXPECT_EQ(rule(dgrad({2, 64, 32, 32}, w, {.padding = {1, 1}, .stride = {5, 4}})), "dgrad-classes");
  const DeviceInfo device = DeviceInfo::named("H200");
  const Graph graph = dgrad({64, 256, 56, 56}, {256, 256, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}});
  const Fusion fusion = fusion_of(graph);
  for (const EngineCandidate& candidate : wgmma_engine().candidates(fusion, device)) {
    SCOPED_TRACE(to_string(candidate.config));
    const Lowered lowered = wgmma_engine().lower(fusion, candidate.config, device);
    ASSERT_EQ(lowered.steps.size(), 1u);
    const Launch& launch = std::get<Launch>(lowered.steps[0]);
    EXPECT_EQ(config_value(*launch.source, "classes"), 4);
    EXPECT_EQ(launch.arguments.maps().size(), 2u);
    // All pixels of dx are rows of one class; nine taps of 2x2 meet dy.
    const double flops = 2.0 * 64 * 28 * 28 * 256 * 256 * 9;
    EXPECT_GE(candidate.work.tensor_flops, flops);
    const bool whole_tiles = 256 % candidate.config.knob("tile_n", 1) == 0;
    EXPECT_LE(candidate.work.tensor_flops, (whole_tiles ? 1.1 : 1.5) * flops);
  }
  EXPECT_EQ(build(graph, device, {.compile = false}).fusions.at(0).config.engine, "wgmma");
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForClasses) {
  expect_every_setting_lowers(dgrad({2, 72, 13, 11}, {40, 72, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}));
  expect_every_setting_lowers(dgrad({2, 64, 16, 16}, {64, 64, 1, 1}, {.stride = {4, 4}}));
  expect_every_setting_lowers(
      dgrad({2, 64, 6, 8, 8}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 4}}));
  // One class, and no tap that meets anything.
  expect_every_setting_lowers(dgrad({2, 64, 1, 1}, {64, 64, 1, 1}, {.padding = {1, 1}, .stride = {2, 2}}));
}

TEST(Wgmma, SplitsTheStepsOfAWgrad) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {64, 64, 56, 56}, DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", {64, 64, 56, 56}, DataType::bf16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}}), {.layout = Layout::nhwc});
  const Plan plan = build(g.finish(), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_GT(plan.fusions.at(0).config.knob("split", 1), 16);
  EXPECT_GT(plan.workspace_bytes, 0);
}

// matmul + bias + gelu of 512 x 256 x 320.
Fusion fused() {
  GraphBuilder g("fused");
  const Tensor a = g.input("a", {512, 320}, DataType::bf16);
  const Tensor b = g.input("b", {320, 256}, DataType::bf16);
  const Tensor bias = g.input("bias", {1, 256}, DataType::bf16);
  return fusion_of(g.finish({g.gelu(g.add(g.matmul(a, b), bias))}));
}

// --- Two results ---

// gelu(a b + bias) beside what it is made of, in the type and the strides given.
Graph saved(int64_t m, int64_t n, int64_t k, DataType type, const Strides& strides, const Strides& of_saved) {
  GraphBuilder g("saved");
  const Tensor a = g.input("a", {m, k}, DataType::bf16);
  const Tensor b = g.input("b", {k, n}, DataType::bf16, TensorOptions{.strides = Strides{1, k}});
  const Tensor sum = g.add(g.matmul(a, b), g.input("bias", {1, n}, DataType::bf16));
  const Tensor pre = g.output(sum, {.name = "pre", .type = type, .strides = of_saved});
  g.output(g.gelu(pre), {.name = "y", .type = DataType::bf16, .strides = strides});
  return g.finish();
}
Graph saved(int64_t m, int64_t n, int64_t k, DataType type) {
  return saved(m, n, k, type, Strides{n, 1}, Strides{n, 1});
}

bool has_config(const KernelSource& source, const char* name) {
  return std::ranges::find(source.config, name, &ConfigValue::name) != source.config.end();
}

TEST(Wgmma, TwoResultsLeaveByTheCopyEngine) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Strides& strides : {Strides{2048, 1}, Strides{1, 4096}}) {
    const Fusion fusion = fusion_of(saved(4096, 2048, 512, DataType::bf16, strides, strides));
    bool with_192_sums = false;
    for (const EngineConfig& config : configs(fusion, device)) {
      SCOPED_TRACE(to_string(config));
      const Lowered lowered = wgmma_engine().lower(fusion, config, device);
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      const KernelSource& source = *launch.source;
      ASSERT_EQ(launch.arguments.maps().size(), 4u);
      const TensorMap& first = launch.arguments.maps()[2];
      EXPECT_EQ(first.box, launch.arguments.maps()[3].box);
      EXPECT_EQ(first.stride_bytes, launch.arguments.maps()[3].stride_bytes);
      EXPECT_NE(launch.arguments.patches()[2].index, launch.arguments.patches()[3].index);
      EXPECT_EQ(config_value(source, "second_out"), 1);
      EXPECT_EQ(config_value(source, "clamped"), 1);
      const bool large = config.knob("tile_m", 0) * config.knob("tile_n", 0) > 128 * 256;
      const bool alone = config_value(source, "blocks_per_sm") == 1;
      EXPECT_GE(config_value(source, "stages"), large ? 3 : alone ? 4 : 2);
      EXPECT_LE(launch.shared_bytes, device.shared_per_block);
      EXPECT_TRUE(source.sites.at(0).expr.results.empty());
      for (const Guard& guard : lowered.guards) EXPECT_GE(guard.alignment, guard.operand < 2 ? 16 : 2);
      with_192_sums |= config.knob("tile_n", 0) == 192 && config.knob("tile_m", 0) == 128;
    }
    EXPECT_TRUE(with_192_sums);
  }
}

TEST(Wgmma, ASecondResultThatLiesOtherwiseIsStoredByThreads) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Graph& graph : {saved(4096, 2048, 512, DataType::bf16, Strides{2048, 1}, Strides{1, 4096}),
                             saved(4096, 2048, 512, DataType::bf16, Strides{2048, 1}, Strides{2049, 1}),
                             saved(4096, 2048, 512, DataType::f64), saved(4096, 2044, 512, DataType::f32)}) {
    const Fusion fusion = fusion_of(graph);
    for (const EngineConfig& config : configs(fusion, device)) {
      const Lowered lowered = wgmma_engine().lower(fusion, config, device);
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      EXPECT_FALSE(has_config(*launch.source, "second_out")) << to_string(config);
      EXPECT_GE(launch.source->sites.at(0).expr.results.size(), 1u);
    }
  }
}

// Along columns; rows of a box are 64 of 16 bits, no more.
TEST(Wgmma, AnFp32ResultIsCopiedBesideOneOf16Bits) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(saved(4096, 2048, 512, DataType::f32));
  for (const EngineConfig& config : configs(fusion, device)) {
    SCOPED_TRACE(to_string(config));
    const Lowered lowered = wgmma_engine().lower(fusion, config, device);
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    const bool copied = config.knob("swap", 0) == 0 && config_value(*launch.source, "blocks_per_sm") == 1;
    EXPECT_EQ(has_config(*launch.source, "second_out"), copied);
    if (!copied) continue;
    EXPECT_LE(config_value(*launch.source, "box_columns"), 32);
    EXPECT_EQ(launch.arguments.maps().at(2).type, DataType::f32);
    EXPECT_EQ(launch.arguments.maps().at(3).type, DataType::bf16);
  }
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForTwoResults) {
  expect_every_setting_lowers(saved(300, 520, 1000, DataType::bf16));
  expect_every_setting_lowers(saved(300, 520, 1000, DataType::f32));
  expect_every_setting_lowers(saved(304, 520, 1000, DataType::bf16, Strides{1, 304}, Strides{1, 304}));
}

TEST(Wgmma, KernelsOfTwoResultsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const char* name, const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    for (const EngineConfig& config : configs(fusion, device))
      if (config.knob("cluster", 1) == 1 && config.knob("tile_n", 0) >= 96)
        test::add_kernels(name + to_string(config), wgmma_engine().lower(fusion, config, device), kernels);
  };
  add("16 bits ", saved(4096, 2048, 512, DataType::bf16));
  add("fp32 ", saved(4096, 2048, 512, DataType::f32));
  test::expect_all_compiled(kernels);
}

TEST(Wgmma, TextIsTheGoldenText) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fused();
  const EngineConfig config = wgmma_engine().candidates(fusion, device).front().config;
  EXPECT_EQ(test::generated_text(wgmma_engine().lower(fusion, config, device), 0),
            test::golden_text("wgmma_contraction"));
}

TEST(Wgmma, KernelsOfPairsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const Fusion plain = fusion_of(gated_pair(1024, 2048, 512, Strides{1, 512}, Strides{1, 512}));
  test::add_kernels(wgmma_engine(), "plain", plain, device, kernels);
  const Fusion across = fusion_of(gated_pair(1024, 2048, 512));
  test::add_kernels("across", wgmma_engine().lower(across, configs(across, device).front(), device), kernels);
  // Both pre-activations are stored, too; a dear gate.
  GraphBuilder g("saved");
  const Tensor x = g.input("x", {512, 256}, DataType::f16);
  const auto product = [&](const char* name) {
    const Tensor sum = g.add(g.matmul(x, g.input(name, {256, 512}, DataType::f16)),
                             g.input(std::string(name) + "_bias", {1, 512}, DataType::f16));
    return g.output(sum, {.name = std::string(name) + "_saved", .type = DataType::f16});
  };
  const Tensor gate = product("gate"), up = product("up");
  g.output(g.mul(g.gelu(gate), up), {.type = DataType::f16});
  const Fusion saved = fusion_of(g.finish());
  for (const EngineConfig& config : configs(saved, device))
    if (config.knob("cluster", 1) == 1)
      test::add_kernels("saved " + to_string(config), wgmma_engine().lower(saved, config, device), kernels);
  test::expect_all_compiled(kernels);
}

// Of every tile; copies to a cluster are the same whatever the elements, and 16-bit tests compile those.
void expect_clean_kernels(const Graph& graph) {
  const Fusion fusion = fusion_of(graph);
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  for (const EngineConfig& config : configs(fusion, device))
    if (config.knob("cluster", 1) == 1)
      test::add_kernels(to_string(config), wgmma_engine().lower(fusion, config, device), kernels);
  test::expect_all_compiled(kernels);
}

TEST(Wgmma, KernelsOfTf32CompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  expect_clean_kernels(tf32_matmul(2048, 2048, 512));
}

TEST(Wgmma, KernelsOfTf32FromRegistersCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  expect_clean_kernels(tf32_product({.mnk = {2048, 2048, 512}}));
}

// Planes, lines along the other axis, results of 16 bits, those that only threads can store, and a split.
TEST(Wgmma, KernelsOfTf32FromRegistersWithOtherWaysOutCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<Graph> graphs{tf32_planes(ConvPass::fprop), tf32_product({{2048, 2047, 512}, true, true})};
  for (const bool in_columns : {false, true}) {
    graphs.push_back(tf32_product({{2048, 2048, 512}, in_columns, in_columns}, DataType::bf16));
    graphs.push_back(tf32_product({{2048, 2048, 512}, in_columns, in_columns}, DataType::f16));
    graphs.push_back(tf32_product({{2048, 2048, 512}, in_columns, in_columns, true}));
    graphs.push_back(tf32_product({{64, 64, 65536}, in_columns, in_columns}));
  }
  std::vector<test::KernelCase> kernels;
  for (const Graph& graph : graphs) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<EngineConfig> all = configs(fusion, device);
    for (const EngineConfig& config : {all.front(), all.back()})
      test::add_kernels(fmt::format("{} {} {}", to_string(graph.tensors.back().type),
                                    to_string(graph.tensors.back().strides), to_string(config)),
                        wgmma_engine().lower(fusion, config, device), kernels);
  }
  test::expect_all_compiled(kernels);
}

TEST(Wgmma, KernelsOfBytesCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  expect_clean_kernels(matmul(2048, 2048, 512, DataType::i8, Strides{1, 512}));
  expect_clean_kernels(dequantised_matmul());
}

// Of either kind of fp8, which may meet.
Graph short_matmul(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g("short", Precision::allow_short_sums);
  const Tensor a = g.input("a", {m, k}, DataType::f8_e4m3);
  const Tensor b = g.input("b", {k, n}, DataType::f8_e5m2, TensorOptions{.strides = Strides{1, k}});
  const Tensor y = g.mul(g.matmul(a, b), g.scalar("alpha", DataType::f32));
  return g.finish({g.output(y, {.type = DataType::bf16})});
}

TEST(Wgmma, SumsFp8InStepsWhereTheGraphAllowsIt) {
  EXPECT_EQ(rule(short_matmul(256, 256, 128)), "");
  const Plan plan = build(short_matmul(8192, 8192, 8192), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_TRUE(plan.notes.short_sums);
  EXPECT_FALSE(plan.notes.tf32);
  EXPECT_LT(plan.seconds, 1.2e-3);
  expect_every_setting_lowers(short_matmul(300, 520, 1008));
}

TEST(Wgmma, KernelsOfShortSumsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  expect_clean_kernels(short_matmul(2048, 2048, 512));
}

TEST(Wgmma, KernelsOfClassesCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const ConvOptions options{.padding = {1, 1}, .stride = {2, 2}};
  const Fusion plain = fusion_of(dgrad({16, 256, 28, 28}, {256, 256, 3, 3}, options));
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const auto add_first = [&](const char* name, const Fusion& fusion) {
    const EngineConfig config = configs(fusion, device).front();
    test::add_kernels(name, wgmma_engine().lower(fusion, config, device), kernels);
  };
  test::add_kernels(wgmma_engine(), "plain", plain, device, kernels);
  const Fusion deep = fusion_of(dgrad({2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.stride = {2, 2, 2}}));
  add_first("deep", deep);
  // A result that threads store element by element, beside a residual.
  GraphBuilder g("residual");
  const Tensor dx =
      g.conv_dgrad(g.input("dy", {2, 64, 8, 8}, DataType::f16, Layout::nhwc),
                   g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc), {2, 64, 15, 15}, options);
  g.output(g.add(dx, g.input("residual", {2, 64, 15, 15}, DataType::f16)), {.layout = Layout::nchw});
  const Fusion scattered = fusion_of(g.finish());
  add_first("scattered", scattered);
  test::expect_all_compiled(kernels);
}

TEST(Wgmma, KernelsOfResidentWindowsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const ConvOptions options{.padding = {1, 1}};
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const auto add_windows = [&](const Fusion& fusion) {
    for (const EngineConfig& config : configs(fusion, device))
      if (config.knob("window", 0) != 0)
        test::add_kernels(to_string(config), wgmma_engine().lower(fusion, config, device), kernels);
  };
  add_windows(fusion_of(dgrad({256, 64, 56, 56}, {64, 64, 3, 3}, options)));
  GraphBuilder g("bias and relu");
  const Tensor y = g.conv_fprop(g.input("x", {256, 64, 56, 56}, DataType::bf16, Layout::nhwc),
                                g.input("w", {64, 64, 3, 3}, DataType::bf16, Layout::nhwc), options);
  g.output(g.relu(g.add(y, g.input("bias", {1, 64, 1, 1}, DataType::bf16))), {.layout = Layout::nhwc});
  add_windows(fusion_of(g.finish()));
  EXPECT_EQ(kernels.size(), 6u);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
