// Owns the tests of the wgmma engine for gated pairs.
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

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
  const Support support = test::supports(
      wgmma_engine(), fusion_of(gated_pair(8, 264, 64, {}, Strides{1, 64})), DeviceInfo::named("H200"));
  EXPECT_EQ(support.refusal->node, "up");
  EXPECT_EQ(support.refusal->tensor, "wu");
  EXPECT_EQ(support.refusal->op, 1);
}

int64_t sums_of_thread(const EngineConfig& config) {
  return config.knob("tile_m", 0) * config.knob("tile_n", 0) / 128 /
         (config.knob("ping_pong", 0) != 0 ? 1 : 2);
}

TEST(Wgmma, PairsTakeTurnsWithManySumsButNotBesideAResidual) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const auto most_sums = [&](const Graph& graph) {
    int64_t most = 0;
    for (const EngineConfig& config : configs(fusion_of(graph), device)) {
      EXPECT_TRUE(sums_of_thread(config) <= 128 || config.knob("ping_pong", 0) != 0) << to_string(config);
      most = std::max(most, sums_of_thread(config));
    }
    return most;
  };
  EXPECT_EQ(most_sums(gated_pair(4096, 4096, 1024, Strides{1, 1024}, Strides{1, 1024})), 192);
  GraphBuilder g("pair");
  const Tensor x = g.input("x", {4096, 1024}, DataType::bf16);
  const auto product = [&](const char* weights) {
    return g.matmul(x, g.input(weights, {1024, 4096}, DataType::bf16, {.strides = Strides{1, 1024}}));
  };
  const Tensor gate = product("wg"), up = product("wu");
  g.output(g.add(g.mul(g.swish(gate), up), g.input("residual", {4096, 4096}, DataType::bf16)),
           {.type = DataType::bf16});
  EXPECT_EQ(most_sums(g.finish()), 128);
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
    const std::vector<Knob> knobs = test::knobs(wgmma_engine(), fusion, device);
    const double flops = 2.0 * 1024 * 2048 * 512 * 2;
    for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
      SCOPED_TRACE(to_string(candidate.config));
      for (const auto& [name, value] : candidate.config.knobs)
        EXPECT_THAT(std::ranges::find(knobs, name, &Knob::name)->values, testing::Contains(value)) << name;
      const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
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

TEST(Wgmma, KernelsOfPairsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const Fusion plain = fusion_of(gated_pair(1024, 2048, 512, Strides{1, 512}, Strides{1, 512}));
  test::add_kernels(wgmma_engine(), "plain", plain, device, kernels);
  const Fusion across = fusion_of(gated_pair(1024, 2048, 512));
  test::add_kernels("across", test::lower(wgmma_engine(), across, configs(across, device).front(), device),
                    kernels);
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
      test::add_kernels("saved " + to_string(config), test::lower(wgmma_engine(), saved, config, device),
                        kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
