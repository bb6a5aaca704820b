// Owns the tests of ragged tensors: attention over sequences that lie one behind the other, results that a
// graph reads again, and memory that ends at the last offset.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>

#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

constexpr int kBatch = 3, kHeads = 2, kRows = 5, kDepth = 8;
constexpr int kLengths[kBatch] = {3, 0, 5};
constexpr int kTokens = 8;
constexpr float kCanary = 1000;

// A [b, h, s, d] tensor whose rows of all heads lie `row` elements apart.
Part ragged(int64_t uid, const Part& offset, int64_t row, int64_t depth = kDepth) {
  Part part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  return part.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Dims{kBatch, kHeads, kRows, depth})
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
           Dims{std::min(row, int64_t{1} << 32) * kRows, depth, row, 1})
      .one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid)
      .one(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16})
      .child(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offset)
      .finalize();
}

// Where each sequence begins, in elements.
template <class Integer>
std::vector<Integer> offsets(int row) {
  std::vector<Integer> list{0};
  for (const int length : kLengths) list.push_back(list.back() + static_cast<Integer>(length * row));
  return list;
}

class Ragged : public Client {
 protected:
  // Attention of one sequence's head by plain loops: o, and the logarithm of the sum of exponentials.
  struct Row {
    std::vector<double> o;
    double stats = 0;
  };
  Row attend(const float* q, const float* k, const float* v, int row, int length) const {
    std::vector<double> weights;
    double total = 0;
    for (int j = 0; j < length; ++j) {
      double score = 0;
      for (int d = 0; d < kDepth; ++d) score += double{q[d]} * k[j * row + d];
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    Row made{std::vector<double>(kDepth, 0), std::log(total)};
    for (int j = 0; j < length; ++j)
      for (int d = 0; d < kDepth; ++d)
        made.o[static_cast<size_t>(d)] += weights[static_cast<size_t>(j)] / total * v[j * row + d];
    return made;
  }
  Part lengths_part(int64_t uid) { return tensor(uid, {kBatch, 1, 1, 1}, {.type = CUDNN_DATA_INT32}); }
  std::vector<int32_t> lengths_{std::begin(kLengths), std::end(kLengths)};
};

// q, k and v of a token lie beside each other, o and the statistics have memory of their own.
TEST_F(Ragged, AttentionReadsAndWritesSequencesOneBehindTheOther) {
  constexpr int kRow = 3 * kHeads * kDepth, kOut = kHeads * kDepth;
  // Behind the last token, nothing but what must not be read.
  auto qkv = numbers(static_cast<size_t>(kTokens * kRow), 1);
  qkv.resize(qkv.size() + 100, NAN);
  std::vector<float> o(kTokens * kOut + 100, kCanary), stats(kTokens * kHeads + 100, kCanary);
  auto in_offsets = offsets<int32_t>(kRow);
  auto out_offsets = offsets<int64_t>(kOut), stats_offsets = offsets<int64_t>(kHeads);
  const Part in = tensor(11, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT32}),
             out = tensor(12, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT64}),
             of_stats = tensor(13, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT64});
  Part statistics(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  statistics.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Dims{kBatch, kHeads, kRows, 1})
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, Dims{kRows * kHeads, 1, kHeads, 1})
      .one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, int64_t{5})
      .child(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, of_stats)
      .finalize();
  Part op(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  op.child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, ragged(1, in, kRow))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, ragged(2, in, kRow))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, ragged(3, in, kRow))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, lengths_part(14))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, lengths_part(15))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, ragged(4, out, kOut))
      .child(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, statistics)
      .finalize();
  run({op}, {{1, qkv.data()},
             {2, qkv.data() + kOut},
             {3, qkv.data() + 2 * kOut},
             {4, o.data()},
             {5, stats.data()},
             {11, in_offsets.data()},
             {12, out_offsets.data()},
             {13, stats_offsets.data()},
             {14, lengths_.data()},
             {15, lengths_.data()}});
  int first = 0;
  for (const int length : kLengths) {
    for (int s = 0; s < length; ++s)
      for (int h = 0; h < kHeads; ++h) {
        const float* const start = qkv.data() + first * kRow + h * kDepth;
        const Row want = attend(start + s * kRow, start + kOut, start + 2 * kOut, kRow, length);
        for (int d = 0; d < kDepth; ++d)
          EXPECT_NEAR(o[static_cast<size_t>((first + s) * kOut + h * kDepth + d)],
                      want.o[static_cast<size_t>(d)], 1e-5);
        EXPECT_NEAR(stats[static_cast<size_t>((first + s) * kHeads + h)], want.stats, 1e-5);
      }
    first += length;
  }
  for (size_t i = kTokens * kOut; i < o.size(); ++i) EXPECT_EQ(o[i], kCanary) << i;
  for (size_t i = kTokens * kHeads; i < stats.size(); ++i) EXPECT_EQ(stats[i], kCanary) << i;
}

TEST_F(Ragged, AResultThatTheGraphReadsAgainIsStored) {
  constexpr int kRow = kHeads * kDepth;
  auto xs = numbers(static_cast<size_t>(kTokens * kRow), 1);
  std::vector<float> ys(kTokens * kRow + 10, kCanary), between(kTokens * kRow + 10, kCanary);
  auto starts = offsets<int32_t>(kRow);
  const Part offset = tensor(11, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT32});
  const Part x = ragged(1, offset, kRow), middle = ragged(2, offset, kRow), y = ragged(3, offset, kRow);
  run({unary(CUDNN_POINTWISE_RELU_FWD, x, middle), unary(CUDNN_POINTWISE_NEG, middle, y)},
      {{1, xs.data()}, {2, between.data()}, {3, ys.data()}, {11, starts.data()}});
  for (size_t i = 0; i < ys.size(); ++i) {
    EXPECT_EQ(between[i], i < xs.size() ? std::max(xs[i], 0.0F) : kCanary) << i;
    EXPECT_EQ(ys[i], i < xs.size() ? -std::max(xs[i], 0.0F) : kCanary) << i;
  }
}

// Products that are written and read within a graph are the client's workspace, whose size it does not say.
TEST_F(Ragged, AProductThatTheGraphReadsAgainStaysInTheGraph) {
  constexpr int kRow = kHeads * kDepth;
  auto xs = numbers(static_cast<size_t>(kTokens * kRow), 1);
  auto ws = numbers(kDepth * kDepth, 2);
  std::vector<float> ys(kTokens * kRow + 10, kCanary), between(1, kCanary);
  auto starts = offsets<int32_t>(kRow);
  const Part offset = tensor(11, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT32});
  const Part product = ragged(2, offset, kRow);
  run({matmul(ragged(1, offset, kRow), tensor(4, {1, 1, kDepth, kDepth}), product),
       unary(CUDNN_POINTWISE_NEG, product, ragged(3, offset, kRow))},
      {{1, xs.data()}, {2, between.data()}, {3, ys.data()}, {4, ws.data()}, {11, starts.data()}});
  for (size_t i = 0; i < xs.size(); ++i) {
    const size_t row = i / kDepth * kDepth, column = i % kDepth;
    double expected = 0;
    for (size_t k = 0; k < kDepth; ++k) expected -= double{xs[row + k]} * ws[k * kDepth + column];
    EXPECT_NEAR(ys[i], expected, 1e-5) << i;
  }
  for (size_t i = xs.size(); i < ys.size(); ++i) EXPECT_EQ(ys[i], kCanary) << i;
  EXPECT_EQ(between[0], kCanary);
}

// Keys with their depth in front of their rows, as clients hand them to a matmul.
TEST_F(Ragged, OperandsOfMatmulsAreTransposedByTheirStrides) {
  constexpr int kRow = kHeads * kDepth;
  auto qs = numbers(static_cast<size_t>(kTokens * kRow), 1),
       ks = numbers(static_cast<size_t>(kTokens * kRow), 2);
  std::vector<float> scores(kBatch * kHeads * kRows * kRows, kCanary);
  auto starts = offsets<int64_t>(kRow);
  const Part offset = tensor(11, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT64});
  Part k(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  k.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Dims{kBatch, kHeads, kDepth, kRows})
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, Dims{kRows * kRow, kDepth, 1, kRow})
      .one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, int64_t{2})
      .child(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offset)
      .finalize();
  run({matmul(ragged(1, offset, kRow), k, tensor(3, {kBatch, kHeads, kRows, kRows}))},
      {{1, qs.data()}, {2, ks.data()}, {3, scores.data()}, {11, starts.data()}});
  int first = 0;
  for (int b = 0; b < kBatch; ++b) {
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kRows; ++j) {
          double want = 0;
          if (i < kLengths[b] && j < kLengths[b])
            for (int d = 0; d < kDepth; ++d)
              want += double{qs[static_cast<size_t>((first + i) * kRow + h * kDepth + d)]} *
                      ks[static_cast<size_t>((first + j) * kRow + h * kDepth + d)];
          EXPECT_NEAR(scores[static_cast<size_t>(((b * kHeads + h) * kRows + i) * kRows + j)], want, 1e-5);
        }
    first += kLengths[b];
  }
}

// The few of 5 billion elements that are walked have memory.
TEST_F(Ragged, OffsetsOf64BitsReachBeyondWhat32Hold) {
  constexpr int kRow = kHeads * kDepth;
  constexpr int64_t kBegin = int64_t{5} << 30;
  constexpr size_t kBytes = (kBegin + kTokens * kRow + 10) * sizeof(float);
  const auto reserve = [&] {
    return static_cast<float*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  };
  float *const x = reserve(), *const y = reserve();
  if (x == MAP_FAILED || y == MAP_FAILED) GTEST_SKIP() << "no room for 40 GB of addresses";
  const auto xs = numbers(static_cast<size_t>(kTokens * kRow), 1);
  std::ranges::copy(xs, x + kBegin);
  auto starts = offsets<int64_t>(kRow);
  for (int64_t& start : starts) start += kBegin;
  const Part offset = tensor(11, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT64});
  run({unary(CUDNN_POINTWISE_NEG, ragged(1, offset, kRow), ragged(2, offset, kRow))},
      {{1, x}, {2, y}, {11, starts.data()}});
  for (size_t i = 0; i < xs.size(); ++i) EXPECT_EQ(y[kBegin + static_cast<int64_t>(i)], -xs[i]) << i;
  EXPECT_EQ(y[kBegin + static_cast<int64_t>(xs.size())], 0.0F);
  munmap(x, kBytes);
  munmap(y, kBytes);
}

TEST_F(Ragged, OffsetsOfAnotherBatchAreRefused) {
  const Part offset = tensor(11, {kBatch, 1, 1, 1}, {.type = CUDNN_DATA_INT32});
  const Part x = ragged(1, offset, kHeads * kDepth);
  Part graph =
      operation_graph(handle, {unary(CUDNN_POINTWISE_NEG, x, tensor(2, {kBatch, kHeads, kRows, kDepth}))});
  EXPECT_NE(cudnnBackendFinalize(graph.get()), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(last_message().find("has 3 offsets; 3 batch entries need 4"), std::string::npos)
      << last_message();
}

TEST_F(Ragged, StridesThatOverflowAreRefused) {
  const Part offset = tensor(11, {kBatch + 1, 1, 1, 1}, {.type = CUDNN_DATA_INT32});
  const Part x = ragged(1, offset, int64_t{1} << 62, int64_t{1} << 61);
  Part graph =
      operation_graph(handle, {unary(CUDNN_POINTWISE_NEG, x, tensor(2, {kBatch, kHeads, kRows, kDepth}))});
  EXPECT_NE(cudnnBackendFinalize(graph.get()), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(last_message().find("is too large"), std::string::npos) << last_message();
}

}  // namespace
}  // namespace fusor::compat_test
