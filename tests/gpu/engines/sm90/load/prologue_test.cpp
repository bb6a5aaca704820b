// Owns the GPU tests of operands that pass ops on their way to the wgmma engine's tensor cores: dequantised
// weights, scaled and activated inputs, conversions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/sm90/wgmma/cases.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// Lines of the matrix run along its rows, or (transposed) along its columns, in multiples of 16 elements.
Tensor matrix(GraphBuilder& g, const std::string& name, int64_t rows, int64_t columns, DataType type,
              bool transposed = false) {
  const auto padded = [](int64_t elements) { return (elements + 15) / 16 * 16; };
  TensorOptions options;
  options.strides = transposed ? Strides{1, padded(rows)} : Strides{padded(columns), 1};
  return g.input(name, {rows, columns}, type, options);
}

// Scaled to 16 bits, with a scale for each row or column.
Tensor dequantised(GraphBuilder& g, const Tensor& weights, const Dims& scales, DataType type) {
  const Tensor scale = g.input("scale_of_" + weights.name, scales, DataType::f32);
  return g.mul(weights, scale, {.type = type, .compute = DataType::f32});
}

TEST(WgmmaProloguesGpu, WeightsOfEveryType) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType stored :
       {DataType::i8, DataType::u8, DataType::f8_e4m3, DataType::f8_e5m2, DataType::f16, DataType::f32})
    for (const DataType type : {DataType::bf16, DataType::f16}) {
      GraphBuilder g("weights");
      const Tensor a = g.input("a", {131, 264}, type);
      const Tensor b = dequantised(g, matrix(g, "b", 264, 328, stored, true), {1, 328}, type);
      g.output(g.matmul(a, b), {.type = type});
      expect_every_config_correct(g.finish(), fmt::format("{} {}", to_string(stored), to_string(type)));
    }
}

TEST(WgmmaProloguesGpu, LinesAlongKAndAcrossIt) {
  FUSOR_NEEDS_HOPPER();
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const bool scales_of_k : {false, true}) {
        GraphBuilder g("lines");
        const Tensor left = matrix(g, "a", 200, 328, DataType::bf16, a);
        const Dims scales = scales_of_k ? Dims{328, 1} : Dims{1, 136};
        const Tensor right =
            dequantised(g, matrix(g, "b", 328, 136, DataType::i8, b), scales, DataType::bf16);
        g.output(g.matmul(left, right), {.type = DataType::f32});
        expect_every_config_correct(g.finish(), fmt::format("{} {} {}", a, b, scales_of_k));
      }
}

// Steps of k that hardly exist, rows and columns of every number.
TEST(WgmmaProloguesGpu, ExtentsOfEverySize) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{1, 1, 8}, Dims{3, 5, 16}, Dims{17, 33, 72}, Dims{65, 127, 64},
                          Dims{16, 1000, 520}, Dims{129, 257, 136}, Dims{255, 9, 192}, Dims{300, 300, 24}}) {
    GraphBuilder g("sizes");
    const Tensor a = matrix(g, "a", mnk[0], mnk[2], DataType::bf16);
    const Tensor b =
        dequantised(g, matrix(g, "b", mnk[2], mnk[1], DataType::i8, true), {1, mnk[1]}, DataType::bf16);
    g.output(g.matmul(a, b), {.type = DataType::f32});
    expect_every_config_correct(g.finish(), to_string(mnk));
  }
}

// A shift moves zeros: what lies beyond the ends is zero behind the ops.
TEST(WgmmaProloguesGpu, OfEitherOperandAndOfBoth) {
  FUSOR_NEEDS_HOPPER();
  for (const bool first : {false, true})
    for (const bool second : {false, true})
      for (const bool across : {false, true}) {
        if (!first && !second) continue;
        GraphBuilder g("shifted");
        Tensor a = matrix(g, "a", 264, 200, DataType::bf16, across);
        Tensor b = matrix(g, "b", 200, 136, DataType::bf16, !across);
        const PointwiseOptions to_bf16{.type = DataType::bf16, .compute = DataType::f32};
        if (first) {
          const Tensor scale = g.input("scale", {1, 200}, DataType::bf16);
          const Tensor shift = g.input("shift", {1, 200}, DataType::bf16);
          a = g.relu(g.add(g.mul(a, scale), shift), to_bf16);
        }
        if (second) b = g.add(g.mul(b, g.input("factor", {1, 136}, DataType::f32)), g.constant(1), to_bf16);
        g.output(g.matmul(a, b), {.type = DataType::f32});
        expect_every_config_correct(g.finish(), fmt::format("{} {} {}", first, second, across));
      }
}

// Ops without arguments.
TEST(WgmmaProloguesGpu, ConversionsAlone) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType stored : {DataType::f32, DataType::i8, DataType::f8_e4m3}) {
    GraphBuilder g("converted");
    const PointwiseOptions to_bf16{.type = DataType::bf16};
    const Tensor a = g.identity(matrix(g, "a", 131, 264, stored), to_bf16);
    const Tensor b = g.identity(matrix(g, "b", 264, 72, stored, true), to_bf16);
    g.output(g.matmul(a, b), {.type = DataType::f32});
    expect_every_config_correct(g.finish(), std::string(to_string(stored)));
  }
}

TEST(WgmmaProloguesGpu, BatchesAndBroadcasts) {
  FUSOR_NEEDS_HOPPER();
  for (const bool a_batched : {false, true})
    for (const bool b_batched : {false, true}) {
      GraphBuilder g("batched");
      const Tensor a = g.input("a", {a_batched ? 3 : 1, 131, 136}, DataType::bf16);
      const Tensor b = g.input("b", {b_batched ? 3 : 1, 136, 80}, DataType::i8);
      const Tensor scale = g.input("scale", {3, 1, 80}, DataType::f32);
      const Tensor weights = g.mul(b, scale, {.type = DataType::bf16, .compute = DataType::f32});
      g.output(g.matmul(a, weights), {.type = DataType::bf16});
      expect_every_config_correct(g.finish(), fmt::format("{} {}", a_batched, b_batched));
    }
}

// Blocks take several tiles each; what is on its way belongs to the next one.
TEST(WgmmaProloguesGpu, ManyTilesOfABlock) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t k : {72, 520}) {
    GraphBuilder g("tiles");
    const Tensor a = g.input("a", {2305, k}, DataType::bf16);
    const Tensor b = dequantised(g, matrix(g, "b", k, 2568, DataType::i8, true), {1, 2568}, DataType::bf16);
    const Tensor bias = g.input("bias", {1, 2568}, DataType::bf16);
    g.output(g.relu(g.add(g.matmul(a, b), bias)), {.type = DataType::bf16});
    expect_every_config_correct(g.finish(), fmt::format("k = {}", k));
  }
}

TEST(WgmmaProloguesGpu, PartsOfK) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("parts");
  const Tensor a = g.input("a", {16, 8200}, DataType::f16);
  const Tensor b = dequantised(g, matrix(g, "b", 8200, 136, DataType::u8, true), {1, 136}, DataType::f16);
  g.output(g.gelu(g.matmul(a, b)), {.type = DataType::f16});
  expect_every_config_correct(g.finish(), "k of 8200");
}

TEST(WgmmaProloguesGpu, EpiloguesWithOperandsResultsAndReductions) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("everything");
  const Tensor a = g.input("a", {520, 264}, DataType::bf16);
  const Tensor b = dequantised(g, matrix(g, "b", 264, 392, DataType::i8, true), {1, 392}, DataType::bf16);
  const Tensor pre = g.output(g.matmul(a, b), {.name = "pre", .type = DataType::bf16});
  g.output(g.add(g.gelu(pre), g.input("residual", {520, 392}, DataType::bf16)),
           {.name = "y", .type = DataType::bf16});
  expect_every_config_correct(g.finish(), "two results and a residual");
  GraphBuilder sums("sums");
  const Tensor weights =
      dequantised(sums, matrix(sums, "b", 264, 392, DataType::i8, true), {1, 392}, DataType::bf16);
  const Tensor y = sums.output(sums.matmul(sums.input("a", {520, 264}, DataType::bf16), weights),
                               {.name = "y", .type = DataType::bf16});
  sums.output(sums.reduce(y, ReductionMode::add, {0}), {.name = "sums", .type = DataType::f32});
  expect_every_config_correct(sums.finish(), "sums of columns");
}

TEST(WgmmaProloguesGpu, PointwiseConvolutionsOfScaledAndActivatedInputs) {
  FUSOR_NEEDS_HOPPER();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("fprop");
    const Tensor x = g.input("x", {3, 72, 8, 8}, DataType::f16, layout);
    const Tensor scale = g.input("scale", {1, 72, 1, 1}, DataType::f32);
    const Tensor shift = g.input("shift", {1, 72, 1, 1}, DataType::f32);
    const Tensor active = g.relu(g.add(g.mul(x, scale), shift), {.type = DataType::f16});
    const Tensor y = g.conv_fprop(active, g.input("w", {48, 72, 1, 1}, DataType::f16));
    g.output(y, {.type = DataType::f16, .layout = layout});
    expect_every_config_correct(g.finish(), layout == Layout::nhwc ? "NHWC" : "NCHW");
  }
}

TEST(WgmmaProloguesGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("again");
  const Tensor a = g.input("a", {130, 776}, DataType::bf16);
  const Tensor b = dequantised(g, matrix(g, "b", 776, 520, DataType::i8, true), {1, 520}, DataType::bf16);
  g.output(g.matmul(a, b), {.name = "y", .type = DataType::f32});
  expect_same_bits_of_every_config(g.finish(), kWgmmaOnly);
}

}  // namespace
}  // namespace fusor
