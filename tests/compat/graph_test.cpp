// Owns the tests of translated graphs: results on the CPU device against plain loops.
#include <algorithm>
#include <cmath>

#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

class TranslatedGraph : public Client {};

TEST_F(TranslatedGraph, ConvolutionWithBiasAndRelu) {
  const Dims x{2, 3, 5, 6}, w{4, 3, 3, 3}, y{2, 4, 5, 6};
  const auto xs = numbers(180, 1), ws = numbers(108, 2), bs = numbers(4, 3);
  auto ys = poison(240);
  Part conv(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  const Part made = virtual_tensor(10, y), sum = virtual_tensor(11, y), bias = tensor(3, {1, 4, 1, 1});
  conv.child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(1, x))
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(2, w))
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, made)
      .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution({1, 1}, {1, 1}, {1, 1}))
      .finalize();
  // The ops come in an order in which they cannot run.
  run({unary(CUDNN_POINTWISE_RELU_FWD, sum, tensor(0, y)), binary(CUDNN_POINTWISE_ADD, made, bias, sum),
       conv},
      {{0, ys.data()},
       {1, const_cast<float*>(xs.data())},
       {2, const_cast<float*>(ws.data())},
       {3, const_cast<float*>(bs.data())}});
  for (int n = 0; n < 2; ++n)
    for (int k = 0; k < 4; ++k)
      for (int p = 0; p < 5; ++p)
        for (int q = 0; q < 6; ++q) {
          double total = bs[k];
          for (int c = 0; c < 3; ++c)
            for (int r = 0; r < 3; ++r)
              for (int s = 0; s < 3; ++s) {
                const int i = p + r - 1, j = q + s - 1;
                if (i >= 0 && i < 5 && j >= 0 && j < 6)
                  total += double{xs[((n * 3 + c) * 5 + i) * 6 + j]} * ws[((k * 3 + c) * 3 + r) * 3 + s];
              }
          EXPECT_NEAR(ys[((n * 4 + k) * 5 + p) * 6 + q], std::max(total, 0.0), 1e-4);
        }
}

// Channel c of a tensor of vectors lies in vector c / count at place c % count.
TEST_F(TranslatedGraph, ConvolutionOfVectorsOfChannels) {
  constexpr int kCount = 4, kC = 8, kK = 8, kSize = 4;
  const auto plain = numbers(kC * kSize * kSize, 1), weights = numbers(kK * kC * 9, 2);
  const auto vectors = [](const std::vector<float>& from, int outer, int channels, int inner) {
    std::vector<float> to(from.size());
    for (int n = 0; n < outer; ++n)
      for (int c = 0; c < channels; ++c)
        for (int i = 0; i < inner; ++i)
          to[((n * channels / kCount + c / kCount) * inner + i) * kCount + c % kCount] =
              from[(n * channels + c) * inner + i];
    return to;
  };
  auto xs = vectors(plain, 1, kC, kSize * kSize), ws = vectors(weights, kK, kC, 9);
  auto ys = poison(kK * kSize * kSize), right = ys;
  const auto convolved = [](const Part& x, const Part& w, const Part& y) {
    Part conv(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    return conv.child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution({1, 1}, {1, 1}, {1, 1}))
        .finalize();
  };
  run({convolved(tensor(1, {1, kC, kSize, kSize}), tensor(2, {kK, kC, 3, 3}),
                 tensor(3, {1, kK, kSize, kSize}))},
      {{1, const_cast<float*>(plain.data())}, {2, const_cast<float*>(weights.data())}, {3, right.data()}});
  run({convolved(tensor(1, {1, kC / kCount, kSize, kSize}, {.vector_count = kCount}),
                 tensor(2, {kK, kC / kCount, 3, 3}, {.vector_count = kCount}),
                 tensor(3, {1, kK / kCount, kSize, kSize}, {.vector_count = kCount}))},
      {{1, xs.data()}, {2, ws.data()}, {3, ys.data()}});
  EXPECT_EQ(ys, vectors(right, 1, kK, kSize * kSize));
}

TEST_F(TranslatedGraph, MatmulSharesEntriesAmongGroupsOfHeads) {
  const auto as = numbers(size_t{2} * 6 * 4 * 5, 1), bs = numbers(size_t{2} * 2 * 5 * 3, 2);
  auto cs = poison(size_t{2} * 6 * 4 * 3);
  run({matmul(tensor(1, {2, 6, 4, 5}), tensor(2, {2, 2, 5, 3}), tensor(3, {2, 6, 4, 3}))},
      {{1, const_cast<float*>(as.data())}, {2, const_cast<float*>(bs.data())}, {3, cs.data()}});
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 6; ++h)
      for (int m = 0; m < 4; ++m)
        for (int n = 0; n < 3; ++n) {
          double total = 0;
          for (int k = 0; k < 5; ++k)
            total += double{as[((b * 6 + h) * 4 + m) * 5 + k]} * bs[((b * 2 + h / 3) * 5 + k) * 3 + n];
          EXPECT_NEAR(cs[((b * 6 + h) * 4 + m) * 3 + n], total, 1e-5);
        }
}

// Rows of the result beyond a length are padding, also where heads share operands.
TEST_F(TranslatedGraph, LengthsOfAMatmulWhoseHeadsShareEntries) {
  const auto as = numbers(size_t{2} * 4 * 3 * 5, 1), bs = numbers(size_t{2} * 2 * 5 * 2, 2);
  const std::vector<int32_t> lengths{2, 3};
  auto cs = poison(size_t{2} * 4 * 3 * 2);
  Part description(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  description.one(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finalize();
  Part op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_MATMUL_DESC, description)
      .child(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(1, {2, 4, 3, 5}))
      .child(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(2, {2, 2, 5, 2}))
      .child(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(3, {2, 4, 3, 2}))
      .child(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
             tensor(4, {2, 1, 1, 1}, {.type = CUDNN_DATA_INT32}))
      .finalize();
  run({op}, {{1, const_cast<float*>(as.data())},
             {2, const_cast<float*>(bs.data())},
             {3, cs.data()},
             {4, const_cast<int32_t*>(lengths.data())}});
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 4; ++h)
      for (int m = 0; m < 3; ++m)
        for (int n = 0; n < 2; ++n) {
          double total = 0;
          for (int k = 0; k < 5 && m < lengths[b]; ++k)
            total += double{as[((b * 4 + h) * 3 + m) * 5 + k]} * bs[((b * 2 + h / 2) * 5 + k) * 2 + n];
          EXPECT_NEAR(cs[((b * 4 + h) * 3 + m) * 2 + n], total, 1e-5);
        }
}

// The backward pass of attention over rows with lengths: statistics of rows behind them are -inf, and their
// sums of gradients may be NaN; neither leaves its row.
TEST_F(TranslatedGraph, RowsBehindALengthHaveNoProbabilities) {
  const auto as = numbers(6, 1), bs = numbers(4, 2);
  const std::vector<float> stats{0.5F, 0.25F, -INFINITY}, dos{1, 2, 3, 4, NAN, 6};
  const std::vector<int32_t> lengths{2};
  auto ps = poison(6), ds = poison(6);
  Part description(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  description.one(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .one(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, -static_cast<double>(INFINITY))
      .finalize();
  const Dims rows{1, 1, 3, 2}, column{1, 1, 3, 1};
  const Part scores = virtual_tensor(10, rows), difference = virtual_tensor(11, rows),
             sums = virtual_tensor(12, column), shifted = virtual_tensor(13, rows), p = tensor(5, rows),
             d_o = tensor(6, rows);
  Part op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_MATMUL_DESC, description)
      .child(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(1, rows))
      .child(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(2, {1, 1, 2, 2}))
      .child(CUDNN_ATTR_OPERATION_MATMUL_CDESC, scores)
      .child(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
             tensor(3, {1, 1, 1, 1}, {.type = CUDNN_DATA_INT32}))
      .finalize();
  run({op, binary(CUDNN_POINTWISE_SUB, scores, tensor(4, column), difference),
       unary(CUDNN_POINTWISE_EXP, difference, p), reduction(CUDNN_REDUCE_TENSOR_ADD, d_o, sums),
       binary(CUDNN_POINTWISE_SUB, p, sums, shifted),
       binary(CUDNN_POINTWISE_MUL, p, shifted, tensor(7, rows))},
      {{1, const_cast<float*>(as.data())},
       {2, const_cast<float*>(bs.data())},
       {3, const_cast<int32_t*>(lengths.data())},
       {4, const_cast<float*>(stats.data())},
       {5, ps.data()},
       {6, const_cast<float*>(dos.data())},
       {7, ds.data()}});
  for (int m = 0; m < 3; ++m)
    for (int n = 0; n < 2; ++n) {
      const double score = double{as[m * 2]} * bs[n] + double{as[m * 2 + 1]} * bs[2 + n];
      const double right = m < 2 ? std::exp(score - stats[m]) : 0;
      EXPECT_NEAR(ps[m * 2 + n], right, 1e-5);
      EXPECT_NEAR(ds[m * 2 + n], m < 2 ? right * (right - dos[m * 2] - dos[m * 2 + 1]) : 0, 1e-4);
    }
}

TEST_F(TranslatedGraph, ScalarsByValueAreReadInEachRun) {
  const auto xs = numbers(32, 1);
  auto ys = poison(32);
  float factor = 3;
  const Part scalar = tensor(2, {1, 1}, {.by_value = true});
  Part graph =
      operation_graph(handle, {binary(CUDNN_POINTWISE_MUL, tensor(1, {4, 8}), scalar, tensor(3, {4, 8}))})
          .finalize();
  const Part plan = plan_of(heuristics(graph, CUDNN_HEUR_MODE_A).front());
  for (const float value : {3.0F, -2.0F}) {
    factor = value;
    ASSERT_CUDNN(execute(handle, plan, {{1, const_cast<float*>(xs.data())}, {2, &factor}, {3, ys.data()}}));
    for (size_t i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(ys[i], xs[i] * value);
  }
}

TEST_F(TranslatedGraph, ResultsThatNobodyReadsAreLeftOut) {
  const auto xs = numbers(16, 1);
  auto ys = poison(16);
  const Part x = tensor(1, {4, 4});
  run({unary(CUDNN_POINTWISE_LOG, x, virtual_tensor(7, {4, 4})),
       unary(CUDNN_POINTWISE_ABS, x, tensor(2, {4, 4}))},
      {{1, const_cast<float*>(xs.data())}, {2, ys.data()}});
  for (size_t i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(ys[i], std::abs(xs[i]));
}

TEST_F(TranslatedGraph, StridesOfAxesOfOneElementMayBeAnything) {
  const auto xs = numbers(6, 1);
  auto ys = poison(2);
  run({reduction(CUDNN_REDUCE_TENSOR_ADD, tensor(1, {2, 3, 1}, {.strides = {3, 1, 99990001}}),
                 tensor(2, {2, 1, 1}, {.strides = {1, 0, 3331333}}))},
      {{1, const_cast<float*>(xs.data())}, {2, ys.data()}});
  EXPECT_NEAR(ys[0], xs[0] + xs[1] + xs[2], 1e-6);
  EXPECT_NEAR(ys[1], xs[3] + xs[4] + xs[5], 1e-6);
}

TEST_F(TranslatedGraph, ReshapeFollowsStrides) {
  const auto xs = numbers(24, 1);
  auto ys = poison(24);
  Part reshape(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  const Part moved = tensor(5, {2, 4, 3}, {.strides = {12, 1, 4}, .is_virtual = true});
  reshape.child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(1, {2, 3, 4}))
      .child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, moved)
      .finalize();
  run({reshape, unary(CUDNN_POINTWISE_NEG, moved, tensor(2, {2, 4, 3}))},
      {{1, const_cast<float*>(xs.data())}, {2, ys.data()}});
  for (int b = 0; b < 2; ++b)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 3; ++j) EXPECT_FLOAT_EQ(ys[(b * 4 + i) * 3 + j], -xs[(b * 3 + j) * 4 + i]);
}

// One head of causal attention as front-ends write it out: rows that see nothing give zeros.
TEST_F(TranslatedGraph, SoftmaxBetweenMatmulsMasksWholeRows) {
  const int s = 6, t = 6, d = 4;
  const auto qs = numbers(24, 1), ks = numbers(24, 2), vs = numbers(24, 3);
  std::vector<float> mask(36, 0.0F);
  for (int i = 0; i < s; ++i)
    for (int j = 0; j < t; ++j)
      if (j > i || i == 2) mask[i * t + j] = -INFINITY;
  auto os = poison(24);
  const Dims scores{1, 1, s, t}, rows{1, 1, s, 1};
  const Part raw = virtual_tensor(10, scores), masked = virtual_tensor(11, scores),
             max = virtual_tensor(12, rows), shifted = virtual_tensor(13, scores),
             exp = virtual_tensor(14, scores), sum = virtual_tensor(15, rows), p = virtual_tensor(16, scores);
  run({matmul(tensor(1, {1, 1, s, d}), tensor(2, {1, 1, d, t}, {.strides = {24, 24, 1, 4}}), raw),
       binary(CUDNN_POINTWISE_ADD, raw, tensor(4, scores), masked),
       reduction(CUDNN_REDUCE_TENSOR_MAX, masked, max), binary(CUDNN_POINTWISE_SUB, masked, max, shifted),
       unary(CUDNN_POINTWISE_EXP, shifted, exp), reduction(CUDNN_REDUCE_TENSOR_ADD, exp, sum),
       binary(CUDNN_POINTWISE_DIV, exp, sum, p), matmul(p, tensor(3, {1, 1, t, d}), tensor(5, {1, 1, s, d}))},
      {{1, const_cast<float*>(qs.data())},
       {2, const_cast<float*>(ks.data())},
       {3, const_cast<float*>(vs.data())},
       {4, mask.data()},
       {5, os.data()}});
  for (int i = 0; i < s; ++i) {
    std::vector<double> weights(t, 0);
    double total = 0;
    for (int j = 0; j <= i && i != 2; ++j) {
      double score = 0;
      for (int k = 0; k < d; ++k) score += double{qs[i * d + k]} * ks[j * d + k];
      total += weights[j] = std::exp(score);
    }
    for (int k = 0; k < d; ++k) {
      double expected = 0;
      for (int j = 0; j < t && total > 0; ++j) expected += weights[j] / total * vs[j * d + k];
      EXPECT_NEAR(os[i * d + k], expected, 1e-5) << "row " << i;
    }
  }
}

// Two integers of 4 bits in a byte, the first in its lower half.
TEST_F(TranslatedGraph, IntegersOfFourBitsAreReadInPairs) {
  const std::vector<uint8_t> packed{0x21, 0x83, 0xf0, 0x7e};
  for (const auto& [type, right] :
       {std::pair(CUDNN_DATA_INT4, std::vector<float>{1, 2, 3, -8, 0, -1, -2, 7}),
        std::pair(CUDNN_DATA_UINT4, std::vector<float>{1, 2, 3, 8, 0, 15, 14, 7})}) {
    auto ys = poison(8);
    run({unary(CUDNN_POINTWISE_IDENTITY, tensor(1, {1, 2, 4}, {.type = type}), tensor(2, {1, 2, 4}))},
        {{1, const_cast<uint8_t*>(packed.data())}, {2, ys.data()}});
    EXPECT_EQ(ys, right);
  }
}

// 8 booleans in a byte, the first in its lowest bit, written and read; no byte more is touched. Bits behind
// the last one are nobody's.
TEST_F(TranslatedGraph, BooleansAreBits) {
  std::vector<float> xs{1, -2, 3, 4, -5, -6, 7, -8, -9, 10, 11}, zeros(11, 0);
  std::vector<uint8_t> mask(11, 0xa5);
  const Dims dims{1, 1, 11};
  const Part bits = tensor(2, dims, {.type = CUDNN_DATA_BOOLEAN});
  run({binary(CUDNN_POINTWISE_CMP_GT, tensor(1, dims), tensor(3, dims), bits)},
      {{1, xs.data()}, {2, mask.data()}, {3, zeros.data()}});
  EXPECT_EQ(mask[0], 0b01001101);
  EXPECT_EQ(mask[1] & 0b111, 0b110);
  EXPECT_EQ(std::count(mask.begin() + 2, mask.end(), 0xa5), 9);
  auto ys = poison(11);
  run({unary(CUDNN_POINTWISE_IDENTITY, bits, tensor(4, dims))}, {{2, mask.data()}, {4, ys.data()}});
  for (size_t i = 0; i < 11; ++i) EXPECT_EQ(ys[i], xs[i] > 0 ? 1 : 0) << i;
}

TEST_F(TranslatedGraph, TypesOfFourBitsAreWrittenInPairs) {
  std::vector<float> xs{1, 2.5, -9, 7, 0.5, 6, -1, 3};
  for (const auto& [type, right] :
       {std::pair(CUDNN_DATA_INT4, std::vector<uint8_t>{0x21, 0x78, 0x60, 0x3f}),
        std::pair(CUDNN_DATA_UINT4, std::vector<uint8_t>{0x21, 0x70, 0x60, 0x30}),
        std::pair(CUDNN_DATA_FP4_E2M1, std::vector<uint8_t>{0x42, 0x7f, 0x71, 0x5a})}) {
    std::vector<uint8_t> ys(4, 0xee);
    run({unary(CUDNN_POINTWISE_IDENTITY, tensor(1, {1, 2, 4}), tensor(2, {1, 2, 4}, {.type = type}))},
        {{1, xs.data()}, {2, ys.data()}});
    EXPECT_EQ(ys, right);
  }
}

// A reader behind the result sees what was stored.
TEST_F(TranslatedGraph, UnsignedIntegersOfFourBitsAreWrittenAndReadAgain) {
  std::vector<float> xs{8, 15, 16, 300, 7.6F, 14.4F, -3, 0};
  std::vector<uint8_t> stored(4, 0xee);
  auto ys = poison(8);
  const Part packed = tensor(2, {1, 2, 4}, {.type = CUDNN_DATA_UINT4});
  run({unary(CUDNN_POINTWISE_IDENTITY, tensor(1, {1, 2, 4}), packed),
       unary(CUDNN_POINTWISE_NEG, packed, tensor(3, {1, 2, 4}))},
      {{1, xs.data()}, {2, stored.data()}, {3, ys.data()}});
  EXPECT_EQ(stored, (std::vector<uint8_t>{0xf8, 0xff, 0xe8, 0x00}));
  EXPECT_EQ(ys, (std::vector<float>{-8, -15, -15, -15, -8, -14, 0, 0}));
}

// cudnn-frontend leaves the dims of a row's maximum to inference where a sink follows, and infers the
// operand's.
TEST_F(TranslatedGraph, ReductionOfLeftOutDimsFollowsItsReader) {
  const auto xs = numbers(12, 1), sinks = numbers(3, 2);
  auto ys = poison(3);
  const Part x = tensor(1, {1, 3, 4}), sink = tensor(2, {1, 3, 1}), whole = virtual_tensor(3, {1, 3, 4}),
             y = tensor(4, {1, 3, 1});
  run({reduction(CUDNN_REDUCE_TENSOR_MAX, x, whole), binary(CUDNN_POINTWISE_MAX, whole, sink, y)},
      {{1, const_cast<float*>(xs.data())}, {2, const_cast<float*>(sinks.data())}, {4, ys.data()}});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(ys[i],
              std::max(sinks[i], *std::max_element(xs.begin() + static_cast<std::ptrdiff_t>(4 * i),
                                                   xs.begin() + static_cast<std::ptrdiff_t>(4 * i + 4))));
}

// The maximum and the sum of each row may be results of their own.
TEST_F(TranslatedGraph, RowsThatAreMaskedWholeHaveNoProbabilities) {
  const auto qs = numbers(6, 1), ks = numbers(8, 2);
  std::vector<float> masks(12, 0);
  std::fill_n(masks.begin() + 4, 4, -INFINITY);
  auto most = poison(3), sums = poison(3), ps = poison(12);
  const Dims row{1, 1, 3, 1}, scores{1, 1, 3, 4};
  const Part s = virtual_tensor(4, scores), masked = virtual_tensor(5, scores), maximum = tensor(6, row),
             lower = virtual_tensor(7, scores), weight = virtual_tensor(8, scores), sum = tensor(9, row);
  run({matmul(tensor(1, {1, 1, 3, 2}), tensor(2, {1, 1, 2, 4}), s),
       binary(CUDNN_POINTWISE_ADD, s, tensor(3, scores), masked),
       reduction(CUDNN_REDUCE_TENSOR_MAX, masked, maximum),
       binary(CUDNN_POINTWISE_SUB, masked, maximum, lower), unary(CUDNN_POINTWISE_EXP, lower, weight),
       reduction(CUDNN_REDUCE_TENSOR_ADD, weight, sum),
       binary(CUDNN_POINTWISE_DIV, weight, sum, tensor(10, scores))},
      {{1, const_cast<float*>(qs.data())},
       {2, const_cast<float*>(ks.data())},
       {3, masks.data()},
       {6, most.data()},
       {9, sums.data()},
       {10, ps.data()}});
  for (size_t i = 0; i < 3; ++i) {
    double total = 0;
    for (size_t j = 0; j < 4; ++j) total += ps[i * 4 + j];
    EXPECT_NEAR(total, i == 1 ? 0 : 1, 1e-6);
  }
  EXPECT_EQ(most[1], -INFINITY);
  EXPECT_EQ(sums[1], 0);
}

// The scores of rows behind a length are masked whole, which a sink would hide.
TEST_F(TranslatedGraph, StatisticsBesideASinkAreMinusInfinityBehindALength) {
  const auto qs = numbers(6, 1), ks = numbers(8, 2), sinks = numbers(1, 3);
  auto stats = poison(3);
  int32_t length = 2;
  const Dims row{1, 1, 3, 1}, scores{1, 1, 3, 4};
  const Part s = virtual_tensor(4, scores), most = virtual_tensor(5, row), shift = virtual_tensor(6, row),
             sink = tensor(7, {1, 1, 1, 1}), lower = virtual_tensor(8, scores),
             weight = virtual_tensor(9, scores), sum = virtual_tensor(10, row),
             beside = virtual_tensor(11, row), own = virtual_tensor(12, row), total = virtual_tensor(13, row),
             logarithm = virtual_tensor(14, row);
  Part description(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  description.one(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finalize();
  Part product(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  product.child(CUDNN_ATTR_OPERATION_MATMUL_DESC, description)
      .child(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(1, {1, 1, 3, 2}))
      .child(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(2, {1, 1, 2, 4}))
      .child(CUDNN_ATTR_OPERATION_MATMUL_CDESC, s)
      .child(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
             tensor(3, {1, 1, 1, 1}, {.type = CUDNN_DATA_INT32}))
      .finalize();
  run({product, reduction(CUDNN_REDUCE_TENSOR_MAX, s, most), binary(CUDNN_POINTWISE_MAX, most, sink, shift),
       binary(CUDNN_POINTWISE_SUB, s, shift, lower), unary(CUDNN_POINTWISE_EXP, lower, weight),
       reduction(CUDNN_REDUCE_TENSOR_ADD, weight, sum), binary(CUDNN_POINTWISE_SUB, sink, shift, beside),
       unary(CUDNN_POINTWISE_EXP, beside, own), binary(CUDNN_POINTWISE_ADD, sum, own, total),
       unary(CUDNN_POINTWISE_LOG, total, logarithm),
       binary(CUDNN_POINTWISE_ADD, logarithm, shift, tensor(15, row))},
      {{1, const_cast<float*>(qs.data())},
       {2, const_cast<float*>(ks.data())},
       {3, &length},
       {7, const_cast<float*>(sinks.data())},
       {15, stats.data()}});
  for (size_t i = 0; i < 2; ++i) {
    double expected = std::exp(double{sinks[0]});
    for (size_t j = 0; j < 4; ++j)
      expected += std::exp(double{qs[i * 2]} * ks[j] + double{qs[i * 2 + 1]} * ks[4 + j]);
    EXPECT_NEAR(stats[i], std::log(expected), 1e-5);
  }
  EXPECT_EQ(stats[2], -INFINITY);
}

// cudnn-frontend writes the gradient of an attention's sink as the sum of exp(sink - stats) * D; it is the
// negative of that.
TEST_F(TranslatedGraph, GradientOfASinkHasItsSign) {
  const auto sinks = numbers(2, 1), sums = numbers(6, 3), as = numbers(4, 4);
  auto stats = numbers(6, 2), ds = poison(2), cs = poison(4);
  stats[2] = -INFINITY;  // a row without keys
  const Dims rows{1, 2, 3, 1};
  const Part sink = tensor(1, {1, 2, 1, 1}), stat = tensor(2, rows), sum = tensor(3, rows),
             difference = virtual_tensor(4, rows), weight = virtual_tensor(5, rows),
             product = virtual_tensor(6, rows), gradient = tensor(7, {1, 2, 1, 1}),
             a = tensor(8, {1, 1, 2, 2}), c = tensor(9, {1, 1, 2, 2});
  run({binary(CUDNN_POINTWISE_SUB, sink, stat, difference), unary(CUDNN_POINTWISE_EXP, difference, weight),
       binary(CUDNN_POINTWISE_MUL, weight, sum, product),
       reduction(CUDNN_REDUCE_TENSOR_ADD, product, gradient), matmul(a, a, c)},
      {{1, const_cast<float*>(sinks.data())},
       {2, const_cast<float*>(stats.data())},
       {3, const_cast<float*>(sums.data())},
       {7, ds.data()},
       {8, const_cast<float*>(as.data())},
       {9, cs.data()}});
  for (size_t h = 0; h < 2; ++h) {
    double total = 0;
    for (size_t i = h * 3; i < h * 3 + 3; ++i)
      if (i != 2) total += std::exp(double{sinks[h]} - stats[i]) * sums[i];
    EXPECT_NEAR(ds[h], -total, 1e-5);
  }
}

// A bit for each block of 128 queries and keys, the lowest first: of 1300 keys those of block 9 count.
TEST_F(TranslatedGraph, BlockMasksOfAttentionAreBits) {
  const int keys = 1300, d = 2;
  const auto qs = numbers(d, 1), ks = numbers(keys * d, 2), vs = numbers(keys * d, 3);
  const std::vector<uint8_t> mask{0x00, 0x02};
  auto os = poison(d);
  Part op(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, tensor(1, {1, 1, 1, d}))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, tensor(2, {1, 1, keys, d}))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, tensor(3, {1, 1, keys, d}))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC,
             tensor(4, {1, 1, 1, 2}, {.type = CUDNN_DATA_UINT8}))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, tensor(5, {1, 1, 1, d}))
      .finalize();
  run({op}, {{1, const_cast<float*>(qs.data())},
             {2, const_cast<float*>(ks.data())},
             {3, const_cast<float*>(vs.data())},
             {4, const_cast<uint8_t*>(mask.data())},
             {5, os.data()}});
  double total = 0, sums[d] = {};
  for (int j = 9 * 128; j < 10 * 128; ++j) {
    double score = 0;
    for (int i = 0; i < d; ++i) score += double{qs[i]} * ks[j * d + i];
    total += std::exp(score);
    for (int i = 0; i < d; ++i) sums[i] += std::exp(score) * vs[j * d + i];
  }
  for (int i = 0; i < d; ++i) EXPECT_NEAR(os[i], sums[i] / total, 1e-5);
}

TEST_F(TranslatedGraph, AttentionAsOneOp) {
  const int s = 5, d = 8;
  const auto qs = numbers(40, 1), ks = numbers(40, 2), vs = numbers(40, 3);
  auto os = poison(40), stats = poison(5);
  float scale = 0.5F;
  const Dims dims{1, 1, s, d};
  Part op(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, tensor(1, dims))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, tensor(2, dims))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, tensor(3, dims))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, tensor(4, {1, 1, 1, 1}, {.by_value = true}))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, tensor(5, dims))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, tensor(6, {1, 1, s, 1}))
      .finalize();
  run({op}, {{1, const_cast<float*>(qs.data())},
             {2, const_cast<float*>(ks.data())},
             {3, const_cast<float*>(vs.data())},
             {4, &scale},
             {5, os.data()},
             {6, stats.data()}});
  for (int i = 0; i < s; ++i) {
    std::vector<double> weights(s, 0);
    double total = 0;
    for (int j = 0; j < s; ++j) {
      double score = 0;
      for (int k = 0; k < d; ++k) score += double{qs[i * d + k]} * ks[j * d + k];
      total += weights[j] = std::exp(score * 0.5);
    }
    EXPECT_NEAR(stats[i], std::log(total), 1e-5);
    for (int k = 0; k < d; ++k) {
      double expected = 0;
      for (int j = 0; j < s; ++j) expected += weights[j] / total * vs[j * d + k];
      EXPECT_NEAR(os[i * d + k], expected, 1e-5);
    }
  }
}

Part norm_forward(cudnnBackendNormMode_t mode) {
  Part op(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
  op.one(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, mode)
      .one(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING);
  return op;
}

TEST_F(TranslatedGraph, LayerNormTakesItsAxesFromTheStatistics) {
  const int rows = 3, width = 7;
  const auto xs = numbers(21, 1), scale = numbers(7, 2), bias = numbers(7, 3);
  auto ys = poison(21), means = poison(3), inverses = poison(3);
  float epsilon = 1e-3F;
  Part op = norm_forward(CUDNN_LAYER_NORM);
  op.child(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, tensor(1, {3, 7, 1, 1}))
      .child(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, tensor(2, {1, 7, 1, 1}))
      .child(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, tensor(3, {1, 7, 1, 1}))
      .child(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, tensor(4, {1, 1, 1, 1}, {.by_value = true}))
      .child(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, tensor(5, {3, 1, 1, 1}))
      .child(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, tensor(6, {3, 1, 1, 1}))
      .child(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, tensor(7, {3, 7, 1, 1}))
      .finalize();
  run({op}, {{1, const_cast<float*>(xs.data())},
             {2, const_cast<float*>(scale.data())},
             {3, const_cast<float*>(bias.data())},
             {4, &epsilon},
             {5, means.data()},
             {6, inverses.data()},
             {7, ys.data()}});
  for (int i = 0; i < rows; ++i) {
    double mean = 0, variance = 0;
    for (int j = 0; j < width; ++j) mean += double{xs[i * width + j]} / width;
    for (int j = 0; j < width; ++j) variance += std::pow(xs[i * width + j] - mean, 2) / width;
    const double inverse = 1 / std::sqrt(variance + epsilon);
    EXPECT_NEAR(means[i], mean, 1e-6);
    EXPECT_NEAR(inverses[i], inverse, 1e-4);
    for (int j = 0; j < width; ++j)
      EXPECT_NEAR(ys[i * width + j], (xs[i * width + j] - mean) * inverse * scale[j] + bias[j], 1e-5);
  }
}

// A batch norm's plan, and what a client binds to it.
struct BatchNormCall {
  std::vector<float> xs = numbers(24, 1), scale{1, 2}, bias{0, 1}, mean{0.5F, -0.5F}, variance{1, 2},
                     ys = poison(24), next_mean = poison(2), next_variance = poison(2), saved = poison(2),
                     inverse = poison(2);
  float epsilon = 1e-3F, factor = 0.25F;

  static Part op() {
    const Dims x{3, 2, 4, 1}, c{1, 2, 1, 1};
    const TensorOptions by_value{.by_value = true};
    Part op = norm_forward(CUDNN_BATCH_NORM);
    return op.child(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, tensor(1, x))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, tensor(2, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, tensor(3, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, tensor(4, {1, 1, 1, 1}, by_value))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, tensor(5, {1, 1, 1, 1}, by_value))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, tensor(6, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, tensor(7, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, tensor(8, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, tensor(9, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, tensor(10, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, tensor(11, c))
        .child(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, tensor(12, x))
        .finalize();
  }
  Pointers pointers() {
    return {{1, xs.data()},       {2, scale.data()},     {3, bias.data()},
            {4, &epsilon},        {5, &factor},          {6, mean.data()},
            {7, variance.data()}, {8, next_mean.data()}, {9, next_variance.data()},
            {10, saved.data()},   {11, inverse.data()},  {12, ys.data()}};
  }
};

TEST_F(TranslatedGraph, BatchNormUpdatesRunningStatistics) {
  BatchNormCall call;
  run({BatchNormCall::op()}, call.pointers());
  for (int channel = 0; channel < 2; ++channel) {
    double average = 0, spread = 0;
    const auto at = [&](int n, int i) { return double{call.xs[(n * 2 + channel) * 4 + i]}; };
    for (int n = 0; n < 3; ++n)
      for (int i = 0; i < 4; ++i) average += at(n, i) / 12;
    for (int n = 0; n < 3; ++n)
      for (int i = 0; i < 4; ++i) spread += std::pow(at(n, i) - average, 2) / 12;
    EXPECT_NEAR(call.saved[channel], average, 1e-6);
    EXPECT_NEAR(call.inverse[channel], 1 / std::sqrt(spread + 1e-3), 1e-4);
    EXPECT_NEAR(call.next_mean[channel], 0.75 * call.mean[channel] + 0.25 * average, 1e-6);
    EXPECT_NEAR(call.next_variance[channel], 0.75 * call.variance[channel] + 0.25 * spread * 12 / 11, 1e-5);
  }
}

// Clients update running statistics where they are, whatever the plan's kernels read when.
TEST_F(TranslatedGraph, ResultsTakeThePlaceOfOperands) {
  BatchNormCall apart, together;
  run({BatchNormCall::op()}, apart.pointers());
  Pointers pointers = together.pointers();
  pointers[8] = pointers[6];
  pointers[9] = pointers[7];
  pointers[12] = pointers[1];
  run({BatchNormCall::op()}, pointers);
  EXPECT_EQ(together.mean, apart.next_mean);
  EXPECT_EQ(together.variance, apart.next_variance);
  EXPECT_EQ(together.xs, apart.ys);
  EXPECT_EQ(together.saved, apart.saved);
}

TEST_F(TranslatedGraph, SumsOfEightBitsAreRefused) {
  const TensorOptions bytes{.type = CUDNN_DATA_INT8};
  for (const cudnnDataType_t compute : {CUDNN_DATA_INT8, CUDNN_DATA_INT32}) {
    Part op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    op.child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution({1, 1}, {1, 1}, {1, 1}, compute))
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(1, {2, 4, 8, 8}, bytes))
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(2, {4, 4, 3, 3}, bytes))
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(3, {2, 4, 8, 8}, bytes))
        .finalize();
    const Part graph = operation_graph(handle, {op});
    const bool is_refused = cudnnBackendFinalize(graph.get()) == CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
    EXPECT_EQ(is_refused, compute == CUDNN_DATA_INT8) << last_message();
  }
}

TEST_F(TranslatedGraph, MaximumPoolingGivesPlacesInTheWindow) {
  const auto xs = numbers(16, 1);
  auto ys = poison(4);
  std::vector<int8_t> places(4, 99);
  const cudnnFraction_t two{2, 1}, zero{0, 1};
  const std::vector<cudnnFraction_t> twos{two, two}, zeros{zero, zero};
  Part resample(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
  resample.one(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, CUDNN_RESAMPLE_MAXPOOL)
      .one(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .one(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, CUDNN_NEG_INF_PAD)
      .one(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2})
      .set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, twos)
      .set(CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, twos)
      .set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, zeros)
      .set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, zeros)
      .finalize();
  Part op(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, tensor(1, {1, 1, 4, 4}))
      .child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, tensor(2, {1, 1, 2, 2}))
      .child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, tensor(3, {1, 1, 2, 2}, {.type = CUDNN_DATA_INT8}))
      .child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, resample)
      .one(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA, CUDNN_TYPE_DOUBLE, 1.0)
      .one(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA, CUDNN_TYPE_DOUBLE, 0.0)
      .finalize();
  run({op}, {{1, const_cast<float*>(xs.data())}, {2, ys.data()}, {3, places.data()}});
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      int best = 0;
      const auto at = [&](int place) { return xs[(i * 2 + place / 2) * 4 + j * 2 + place % 2]; };
      for (int place = 1; place < 4; ++place)
        if (at(place) > at(best)) best = place;
      EXPECT_EQ(places[i * 2 + j], best);
      EXPECT_FLOAT_EQ(ys[i * 2 + j], at(best));
    }
}

// A window that lies in the padding alone has the least number as its maximum, and 0 as its average.
TEST_F(TranslatedGraph, WindowsOfPaddingAlone) {
  const std::vector<float> xs{3, -1, 2};
  const cudnnFraction_t two{2, 1};
  const std::vector<cudnnFraction_t> twos{two};
  for (const auto mode : {CUDNN_RESAMPLE_MAXPOOL, CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING}) {
    const bool is_maximum = mode == CUDNN_RESAMPLE_MAXPOOL;
    auto ys = poison(3);
    Part resample(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    resample.one(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, mode)
        .one(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
        .one(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE,
             is_maximum ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD)
        .one(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{1})
        .set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, twos)
        .set(CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, twos)
        .set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, twos)
        .set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, std::vector<cudnnFraction_t>{{1, 1}})
        .finalize();
    Part op(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    op.child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, tensor(1, {1, 1, 3}))
        .child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, tensor(2, {1, 1, 3}))
        .child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, resample)
        .finalize();
    run({op}, {{1, const_cast<float*>(xs.data())}, {2, ys.data()}});
    EXPECT_EQ(ys, is_maximum ? (std::vector<float>{-INFINITY, 3, 2}) : (std::vector<float>{0, 1, 1}));
  }
}

TEST_F(TranslatedGraph, ConcatenationInPlaceWritesTheOtherParts) {
  const auto as = numbers(8, 1);
  std::vector<float> whole(20, 7.0F);
  Part op(CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR);
  const Part a = tensor(1, {2, 2, 2}), b = tensor(2, {2, 3, 2}), doubled = virtual_tensor(9, {2, 2, 2});
  const std::vector<cudnnBackendDescriptor_t> parts{doubled.get(), b.get()};
  op.set(CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS, CUDNN_TYPE_BACKEND_DESCRIPTOR, parts)
      .child(CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC, tensor(3, {2, 5, 2}))
      .one(CUDNN_ATTR_OPERATION_CONCAT_AXIS, CUDNN_TYPE_INT64, int64_t{1})
      .one(CUDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX, CUDNN_TYPE_INT64, int64_t{1})
      .finalize();
  run({binary(CUDNN_POINTWISE_ADD, a, a, doubled), op},
      {{1, const_cast<float*>(as.data())}, {2, whole.data() + 4}, {3, whole.data()}});
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < 10; ++i) EXPECT_FLOAT_EQ(whole[n * 10 + i], i < 4 ? 2 * as[n * 4 + i] : 7.0F);
}

}  // namespace
}  // namespace fusor::compat_test
