// Owns the tests of the mma_stream engine on the GPU: every candidate of every case against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/contraction_cases.h"

namespace fusor::stream_test {
namespace {

// The engine, and one for what is cut off around it.
void expect_correct_in_streams(const Graph& graph, const std::string& what) {
  static const std::array<const Engine*, 2> kEngines = {&mma_stream_engine(), &elementwise_engine()};
  EXPECT_FALSE(candidates(graph, DeviceInfo::current(), {.engine_list = kEngines}).empty()) << what;
  expect_every_candidate_correct(graph, what, {.engine_list = kEngines});
}

#define FUSOR_NEEDS_SM_80() \
  FUSOR_NEEDS_GPU();        \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs sm_80"

Graph product(const Dims& mnk, DataType type, bool b_along_k = false) {
  GraphBuilder g("product");
  const Tensor a = g.input("a", {mnk[0], mnk[2]}, type);
  const Strides strides = b_along_k ? Strides{1, mnk[2]} : Strides{mnk[1], 1};
  const Tensor b = g.input("b", {mnk[2], mnk[1]}, type, {.strides = strides});
  g.output(g.matmul(a, b), {.type = type});
  return g.finish();
}

TEST(StreamGpu, EveryNumberOfChunksAndOfColumns) {
  FUSOR_NEEDS_SM_80();
  int number = 0;
  for (const int64_t k : {8, 16, 24, 40, 72, 136, 320})
    for (const int64_t n : {2, 8, 24, 72, 80, 91, 112, 256}) {
      if (k * n > 136 * 112) continue;
      const DataType type = ++number % 2 == 0 ? DataType::bf16 : DataType::f16;
      expect_correct_in_streams(product({333, n, k}, type, number % 3 == 0), fmt::format("{} x {}", k, n));
    }
}

TEST(StreamGpu, EveryNumberOfRows) {
  FUSOR_NEEDS_SM_80();
  for (const int64_t m : {1, 15, 16, 17, 31, 32, 33, 255, 257, 4100})
    expect_correct_in_streams(product({m, 24, 40}, DataType::f16), fmt::format("{} rows", m));
}

// Each warp has several tiles: stages are filled again.
TEST(StreamGpu, ManyTilesOfAWarp) {
  FUSOR_NEEDS_SM_80();
  for (const int64_t k : {8, 24, 64})
    expect_correct_in_streams(product({330001, 16, k}, DataType::bf16), fmt::format("{} steps", k));
}

TEST(StreamGpu, RowsThatLieApart) {
  FUSOR_NEEDS_SM_80();
  GraphBuilder g("apart");
  const Tensor a = g.input("a", {500, 24}, DataType::f16, {.strides = Strides{40, 1}});
  const Tensor b = g.input("b", {24, 30}, DataType::f16, {.strides = Strides{33, 1}});
  g.output(g.matmul(a, b), {.type = DataType::f32, .strides = Strides{37, 1}});
  expect_correct_in_streams(g.finish(), "apart");
}

TEST(StreamGpu, ABatchOfOneAndFiltersOfPlanes) {
  FUSOR_NEEDS_SM_80();
  GraphBuilder batch("batch");
  batch.output(batch.matmul(batch.input("a", {1, 333, 24}, DataType::f16),
                            batch.input("b", {1, 24, 40}, DataType::f16)),
               {.type = DataType::f16});
  expect_correct_in_streams(batch.finish(), "a batch of one");
  for (const int64_t window : {1, 3}) {
    GraphBuilder g("planes");
    const Tensor x = g.input("x", {2, 16, 12, 13}, DataType::bf16, Layout::nhwc);
    const Tensor w = g.input("w", {24, 16, window, window}, DataType::bf16, Layout::nchw);
    g.output(g.conv_fprop(x, w, {.padding = {window / 2, window / 2}}), {.type = DataType::bf16});
    expect_correct_in_streams(g.finish(), fmt::format("filters of planes, {}", window));
  }
}

TEST(StreamGpu, OpsBehindTheProduct) {
  FUSOR_NEEDS_SM_80();
  expect_correct_in_streams(contraction_cases::everything_after_a_matmul(700, 72, 24), "epilogue");
  expect_correct_in_streams(contraction_cases::everything_after_a_matmul(100, 250, 88), "wide epilogue");
}

TEST(StreamGpu, Convolutions) {
  FUSOR_NEEDS_SM_80();
  const contraction_cases::PaddedConv cases[] = {
      {{2, 24, 14, 15}, {72, 24, 1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}},
      {{3, 40, 15, 15}, {16, 40, 1, 1}, {0, 0}, {0, 0}, {2, 2}, {1, 1}},
      {{2, 8, 9, 11}, {16, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 16, 13, 7}, {8, 16, 3, 2}, {0, 1}, {2, 0}, {2, 1}, {1, 2}},
      {{2, 24, 50}, {8, 24, 4}, {3}, {0}, {1}, {1}},
      {{1, 8, 5, 6, 7}, {8, 8, 3, 2, 3}, {1, 0, 1}, {1, 1, 1}, {1, 1, 2}, {1, 1, 1}},
  };
  for (const contraction_cases::PaddedConv& c : cases)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
      for (const ConvMode mode : {ConvMode::cross_correlation, ConvMode::convolution})
        expect_correct_in_streams(contraction_cases::convolution(c, pass, DataType::bf16, Layout::nhwc, mode),
                                  to_string(c, pass, DataType::bf16, Layout::nhwc));
}

}  // namespace
}  // namespace fusor::stream_test
