// Owns the GPU tests of the wgmma engine's clusters: blocks that share the steps of a tile and gather its
// sums, and blocks that share what they load of both operands.
#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

struct ClusterKnobs {
  int64_t tile_m, tile_n, swap, ping_pong, cluster, cluster_n, split, gather;
};

// A setting that may be no candidate: the engine's first candidate with other knobs.
void expect_setting_correct(const Graph& graph, const ClusterKnobs& knobs, const std::string& what) {
  std::vector<Candidate> all =
      candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kWgmmaOnly});
  ASSERT_FALSE(all.empty());
  EngineConfig& config = all.front().fusions.front().config;
  config.set("tile_m", knobs.tile_m);
  config.set("tile_n", knobs.tile_n);
  config.set("swap", knobs.swap);
  config.set("ping_pong", knobs.ping_pong);
  config.set("cluster", knobs.cluster);
  config.set("cluster_n", knobs.cluster_n);
  config.set("split", knobs.split);
  config.set("gather", knobs.gather);
  expect_config_correct(graph, all.front(), kWgmmaOnly, what);
}

Graph biased(int64_t m, int64_t n, int64_t k, bool along_k) {
  GraphBuilder g("linear");
  const TensorOptions lines = along_k ? TensorOptions{.strides = Strides{1, k}} : TensorOptions{};
  const Tensor y =
      g.matmul(g.input("x", {m, k}, DataType::bf16), g.input("w", {k, n}, DataType::bf16, lines));
  const Tensor sum = g.add(y, g.input("bias", {1, n}, DataType::bf16));
  g.output(g.gelu(sum), {.type = DataType::bf16});
  return g.finish();
}

TEST(WgmmaClustersGpu, GatherTheSumsOfATile) {
  FUSOR_NEEDS_HOPPER();
  for (const bool along_k : {false, true})
    for (const int64_t swap : {0, 1}) {
      const Graph even = biased(96, 520, 1024, along_k), odd = biased(67, 264, 72 * 8, along_k);
      for (const int64_t blocks : {2, 4, 8}) {
        const std::string what = "gathered of " + std::to_string(blocks);
        expect_setting_correct(even, {128, 64, swap, 0, 1, 1, blocks, 1}, what);
        expect_setting_correct(even, {64, 128, swap, 1, 1, 1, blocks, 1}, what + " in turns");
        expect_setting_correct(even, {128, 256, swap, 0, 1, 1, blocks, 1}, what + " wide");
        expect_setting_correct(even, {128, 16, swap, 0, 1, 1, blocks, 1}, what + " narrow");
      }
      expect_setting_correct(odd, {128, 64, swap, 0, 1, 1, 3, 1}, "gathered of three, odd lines");
    }
}

TEST(WgmmaClustersGpu, GatherConvolutions) {
  FUSOR_NEEDS_HOPPER();
  const Layout nhwc = Layout::nhwc;
  GraphBuilder fprop("fprop");
  const Tensor x = fprop.input("x", {1, 128, 14, 14}, DataType::f16, nhwc);
  fprop.output(fprop.relu(fprop.conv_fprop(x, fprop.input("w", {192, 128, 3, 3}, DataType::f16, nhwc),
                                           {.padding = {1, 1}})),
               {.type = DataType::f16, .layout = nhwc});
  const Graph forward = fprop.finish();
  GraphBuilder wgrad("wgrad");
  const Tensor dy = wgrad.input("dy", {2, 96, 14, 14}, DataType::bf16, nhwc);
  const Tensor image = wgrad.input("x", {2, 80, 14, 14}, DataType::bf16, nhwc);
  wgrad.output(wgrad.conv_wgrad(dy, image, {96, 80, 3, 3}, {.padding = {1, 1}}),
               {.type = DataType::bf16, .layout = nhwc});
  const Graph gradient = wgrad.finish();
  for (const int64_t swap : {0, 1}) {
    expect_setting_correct(forward, {128, 64, swap, 0, 1, 1, 4, 1}, "3x3 fprop");
    expect_setting_correct(gradient, {128, 64, swap, 0, 1, 1, 2, 1}, "3x3 wgrad, channels filled up");
  }
}

TEST(WgmmaClustersGpu, ShareBothOperands) {
  FUSOR_NEEDS_HOPPER();
  for (const bool along_k : {false, true})
    for (const int64_t swap : {0, 1})
      for (const auto& [m, n] : {std::pair{712, 712}, {1288, 328}}) {
        const Graph graph = biased(m, n, 712, along_k);
        expect_setting_correct(graph, {128, 128, swap, 0, 2, 2, 1, 0}, "two by two");
        expect_setting_correct(graph, {128, 128, swap, 1, 1, 2, 1, 0}, "side by side, in turns");
        expect_setting_correct(graph, {128, 192, swap, 0, 1, 2, 1, 0}, "side by side");
      }
}

// Both operands lie across k, as those of a pointwise wgrad do.
Graph pointwise_wgrad(int64_t m, int64_t n, int64_t pixels) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {2, m, pixels, 10}, DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", {2, n, pixels, 10}, DataType::bf16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {m, n, 1, 1}), {.type = DataType::bf16, .layout = Layout::nhwc});
  return g.finish();
}

TEST(WgmmaFewColumnsGpu, AreMultipliedAlone) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t n : {8, 16, 24, 32, 48, 96}) {
    const Graph graph = pointwise_wgrad(136, n, 41);
    const int64_t tile_n = (n + 15) / 16 * 16;
    for (const int64_t split : {1, 3}) {
      const std::string what = std::to_string(n) + " columns";
      expect_setting_correct(graph, {128, tile_n, 0, 0, 1, 1, split, 0}, what);
      expect_setting_correct(graph, {256, tile_n, 0, 0, 1, 1, split, 0}, what + ", many rows");
      expect_setting_correct(graph, {64, tile_n, 0, 1, 1, 1, split, 0}, what + ", one consumer");
    }
    expect_setting_correct(graph, {64, tile_n, 0, 1, 1, 1, 2, 1}, "gathered");
  }
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", {4, 16, 256, 256}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {16, 32, 1, 1}, DataType::f16, Layout::nhwc);
  g.output(g.conv_dgrad(dy, w, {4, 32, 256, 256}), {.type = DataType::f16, .layout = Layout::nhwc});
  expect_setting_correct(g.finish(), {256, 32, 0, 0, 1, 1, 1, 0}, "pointwise dgrad");
}

// TMA stores pairs of whole rows as one line, where there is an even number of them and nothing between.
TEST(WgmmaFewColumnsGpu, LeaveAsPairsOfRows) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t n : {16, 32})
    for (const int64_t width : {150, 149}) {
      const std::string what = std::to_string(n) + " channels, " + std::to_string(width) + " columns";
      GraphBuilder g("fprop");
      const Tensor x = g.input("x", {1, 40, 149, width}, DataType::f16, Layout::nhwc);
      const Tensor w = g.input("w", {n, 40, 1, 1}, DataType::f16, Layout::nhwc);
      const Tensor bias = g.input("bias", {1, n, 1, 1}, DataType::f32);
      g.output(g.relu(g.add(g.conv_fprop(x, w), bias)), {.type = DataType::f16, .layout = Layout::nhwc});
      const Graph graph = g.finish();
      expect_setting_correct(graph, {128, n, 0, 0, 1, 1, 1, 0}, what);
      expect_setting_correct(graph, {256, n, 0, 0, 1, 1, 1, 0}, what + ", many rows");
      expect_setting_correct(graph, {64, n, 0, 1, 1, 1, 1, 0}, what + ", one consumer");
    }
}

// Eight blocks; where lines of an operand lie across k, blocks fetch some steps of k each for all.
TEST(WgmmaClustersGpu, ShareBothOperandsAmongEight) {
  FUSOR_NEEDS_HOPPER();
  for (const bool along_k : {false, true})
    for (const auto& [m, n] : {std::pair{712, 712}, {1288, 328}}) {
      const Graph graph = biased(m, n, 712, along_k);
      for (const auto& [below, beside] : {std::pair<int64_t, int64_t>{4, 2}, {2, 4}}) {
        expect_setting_correct(graph, {64, 80, 1, 1, below, beside, 1, 0}, "tiles of 64 x 80");
        expect_setting_correct(graph, {128, 96, 1, 0, below, beside, 1, 0}, "tiles of 128 x 96");
        expect_setting_correct(graph, {64, 64, 0, 1, below, beside, 1, 0}, "not exchanged");
        expect_setting_correct(graph, {128, 192, 0, 0, below, beside, 1, 0}, "not exchanged, wide");
      }
      expect_setting_correct(graph, {64, 128, 1, 1, 1, 2, 1, 0}, "a box of rows shared by two");
    }
}

TEST(WgmmaClustersGpu, ThreeConsumersShareATile) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("residual");
  const Tensor sum =
      g.matmul(g.input("x", {1000, 520}, DataType::f16), g.input("w", {520, 712}, DataType::f16));
  g.output(g.relu(g.add(sum, g.input("residual", {1000, 712}, DataType::f16))), {.type = DataType::f16});
  const Graph residual = g.finish();
  for (const bool along_k : {false, true})
    for (const int64_t swap : {0, 1}) {
      const Graph graph = biased(1288, 712, 520, along_k);
      expect_setting_correct(graph, {192, 192, swap, 0, 1, 1, 1, 0}, "192 x 192");
      expect_setting_correct(graph, {192, 128, swap, 0, 1, 2, 1, 0}, "192 x 128, side by side");
      expect_setting_correct(graph, {192, 64, swap, 0, 2, 1, 1, 0}, "192 x 64, below each other");
      expect_setting_correct(residual, {192, 128, swap, 0, 1, 1, 1, 0}, "with an operand in boxes");
    }
  expect_setting_correct(biased(1288, 712, 520, false), {192, 176, 1, 0, 2, 2, 1, 0},
                         "192 x 176, two by two");
}

TEST(WgmmaClustersGpu, SharePixels) {
  FUSOR_NEEDS_HOPPER();
  const Layout nhwc = Layout::nhwc;
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", {4, 72, 28, 28}, DataType::f16, nhwc);
  g.output(g.relu(g.conv_fprop(x, g.input("w", {416, 72, 3, 3}, DataType::f16, nhwc), {.padding = {1, 1}})),
           {.type = DataType::f16, .layout = nhwc});
  const Graph graph = g.finish();
  for (const int64_t swap : {0, 1}) {
    expect_setting_correct(graph, {128, 128, swap, 0, 2, 1, 1, 0}, "below each other");
    expect_setting_correct(graph, {128, 128, swap, 0, 1, 2, 1, 0}, "side by side");
    expect_setting_correct(graph, {128, 128, swap, 1, 2, 2, 1, 0}, "two by two, in turns");
  }
}

}  // namespace
}  // namespace fusor
