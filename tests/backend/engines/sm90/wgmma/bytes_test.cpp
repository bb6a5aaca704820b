// Owns the tests of the wgmma engine for bytes: integers in int32, and fp8 in short sums.
#include <gtest/gtest.h>

#include "backend/build.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

TEST(Wgmma, TakesBytesAlongKInInt32) {
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::i8, Strides{1, 64})), "");
  EXPECT_EQ(rule(matmul(256, 256, 64, DataType::u8)), "adjacent-k");
  EXPECT_EQ(rule(matmul(256, 256, 72, DataType::i8, Strides{1, 72})), "") << "by threads";
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
  for (const EngineCandidate& candidate :
       test::candidates(wgmma_engine(), fusion, DeviceInfo::named("H200"))) {
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, DeviceInfo::named("H200"));
    const Launch& launch = std::get<Launch>(lowered.steps.at(0));
    const bool swapped = candidate.config.knob("swap", 0) != 0;
    const auto element = [&](const char* name) {
      return static_cast<DataType>(config_value(*launch.source, name));
    };
    EXPECT_EQ(element("ElementA"), swapped ? DataType::u8 : DataType::i8);
    EXPECT_EQ(element("ElementB"), swapped ? DataType::i8 : DataType::u8);
    EXPECT_EQ(launch.arguments.maps().at(0).box[0], 128);
  }
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForBytes) { expect_every_setting_lowers(dequantised_matmul()); }

TEST(Wgmma, KernelsOfBytesCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  expect_clean_kernels(matmul(2048, 2048, 512, DataType::i8, Strides{1, 512}));
  expect_clean_kernels(dequantised_matmul());
}

// A matmul of both kinds of fp8, which may meet.
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

}  // namespace
}  // namespace fusor
