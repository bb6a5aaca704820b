// Owns the tests of complex numbers: products and sums on the CPU device against std::complex.
#include <complex>

#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

using Complex = std::complex<float>;

class ComplexNumbers : public Client {
 protected:
  static std::vector<Complex> complex_numbers(size_t count, uint32_t seed) {
    const std::vector<float> parts = numbers(2 * count, seed);
    std::vector<Complex> list(count);
    for (size_t i = 0; i < count; ++i) list[i] = {parts[2 * i], parts[2 * i + 1]};
    return list;
  }
  static Part complex_tensor(int64_t uid, const Dims& dims, const Dims& strides = {},
                             bool is_virtual = false) {
    return tensor(uid, dims, {.strides = strides, .type = CUDNN_DATA_COMPLEX_FP32, .is_virtual = is_virtual});
  }
  static void expect_near(const std::vector<Complex>& made, const std::vector<Complex>& want) {
    ASSERT_EQ(made.size(), want.size());
    for (size_t i = 0; i < made.size(); ++i)
      EXPECT_LT(std::abs(made[i] - want[i]), 1e-4F) << i << ": " << made[i] << " and not " << want[i];
  }
};

// Rows of the first operand, columns of the second; batches that broadcast.
TEST_F(ComplexNumbers, AreMultipliedAsMatrices) {
  constexpr size_t kBatch = 2, kM = 3, kN = 5, kK = 4;
  for (const bool is_shared : {false, true}) {
    auto a = complex_numbers(kBatch * kM * kK, 1), b = complex_numbers((is_shared ? 1 : kBatch) * kK * kN, 2);
    std::vector<Complex> c(kBatch * kM * kN), want = c;
    for (size_t i = 0; i < kBatch; ++i)
      for (size_t m = 0; m < kM; ++m)
        for (size_t n = 0; n < kN; ++n)
          for (size_t k = 0; k < kK; ++k)
            want[(i * kM + m) * kN + n] +=
                a[(i * kM + m) * kK + k] * b[((is_shared ? 0 : i) * kN + n) * kK + k];
    run({matmul(complex_tensor(1, {kBatch, kM, kK}),
                complex_tensor(2, {is_shared ? 1 : int64_t{kBatch}, kK, kN}, {kK * kN, 1, kK}),
                complex_tensor(3, {kBatch, kM, kN}))},
        {{1, a.data()}, {2, b.data()}, {3, c.data()}});
    expect_near(c, want);
  }
}

// x w * x + b - x, of which what lies between is virtual.
TEST_F(ComplexNumbers, AreAddedAndMultiplied) {
  constexpr size_t kSize = 4;
  const Dims dims{1, kSize, kSize};
  auto x = complex_numbers(kSize * kSize, 1), w = complex_numbers(kSize * kSize, 2),
       b = complex_numbers(kSize, 3);
  std::vector<Complex> y(kSize * kSize), want = y;
  for (size_t i = 0; i < kSize; ++i)
    for (size_t j = 0; j < kSize; ++j) {
      Complex sum = 0;
      for (size_t k = 0; k < kSize; ++k) sum += x[i * kSize + k] * w[k * kSize + j];
      want[i * kSize + j] = sum * x[i * kSize + j] + b[j] - x[i * kSize + j];
    }
  const auto between = [&](int64_t uid) { return complex_tensor(uid, dims, {}, true); };
  run({matmul(complex_tensor(1, dims), complex_tensor(2, dims), between(10)),
       binary(CUDNN_POINTWISE_MUL, between(10), complex_tensor(1, dims), between(11)),
       binary(CUDNN_POINTWISE_ADD, between(11), complex_tensor(3, {1, 1, kSize}), between(12)),
       binary(CUDNN_POINTWISE_SUB, between(12), complex_tensor(1, dims), complex_tensor(4, dims))},
      {{1, x.data()}, {2, w.data()}, {3, b.data()}, {4, y.data()}});
  expect_near(y, want);
}

TEST_F(ComplexNumbers, AreRefusedByOpsWithoutThem) {
  const auto refused = [&](const Part& op) {
    const Part graph = operation_graph(handle, {op});
    return cudnnBackendFinalize(graph.get()) == CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
  };
  const Dims dims{1, 4, 4};
  EXPECT_TRUE(refused(unary(CUDNN_POINTWISE_RELU_FWD, complex_tensor(1, dims), complex_tensor(2, dims))));
  EXPECT_TRUE(refused(matmul(complex_tensor(1, dims), tensor(2, dims), complex_tensor(3, dims))));
  EXPECT_TRUE(
      refused(reduction(CUDNN_REDUCE_TENSOR_ADD, complex_tensor(1, dims), complex_tensor(2, {1, 4, 1}))));
}

// Strides count numbers, and doubled ones must be numbers as well.
TEST_F(ComplexNumbers, WithHugeStridesAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const Part graph = operation_graph(
      handle,
      {unary(CUDNN_POINTWISE_IDENTITY, complex_tensor(1, {2, 4}, {kHuge, 1}), complex_tensor(2, {2, 4}))});
  EXPECT_EQ(cudnnBackendFinalize(graph.get()), CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
}

}  // namespace
}  // namespace fusor::compat_test
