// Owns the checks of the mma_weights engine's rules, candidates and kernels.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "backend/engines/tiled/weights/stored_weights.h"
#include "backend/planner/planner.h"
#include "codegen/nvrtc.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"

namespace fusor::weights_test {
namespace {

// The fusion of all ops but views that are folded.
Fusion fusion_of(const Graph& graph) {
  const FoldedGraph folded = fold_views(graph);
  std::vector<int> ops;
  for (int op = 0; op < std::ssize(graph.ops); ++op)
    if (!folded.folded[static_cast<size_t>(op)]) ops.push_back(op);
  return make_fusion(graph, folded, ops);
}

struct Case {
  Dims mnk = {16, 512, 1024};
  DataType weights = DataType::i8, type = DataType::bf16;
  bool along_k = true;
  int64_t block = 0;
  std::optional<DataType> scales = DataType::bf16, zeros = std::nullopt;
};

/// x [m, k] times (w - zeros) * scales [k, n], whose blocks of steps along k share both.
Fusion product(const Case& c) {
  GraphBuilder g("product");
  const int64_t n = c.mnk[1], k = c.mnk[2];
  const bool blocked = c.block > 0;
  const Dims dims = blocked ? Dims{k / c.block, c.block, n} : Dims{k, n};
  const Dims few = blocked ? Dims{k / c.block, 1, n} : Dims{1, n};
  const Strides along_k = blocked ? Strides{c.block, 1, k} : Strides{1, k};
  TensorOptions options;
  if (c.along_k) options.strides = along_k;
  Tensor value = g.input("w", dims, c.weights, options);
  const PointwiseOptions in_floats{.type = DataType::f32, .compute = DataType::f32};
  const PointwiseOptions rounded{.type = c.type, .compute = DataType::f32};
  if (c.zeros) value = g.sub(value, g.input("zeros", few, *c.zeros), in_floats);
  value = c.scales ? g.mul(value, g.input("scales", few, *c.scales), rounded) : g.identity(value, rounded);
  if (blocked) value = g.reshape(value, {k, n});
  const Tensor y = g.matmul(g.input("x", {c.mnk[0], k}, c.type), value);
  return fusion_of(g.finish({g.output(g.relu(y), {.type = c.type})}));
}

std::string rule(const Case& c, const DeviceInfo& device = test::h200()) {
  const Support support = test::supports(mma_weights_engine(), product(c), device);
  return support ? "" : support.refusal->rule;
}

std::optional<PairedOps> paired(const Case& c) {
  const Fusion fusion = product(c);
  return paired_ops(std::get<StoredWeights>(stored_weights_of(fusion, {})), 90);
}

TEST(Weights, TakesStoredWeightsOfEightAndFourBits) {
  for (const DataType type :
       {DataType::i8, DataType::u8, DataType::f8_e4m3, DataType::f8_e5m2, DataType::i4, DataType::f4_e2m1})
    for (const bool along_k : {false, true})
      for (const int64_t block : {0, 32, 128})
        EXPECT_EQ(rule({.weights = type, .along_k = along_k, .block = block}), "") << to_string(type);
  EXPECT_EQ(rule({.mnk = {1, 8, 32}}), "");
}

TEST(Weights, RefusesByRule) {
  EXPECT_EQ(rule({.mnk = {1000, 512, 1024}}), "few-rows");
  EXPECT_EQ(rule({.mnk = {16, 512, 1020}}), "rows-in-eights");
  EXPECT_EQ(rule({.mnk = {16, 500, 1024}, .weights = DataType::i4, .along_k = false}), "vectors-of-weights");
  EXPECT_EQ(rule({.weights = DataType::f16}), "stored-weights");
  EXPECT_EQ(rule({.along_k = false, .block = 4}), "blocks-of-eights");
  EXPECT_EQ(rule({}, DeviceInfo::named("T4")), "sm-80");
}

TEST(Weights, BlocksOfScalesAreAxesOfTheOperandsSite) {
  const Fusion fusion = product({.block = 128});
  EXPECT_EQ(fusion.anchors[0].operands[1].whole, (Dims{1024, 512}));
  EXPECT_EQ(operand_site(fusion, 0, 1).domain, (Dims{8, 128, 512}));
  EXPECT_EQ(operand_dims(fusion, fusion.anchors[0].operands[1]), (Dims{1024, 512}));
}

TEST(Weights, OtherEnginesRefuseBlocksAndCutBehindTheirOp) {
  const Fusion fusion = product({.block = 128});
  for (const Engine* engine : engines()) {
    if (engine->takes_blocks()) continue;
    const auto refusal = test::supports(*engine, fusion, test::h200()).refusal;
    ASSERT_TRUE(refusal) << engine->name();
  }
}

// Pairs of 16 bits give what fp32 does where differences are exact and products round once.
TEST(Weights, PairsOnlyWhereTheyAreExact) {
  EXPECT_TRUE(paired({}));
  EXPECT_TRUE(paired({.scales = std::nullopt}));
  EXPECT_TRUE(paired(
      {.weights = DataType::i4, .type = DataType::f16, .scales = DataType::f16, .zeros = DataType::u8}));
  EXPECT_TRUE(paired({.weights = DataType::i4, .zeros = DataType::i4}));
  EXPECT_FALSE(paired({.weights = DataType::i4, .zeros = DataType::u8}));  // 263 has nine bits
  EXPECT_FALSE(paired({.scales = DataType::f32}));
  EXPECT_FALSE(paired({.scales = DataType::f16}));  // beside bf16
  EXPECT_FALSE(paired({.weights = DataType::f8_e4m3}));
  EXPECT_TRUE(paired({.weights = DataType::f8_e4m3, .type = DataType::f16, .scales = DataType::f16}));
  EXPECT_FALSE(paired({.weights = DataType::u8}));
}

TEST(Weights, CandidatesStandInTheKnobsAndFitEveryGeneration) {
  for (const char* name : {"A100", "RTX 4090", "H200"}) {
    const DeviceInfo device = DeviceInfo::named(name);
    for (const Case& c : {Case{}, Case{.mnk = {64, 512, 1024}, .along_k = false},
                          Case{.mnk = {100, 4096, 4096}, .weights = DataType::i4, .block = 64}}) {
      const Fusion fusion = product(c);
      const std::vector<Knob> knobs = test::knobs(mma_weights_engine(), fusion, device);
      for (const EngineCandidate& candidate : test::candidates(mma_weights_engine(), fusion, device)) {
        for (const Knob& knob : knobs)
          EXPECT_THAT(knob.values, testing::Contains(candidate.config.knob(knob.name, -1))) << knob.name;
        const Lowered lowered = test::lower(mma_weights_engine(), fusion, candidate.config, device);
        EXPECT_LE(std::get<Launch>(lowered.steps[0]).shared_bytes, device.shared_per_block) << name;
      }
    }
  }
}

TEST(Weights, ReadsEachOperandOnce) {
  for (const EngineCandidate& candidate :
       test::candidates(mma_weights_engine(), product({.weights = DataType::i4, .block = 128}), test::h200()))
    EXPECT_EQ(candidate.work.dram_bytes, 512 * 1024 * 0.5 + 2.0 * (16 * 1024 + 8 * 512 + 16 * 512));
}

class WeightsKernels : public testing::TestWithParam<const char*> {};

TEST_P(WeightsKernels, CompileWithoutSpills) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named(GetParam());
  const std::vector<int> targets = nvrtc::targets();
  if (std::ranges::find(targets, device.compute_capability) == targets.end())
    GTEST_SKIP() << "this NVRTC does not compile for " << device.target();
  std::vector<test::KernelCase> cases;
  const auto add = [&](const std::string& name, const Case& c) {
    const Fusion fusion = product(c);
    const auto candidates = test::candidates(mma_weights_engine(), fusion, device);
    for (size_t i = 0; i < candidates.size(); i += 5)
      test::add_kernels(name + " " + to_string(candidates[i].config),
                        test::lower(mma_weights_engine(), fusion, candidates[i].config, device), cases);
  };
  add("int8", {.mnk = {64, 4096, 4096}});
  add("int8 across, one row", {.mnk = {1, 4096, 4096}, .along_k = false});
  add("int4, blocks, zero points", {.mnk = {16, 4096, 4096},
                                    .weights = DataType::i4,
                                    .type = DataType::f16,
                                    .along_k = false,
                                    .block = 128,
                                    .scales = DataType::f16,
                                    .zeros = DataType::u8});
  add("fp4, tails",
      {.mnk = {30, 200, 1040}, .weights = DataType::f4_e2m1, .block = 16, .scales = DataType::f8_e4m3});
  add("fp8 by way of fp32", {.weights = DataType::f8_e4m3, .block = 32, .scales = DataType::f8_e8m0});
  for (const test::KernelCase& one : cases) test::expect_compiled(one);
}

INSTANTIATE_TEST_SUITE_P(Devices, WeightsKernels, testing::Values("A100", "H200"), [](const auto& instance) {
  std::string name = instance.param;
  std::erase(name, ' ');
  return name;
});

}  // namespace
}  // namespace fusor::weights_test
