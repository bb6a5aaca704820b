// Owns the GPU tests of matmuls of other than 16 bits on the wgmma engine: TF32, bytes in int32, fp8 in short
// sums.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

TEST(WgmmaGpu, Tf32MatmulWithTailsAndBatches) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 32}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{1, 264, 36}, Dims{700, 776, 328}, Dims{131, 99, 4100}}) {
    GraphBuilder g("matmul", Precision::allow_tf32);
    const Tensor a = g.input("a", {2, mnk[0], mnk[2]}, DataType::f32);
    const Tensor b = g.input("b", {mnk[1], mnk[2]}, DataType::f32);
    const Tensor bias = g.input("bias", {1, mnk[1]}, DataType::f32);
    const Tensor c = g.add(g.matmul(a, g.transpose(b, {1, 0})), bias);
    expect_every_config_correct(g.finish({c}), "tf32 " + to_string(mnk));
  }
}

TEST(WgmmaGpu, Tf32IntoEveryLayoutAndType) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& strides : {Strides{200, 1}, Strides{1, 264}, Strides{401, 2}})
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("matmul", Precision::allow_tf32);
      const Tensor a = g.input("a", {260, 328}, DataType::f32);
      const Tensor b = g.input("b", {200, 328}, DataType::f32);
      g.output(g.matmul(a, g.transpose(b, {1, 0})), {.type = type, .strides = strides});
      expect_every_config_correct(g.finish(), "tf32 into " + to_string(strides));
    }
}

// Either operand may lie across k: it is on the rows, from registers.
TEST(WgmmaGpu, Tf32AcrossKWithTailsAndBatches) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 32}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{5, 264, 36}, Dims{265, 3, 40}, Dims{700, 776, 328}, Dims{131, 99, 4100}})
    for (const bool second : {false, true}) {
      const int64_t m = mnk[0], n = mnk[1], k = mnk[2];
      const int64_t line_m = (m + 3) / 4 * 4, line_n = (n + 3) / 4 * 4;
      GraphBuilder g("matmul", Precision::allow_tf32);
      const Strides a_strides = second ? Strides{m * k, k, 1} : Strides{k * line_m, 1, line_m};
      const Strides b_strides = second ? Strides{line_n, 1} : Strides{1, k};
      const Tensor a = g.input("a", {2, m, k}, DataType::f32, TensorOptions{.strides = a_strides});
      const Tensor b = g.input("b", {k, n}, DataType::f32, TensorOptions{.strides = b_strides});
      const Tensor pre = g.add(g.matmul(a, b), g.input("bias", {1, n}, DataType::f32));
      const Tensor y = g.add(g.relu(pre), g.input("residual", {2, m, n}, DataType::f32));
      g.output(y, {.strides = Strides{m * line_n, line_n, 1}});
      expect_every_config_correct(g.finish(), fmt::format("tf32 {}, {}", second, to_string(mnk)));
    }
}

TEST(WgmmaGpu, Tf32AcrossKIntoEveryLayoutAndType) {
  FUSOR_NEEDS_HOPPER();
  for (const bool second : {false, true})
    for (const Strides& strides : {Strides{200, 1}, Strides{1, 264}, Strides{401, 2}})
      for (const DataType type : {DataType::f32, DataType::bf16}) {
        GraphBuilder g("matmul", Precision::allow_tf32);
        const Strides a_strides = second ? Strides{328, 1} : Strides{1, 264};
        const Strides b_strides = second ? Strides{200, 1} : Strides{1, 328};
        const Tensor a = g.input("a", {260, 328}, DataType::f32, TensorOptions{.strides = a_strides});
        const Tensor b = g.input("b", {328, 200}, DataType::f32, TensorOptions{.strides = b_strides});
        g.output(g.matmul(a, b), {.type = type, .strides = strides});
        expect_every_config_correct(g.finish(), fmt::format("tf32 {} into {}", second, to_string(strides)));
      }
}

TEST(WgmmaGpu, Tf32AcrossKOfAnUnbatchedOperandWithTwoResults) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("planes", Precision::allow_tf32);
  const Tensor a = g.input("a", {200, 72}, DataType::f32);
  const Tensor b = g.input("b", {3, 72, 332}, DataType::f32);
  const Tensor pre = g.output(g.matmul(a, b), {.name = "pre", .type = DataType::f32});
  g.output(g.gelu(pre), {.name = "y", .type = DataType::f16});
  expect_every_config_correct(g.finish(), "one filter of three planes");
}

void expect_bytes_in_int32(DataType first) {
  for (const DataType second : {DataType::i8, DataType::u8})
    for (const Dims& mnk : {Dims{128, 128, 128}, Dims{257, 136, 208}, Dims{16, 520, 1040},
                            Dims{520, 16, 1040}, Dims{1, 264, 48}, Dims{131, 99, 4112}})
      for (const DataType result : {DataType::i32, DataType::bf16}) {
        GraphBuilder g("matmul");
        const Tensor a = g.input("a", {2, mnk[0], mnk[2]}, first);
        const Tensor b = g.input("b", {mnk[1], mnk[2]}, second);
        const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
        const Tensor scale = g.input("scale", {1, mnk[1]}, DataType::f32);
        g.output(result == DataType::i32 ? c : g.mul(c, scale), {.type = result});
        expect_every_config_correct(g.finish(),
                                    fmt::format("{} x {} into {} {}", to_string(first), to_string(second),
                                                to_string(result), to_string(mnk)));
      }
}

TEST(WgmmaGpu, BytesInInt32) {
  FUSOR_NEEDS_HOPPER();
  expect_bytes_in_int32(DataType::i8);
}

TEST(WgmmaGpu, UnsignedBytesInInt32) {
  FUSOR_NEEDS_HOPPER();
  expect_bytes_in_int32(DataType::u8);
}

// fp8 as it is, in a graph that allows short sums.
class WgmmaFp8Gpu : public testing::TestWithParam<std::pair<DataType, DataType>> {};

TEST_P(WgmmaFp8Gpu, MatmulInShortSums) {
  FUSOR_NEEDS_HOPPER();
  const auto [first, second] = GetParam();
  for (const Dims& mnk : {Dims{128, 128, 128}, Dims{257, 136, 208}, Dims{16, 520, 1040}, Dims{520, 16, 1040},
                          Dims{1, 264, 48}, Dims{131, 99, 4112}, Dims{1000, 1100, 8192}})
    for (const DataType result : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("matmul", Precision::allow_short_sums);
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, first);
      const Tensor b = g.input("b", {mnk[1], mnk[2]}, second);
      const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
      g.output(g.mul(c, g.scalar("alpha", DataType::f32)), {.type = result});
      expect_every_config_correct(g.finish(),
                                  fmt::format("{} x {} into {} {}", to_string(first), to_string(second),
                                              to_string(result), to_string(mnk)));
    }
}

constexpr DataType kE4m3 = DataType::f8_e4m3, kE5m2 = DataType::f8_e5m2;

INSTANTIATE_TEST_SUITE_P(, WgmmaFp8Gpu,
                         testing::Values(std::pair{kE4m3, kE4m3}, std::pair{kE4m3, kE5m2},
                                         std::pair{kE5m2, kE4m3}, std::pair{kE5m2, kE5m2}));

}  // namespace
}  // namespace fusor
