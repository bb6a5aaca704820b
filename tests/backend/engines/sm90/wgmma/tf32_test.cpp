// Owns the tests of the wgmma engine for fp32 as TF32: along k, and across it from registers.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// b's columns lie along k.
Graph tf32_matmul(int64_t m, int64_t n, int64_t k) {
  return matmul(m, n, k, DataType::f32, Strides{1, k}, Precision::allow_tf32);
}

TEST(Wgmma, TakesFp32AsTf32AlongKWhereTheGraphAllowsIt) {
  EXPECT_EQ(rule(tf32_matmul(256, 256, 64)), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f32, Strides{1, 64})), "16-bit-operands");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::f32, {}, Precision::allow_tf32)), "");
  EXPECT_EQ(rule(tf32_matmul(256, 250, 62)), "") << "by threads";
  EXPECT_EQ(rule(matmul(256, 250, 62, DataType::f32, {}, Precision::allow_tf32)), "adjacent-k");
  EXPECT_TRUE(
      test::notes(wgmma_engine(), fusion_of(tf32_matmul(256, 256, 64)), DeviceInfo::named("H200")).tf32);
  EXPECT_FALSE(
      test::notes(wgmma_engine(), fusion_of(matmul(256, 256, 64, DataType::f16)), DeviceInfo::named("H200"))
          .tf32);
  const Plan plan = build(tf32_matmul(4096, 4096, 4096), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_TRUE(plan.notes.tf32);
}

TEST(Wgmma, Tf32IsCopiedInLinesOf32Elements) {
  const Fusion fusion = fusion_of(tf32_matmul(520, 392, 1000));
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
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
    const std::vector<Knob> knobs = test::knobs(wgmma_engine(), fusion, device);
    EXPECT_THAT(std::ranges::find(knobs, "swap", &Knob::name)->values, testing::ElementsAre(swap));
    for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
      EXPECT_EQ(candidate.config.knob("swap", -1), swap);
      const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      EXPECT_EQ(config_value(*launch.source, "a_rows_adjacent"), 1);
      EXPECT_EQ(config_value(*launch.source, "b_columns_adjacent"), 0);
      const TensorMap& across = launch.arguments.maps().at(0);
      EXPECT_EQ(across.dims, (Dims{in_columns ? 512 : 384, 256, 1}));
      EXPECT_EQ(across.box, (Dims{32, 32, 1}));
      EXPECT_TRUE(across.rounds_to_tf32);
      if (config_value(*launch.source, "store") != 1) continue;
      EXPECT_EQ(config_value(*launch.source, "y_along_columns"), in_columns ? 1 : 0);
      EXPECT_LE(launch.arguments.maps().at(2).box[0], 32);
    }
  }
}

TEST(Wgmma, OfTwoTf32OperandsAcrossKTheSmallerIsRefused) {
  const auto refused = [](const Dims& mnk) {
    const Support support =
        test::supports(wgmma_engine(), fusion_of(tf32_product({mnk, true})), DeviceInfo::named("H200"));
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

TEST(Wgmma, LowersEverySettingOfItsKnobsForTf32) {
  expect_every_setting_lowers(tf32_matmul(300, 520, 1000));
  expect_every_setting_lowers(tf32_product({.mnk = {300, 520, 1000}}));
  expect_every_setting_lowers(tf32_product({.mnk = {300, 520, 1000}, .a_columns = true, .b_columns = true}));
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
                        test::lower(wgmma_engine(), fusion, config, device), kernels);
  }
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
