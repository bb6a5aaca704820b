// Owns the GPU tests of epilogues with two results on the wgmma engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

TEST(WgmmaGpu, SecondResultAndFp32Result) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("two_results");
  const Tensor a = g.input("a", {300, 192}, DataType::bf16);
  const Tensor b = g.input("b", {192, 264}, DataType::bf16);
  const Tensor pre = g.add(g.matmul(a, b), g.input("bias", {1, 264}, DataType::bf16));
  g.output(pre, {.name = "pre", .type = DataType::f32});
  g.output(g.relu(pre), {.type = DataType::bf16});
  expect_every_config_correct(g.finish(), "pre-activation in fp32, result in bf16");
}

// Both leave by TMA where they lie alike, along columns or along rows; odd extents in padded
// lines.
void expect_two_results_with_tails(DataType type) {
  for (const Dims& mnk : {Dims{128, 128, 64}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{1, 264, 72}, Dims{700, 776, 328}, Dims{1300, 1544, 456}})
    for (const bool along_rows : {false, true}) {
      GraphBuilder g("two_results");
      const int64_t line = (mnk[0] + 7) / 8 * 8;
      const Strides strides = along_rows ? Strides{1, line} : Strides{mnk[1], 1};
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::bf16);
      const Tensor b = g.input("b", {mnk[1], mnk[2]}, DataType::bf16);
      const Tensor sum =
          g.add(g.matmul(a, g.transpose(b, {1, 0})), g.input("bias", {1, mnk[1]}, DataType::bf16));
      const Tensor pre = g.output(sum, {.name = "pre", .type = type, .strides = strides});
      g.output(g.gelu(pre), {.name = "y", .type = DataType::bf16, .strides = strides});
      expect_every_config_correct(g.finish(), fmt::format("{} {} along {}", to_string(mnk), to_string(type),
                                                          along_rows ? "rows" : "columns"));
    }
}

TEST(WgmmaGpu, TwoResultsWithTails) {
  FUSOR_NEEDS_HOPPER();
  expect_two_results_with_tails(DataType::bf16);
}

TEST(WgmmaGpu, TwoResultsOfTwoTypesWithTails) {
  FUSOR_NEEDS_HOPPER();
  expect_two_results_with_tails(DataType::f16);
}

TEST(WgmmaGpu, AWideResultBesideANarrowOneWithTails) {
  FUSOR_NEEDS_HOPPER();
  expect_two_results_with_tails(DataType::f32);
}

// With operands of the epilogue, a batch, a reduction beside them, and a third result.
TEST(WgmmaGpu, TwoResultsOfABatch) {
  FUSOR_NEEDS_HOPPER();
  for (const bool reduces : {false, true})
    for (const bool third : {false, true}) {
      GraphBuilder g("batched");
      const Tensor a = g.input("a", {3, 2, 130, 96}, DataType::f16);
      const Tensor b = g.input("b", {96, 152}, DataType::f16);
      const Tensor residual = g.input("residual", {3, 2, 130, 152}, DataType::f16);
      const Tensor pre = g.output(g.add(g.matmul(a, b), residual), {.name = "pre", .type = DataType::f16});
      const Tensor y = g.output(g.gelu_tanh(pre), {.name = "y", .type = DataType::f16});
      if (third) g.output(g.cmp_gt(pre, y), {.name = "mask"});
      if (reduces)
        g.output(g.reduce(y, ReductionMode::add, {0, 1, 2}), {.name = "sums", .type = DataType::f32});
      expect_every_config_correct(g.finish(), reduces ? "reduced, too" : "pre-activation and result");
    }
}

TEST(WgmmaGpu, TwoResultsOfConvolutions) {
  FUSOR_NEEDS_HOPPER();
  for (const auto& [x, w] : {std::pair{Dims{2, 64, 14, 14}, Dims{72, 64, 3, 3}},
                             {Dims{2, 128, 10, 11}, Dims{256, 64, 3, 3}},
                             {Dims{3, 72, 13, 11}, Dims{40, 72, 1, 1}}}) {
    GraphBuilder g("two_results");
    const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16, Layout::nhwc),
                                  g.input("w", w, DataType::f16, Layout::nhwc), {.padding = {1, 1}});
    const Tensor pre = g.output(g.add(y, g.input("bias", {1, w[0], 1, 1}, DataType::f16)),
                                {.name = "pre", .type = DataType::f16, .layout = Layout::nhwc});
    g.output(g.swish(pre), {.name = "y", .type = DataType::f16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), to_string(x));
  }
}

}  // namespace
}  // namespace fusor
