// Tests pages, ragged tensors, matmuls of some rows and block scales against loops over their definitions.
#include <gmock/gmock.h>

#include <cmath>

#include "serialization/serialization.h"
#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

using testing::ElementsAre;

void expect_planned_everywhere(const Graph& graph) {
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  for (const DeviceInfo& device : DeviceInfo::profiles()) build(graph, device, {.compile = false});
}

TEST(PagedCacheLoad, FollowsItsTableUpToTheLengths) {
  GraphBuilder g;
  const Tensor container = g.input("container", {5, 2, 4, 3}, DataType::f16);
  const Tensor table = g.input("table", {2, 1, 3, 1}, DataType::i32);
  const Tensor lengths = g.input("lengths", {2, 1, 1, 1}, DataType::i32);
  const Tensor y = g.output(g.paged_cache_load(container, table, {.max_seq_len = 10, .lengths = lengths}));
  const Graph graph = g.finish();
  ASSERT_EQ(y.dims, (Dims{2, 2, 10, 3}));
  HostTensors tensors(graph);
  const std::vector<double> pages{4, 0, 2, 1, 7, 3}, rows{9, 10};
  tensors.set(table, pages);
  tensors.set(lengths, rows);
  run_on_cpu(graph, tensors);
  const auto in = tensors.get(container), out = tensors.get(y);
  for (size_t b = 0; b < 2; ++b)
    for (size_t h = 0; h < 2; ++h)
      for (size_t s = 0; s < 10; ++s)
        for (size_t d = 0; d < 3; ++d) {
          const auto page = static_cast<size_t>(pages[b * 3 + s / 4]);
          const bool there = page < 5 && static_cast<double>(s) < rows[b];
          EXPECT_EQ(out[((b * 2 + h) * 10 + s) * 3 + d],
                    there ? in[((page * 2 + h) * 4 + s % 4) * 3 + d] : 0);
        }
  expect_planned_everywhere(graph);
}

TEST(PagedCacheLoad, PagesThatDoNotExistAreZero) {
  GraphBuilder g;
  const Tensor container = g.input("container", {5, 2, 4, 3}, DataType::f32);
  const Tensor table = g.input("table", {1, 1, 8, 1}, DataType::i32);
  const Tensor y = g.output(g.paged_cache_load(container, table));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  const std::vector<double> pages{-1, 4, 5, 2147483647, -2147483648.0, 1 << 28, 0, 536870912};
  tensors.set(table, pages);
  run_on_cpu(graph, tensors);
  const auto in = tensors.get(container), out = tensors.get(y);
  for (size_t h = 0; h < 2; ++h)
    for (size_t s = 0; s < 32; ++s) {
      const double page = pages[s / 4];
      const bool there = page >= 0 && page < 5;
      const size_t from = there ? ((static_cast<size_t>(page) * 2 + h) * 4 + s % 4) * 3 : 0;
      EXPECT_EQ(out[(h * 32 + s) * 3], there ? in[from] : 0) << s;
    }
}

// A container whose rows lie anywhere: gaps behind heads.
TEST(PagedCacheLoad, TakesRowsOfAnyStrides) {
  GraphBuilder g;
  const Tensor container =
      g.input("container", {3, 2, 4, 3}, DataType::f32, {.strides = Strides{48, 24, 3, 1}});
  const Tensor table = g.input("table", {2, 1, 2, 1}, DataType::i32);
  const Tensor y = g.output(g.paged_cache_load(container, table));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(table, {2, 0, 1, 2});
  run_on_cpu(graph, tensors);
  const auto in = tensors.get(container), out = tensors.get(y);
  const std::vector<size_t> pages{2, 0, 1, 2};
  for (size_t b = 0; b < 2; ++b)
    for (size_t h = 0; h < 2; ++h)
      for (size_t s = 0; s < 8; ++s)
        EXPECT_EQ(out[((b * 2 + h) * 8 + s) * 3], in[pages[b * 2 + s / 4] * 48 + h * 24 + s % 4 * 3]);
}

TEST(Ragged, LoadsTokensAndStoresThemAgain) {
  GraphBuilder g;
  // Two sequences of 2 and 3 tokens, 2 heads of 4: [token, head, depth].
  const Tensor x = g.input("x", {40}, DataType::f32);
  const Tensor offset = g.input("offset", {3, 1, 1, 1}, DataType::i32);
  const Tensor y = g.output(g.ragged_load(x, offset, {2, 2, 4, 4}, {4, 8, 1}));
  const Tensor back = g.output(g.ragged_store(g.neg(y), offset, 44, {4, 8, 1}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(offset, {0, 16, 40});
  run_on_cpu(graph, tensors);
  const auto in = tensors.get(x), dense = tensors.get(y), out = tensors.get(back);
  for (size_t b = 0; b < 2; ++b)
    for (size_t h = 0; h < 2; ++h)
      for (size_t s = 0; s < 4; ++s)
        for (size_t d = 0; d < 4; ++d) {
          const bool there = s < (b == 0 ? 2U : 3U);
          EXPECT_EQ(dense[((b * 2 + h) * 4 + s) * 4 + d], there ? in[b * 16 + s * 8 + h * 4 + d] : 0);
        }
  for (size_t i = 0; i < 44; ++i) EXPECT_EQ(out[i], i < 40 ? -in[i] : 0) << i;
  expect_planned_everywhere(graph);
}

TEST(MatmulLengths, PadsWhatLiesBeyondAndIgnoresWhatItReadsThere) {
  GraphBuilder g;
  const Tensor a = g.input("a", {2, 3, 4}, DataType::f32), b = g.input("b", {2, 4, 2}, DataType::f32);
  const Tensor m = g.input("m", {2, 1, 1}, DataType::i32), k = g.input("k", {2, 1, 1}, DataType::i32);
  const Tensor c = g.output(g.matmul_lengths(a, b, {.m_override = m, .k_override = k, .padding = 9}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(m, {3, 1});
  tensors.set(k, {2, 4});
  std::vector<double> left(24, 1), right(16, 2);
  left[3] = std::nan("");
  tensors.set(a, left);
  tensors.set(b, right);
  run_on_cpu(graph, tensors);
  EXPECT_THAT(tensors.get(c), ElementsAre(4, 4, 4, 4, 4, 4, 8, 8, 9, 9, 9, 9));
  expect_planned_everywhere(graph);
}

// y[i] = sum over k of x[i][k] * w[k][j].
std::vector<double> row_times(const std::vector<double>& x, size_t row, const std::vector<double>& w,
                              size_t expert) {
  std::vector<double> y(3, 0);
  for (size_t j = 0; j < 3; ++j)
    for (size_t i = 0; i < 4; ++i) y[j] += x[row * 4 + i] * w[(expert * 4 + i) * 3 + j];
  return y;
}

class Moe : public testing::TestWithParam<TokenMode> {};

TEST_P(Moe, GivesEachRowToItsExpert) {
  const TokenMode mode = GetParam();
  GraphBuilder g;
  const Tensor tokens = g.input("tokens", {mode == TokenMode::gather ? 3 : 6, 4}, DataType::f32);
  const Tensor weights = g.input("weights", {3, 4, 3}, DataType::f32);
  const Tensor first = g.input("first", {3, 1, 1}, DataType::i32);
  MoeOptions options{.mode = mode, .top_k = 2};
  if (mode != TokenMode::none) options.token_index = g.input("index", {6}, DataType::i32);
  const Tensor y = g.output(g.moe_grouped_matmul(tokens, weights, first, options));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  const std::vector<double> index{5, 0, 3, 1, 2, 4};
  const std::vector<size_t> expert{0, 0, 2, 2, 2, 2};
  tensors.set(first, {0, 2, 2});
  if (mode != TokenMode::none) tensors.set(options.token_index, index);
  run_on_cpu(graph, tensors);
  const auto x = tensors.get(tokens), w = tensors.get(weights), out = tensors.get(y);
  for (size_t i = 0; i < 6; ++i) {
    const auto place = static_cast<size_t>(index[i]);
    const auto want = row_times(x, mode == TokenMode::gather ? place / 2 : i, w, expert[i]);
    const size_t row = mode == TokenMode::scatter ? place : i;
    for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(out[row * 3 + j], want[j], 1e-5);
  }
  expect_planned_everywhere(graph);
}

INSTANTIATE_TEST_SUITE_P(Modes, Moe, testing::Values(TokenMode::none, TokenMode::gather, TokenMode::scatter),
                         [](const auto& test) { return std::string(to_string(test.param)); });

struct Blocks {
  const char* name;
  Dims dims;
  BlockScaleOptions options;
};

class BlockScale : public testing::TestWithParam<Blocks> {};

TEST_P(BlockScale, ComesBackWithinThePrecisionOfItsType) {
  const auto& [name, dims, options] = GetParam();
  GraphBuilder g;
  const Tensor x = g.input("x", dims, DataType::f32);
  const BlockScaleResults all = g.block_scale_quantize(x, options);
  const Tensor y = g.output(all.y), scale = g.output(all.scale);
  const Tensor back = g.output(g.block_scale_dequantize(all.y, all.scale, options));
  const Graph graph = g.finish();
  EXPECT_EQ(y.type, options.y_type);
  EXPECT_EQ(scale.type, options.scale_type);
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  const auto in = tensors.get(x), out = tensors.get(back);
  // A scale that is rounded down makes the largest numbers saturate.
  const double bound = options.scale_type == DataType::f8_e4m3 ? 0.13 : 0.07;
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], in[i], bound * std::abs(in[i]) + 0.005) << i;
  expect_planned_everywhere(graph);
}

const Blocks kBlocks[] = {
    {"Mxfp8", {4, 128}, {}},
    {"AlongAnOuterAxis", {64, 5}, {.axis = 0}},
    {"WithAShortBlock", {3, 50}, {.block_size = 16, .scale_type = DataType::f32}},
    {"ShorterThanABlock", {3, 5}, {.block_size = 16, .scale_type = DataType::f8_e4m3}},
};
INSTANTIATE_TEST_SUITE_P(Cases, BlockScale, testing::ValuesIn(kBlocks),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(BlockScale, OfZerosIsZero) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 32}, DataType::bf16);
  const BlockScaleResults all = g.block_scale_quantize(x, {.scale_type = DataType::f8_e4m3});
  const Tensor y = g.output(all.y);
  g.output(all.scale);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, std::vector<double>(64, 0));
  run_on_cpu(graph, tensors);
  EXPECT_THAT(tensors.get(y), testing::Each(0));
}

}  // namespace
}  // namespace fusor
