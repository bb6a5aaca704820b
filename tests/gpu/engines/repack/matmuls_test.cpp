// Owns the GPU tests of matmuls on the wgmma_repacked engine: strides, transposes and alignments that its
// copies cannot walk, and elements of 8 bits, which may lie anyhow.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/engines/repack/cases.h"
#include "tests/support/batched_matmul.h"

namespace fusor {
namespace {

using namespace repacked_cases;

TEST(WgmmaRepackedGpu, MisalignedMatmuls) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{71, 1}, Strides{1, 131}, Strides{142, 2}})
    for (const Strides& b : {Strides{99, 1}, Strides{1, 71}, Strides{2, 142}}) {
      GraphBuilder g("matmul");
      const Tensor left = g.input("a", {131, 71}, DataType::bf16, TensorOptions{.strides = a});
      const Tensor right = g.input("b", {71, 99}, DataType::bf16, TensorOptions{.strides = b});
      g.output(g.matmul(left, right), {.strides = Strides{200, 2}});
      expect_every_config_correct(g.finish(), fmt::format("{} {}", to_string(a), to_string(b)));
    }
}

// Packed weights of heads are one for all images, as they were.
TEST(WgmmaRepackedGpu, MisalignedWeightsOfHeads) {
  FUSOR_NEEDS_HOPPER();
  const test::Lie odd{.shared = {0}, .unit = 2}, odd_along_k{.shared = {0}, .order = {0, 1, 3, 2}, .unit = 2},
      heads_last{.order = {0, 2, 1, 3}};
  for (const test::Lie& weights : {odd, odd_along_k})
    for (const test::Lie& rows : {test::Lie{}, heads_last}) {
      const test::BatchedMatmul c{"heads", {3, 5}, rows, weights, rows};
      expect_every_config_correct(test::batched_matmul(c, {131, 99, 71}, DataType::bf16, DataType::bf16),
                                  fmt::format("{} {}", weights.order.size(), rows.order.size()));
    }
}

TEST(WgmmaRepackedGpu, Tf32MatmulsOfEveryTranspose) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{71, 1}, Strides{1, 132}, Strides{142, 2}})
    for (const Strides& b : {Strides{99, 1}, Strides{1, 71}, Strides{100, 1}}) {
      GraphBuilder g("matmul", Precision::allow_tf32);
      const Tensor left = g.input("a", {131, 71}, DataType::f32, TensorOptions{.strides = a});
      const Tensor right = g.input("b", {71, 99}, DataType::f32, TensorOptions{.strides = b});
      g.output(g.matmul(left, right));
      expect_every_config_correct(g.finish(), fmt::format("tf32 {} {}", to_string(a), to_string(b)));
    }
}

TEST(WgmmaRepackedGpu, Tf32MatmulsWhoseOperandsBothLieAcrossK) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mn : {Dims{300, 260}, Dims{132, 516}}) {
    GraphBuilder g("matmul", Precision::allow_tf32);
    const Tensor a = g.input("a", {mn[0], 200}, DataType::f32, TensorOptions{.strides = Strides{1, mn[0]}});
    g.output(g.matmul(a, g.input("b", {200, mn[1]}, DataType::f32)));
    expect_every_config_correct(g.finish(), "tf32 " + to_string(mn));
  }
}

TEST(WgmmaRepackedGpu, BytesInInt32) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{71, 1}, Strides{1, 144}, Strides{142, 2}})
    for (const Strides& b : {Strides{99, 1}, Strides{1, 71}}) {
      GraphBuilder g("matmul");
      const Tensor left = g.input("a", {131, 71}, DataType::i8, TensorOptions{.strides = a});
      const Tensor right = g.input("b", {71, 99}, DataType::u8, TensorOptions{.strides = b});
      g.output(g.matmul(left, right), {.type = DataType::i32});
      expect_every_config_correct(g.finish(), fmt::format("int8 {} {}", to_string(a), to_string(b)));
    }
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {2, 32, 12, 12}, DataType::i8);
  const Tensor w = g.input("w", {48, 32, 3, 3}, DataType::i8);
  g.output(g.conv_fprop(x, w, {.padding = {1, 1}}), {.type = DataType::i32});
  expect_every_config_correct(g.finish(), "int8 fprop NCHW");
  GraphBuilder h("dgrad");
  const Tensor dx = h.conv_dgrad(h.input("dy", {2, 48, 12, 12}, DataType::i8),
                                 h.input("w", w.dims, DataType::i8), x.dims, {.padding = {1, 1}});
  h.output(dx, {.type = DataType::i32});
  expect_every_config_correct(h.finish(), "int8 dgrad NCHW");
}

TEST(WgmmaRepackedGpu, BytesSummedInFp32) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType first : {DataType::f8_e4m3, DataType::f8_e5m2, DataType::i8})
    for (const DataType second : {DataType::f8_e4m3, DataType::f16, DataType::bf16})
      for (const Dims& mnk : {Dims{300, 260, 1000}, Dims{131, 99, 71}}) {
        GraphBuilder g("matmul");
        const Tensor a = g.input("a", {mnk[0], mnk[2]}, first);
        const Tensor b = g.input("b", {mnk[1], mnk[2]}, second);
        const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
        g.output(g.mul(c, g.scalar("scale", DataType::f32)), {.type = DataType::bf16});
        expect_every_config_correct(
            g.finish(), fmt::format("{} x {} {}", to_string(first), to_string(second), to_string(mnk)));
      }
}

TEST(WgmmaRepackedGpu, BatchesAndLowAlignment) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("batched");
  const Tensor a = g.input("a", {3, 2, 130, 97}, DataType::bf16);
  const Tensor b = g.input("b", {97, 152}, DataType::bf16, TensorOptions{.alignment = 2});
  const Tensor bias = g.input("bias", {152}, DataType::f32);
  g.output(g.gelu(g.add(g.matmul(a, b), bias)));
  expect_every_config_correct(g.finish(), "batched, misaligned");
}

}  // namespace
}  // namespace fusor
