// Owns the tests of the wgmma engine's clusters: blocks that share the steps of a tile and gather its sums,
// and blocks that share what they load of both operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/build.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

struct ClusterSetting {
  int64_t tile_m = 128, tile_n = 128, swap = 0, ping_pong = 0, cluster = 1, split = 1, gather = 0,
          cluster_n = 1;
};

Lowered lowered_with(const Graph& graph, const ClusterSetting& setting) {
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("tile_m", setting.tile_m);
  config.set("tile_n", setting.tile_n);
  config.set("swap", setting.swap);
  config.set("ping_pong", setting.ping_pong);
  config.set("cluster", setting.cluster);
  config.set("split", setting.split);
  config.set("gather", setting.gather);
  config.set("cluster_n", setting.cluster_n);
  return test::lower(wgmma_engine(), fusion_of(graph), config, DeviceInfo::named("H200"));
}

Graph linear(int64_t m, int64_t n, int64_t k, Strides result = {}) {
  GraphBuilder g("linear");
  const Tensor y = g.matmul(g.input("x", {m, k}, DataType::bf16),
                            g.input("w", {k, n}, DataType::bf16, {.strides = Strides{1, k}}));
  OutputOptions options{.type = DataType::bf16};
  if (!result.empty()) options.strides = result;
  g.output(g.relu(g.add(y, g.input("bias", {1, n}, DataType::bf16))), options);
  return g.finish();
}

// StorePath, as the config numbers it.
constexpr int64_t kGathered = 5, kPartials = 2;

TEST(WgmmaGathered, IsOneLaunchWithoutScratch) {
  const Lowered lowered =
      lowered_with(linear(32, 1000, 2048), {.tile_m = 128, .tile_n = 32, .swap = 1, .split = 8, .gather = 1});
  ASSERT_EQ(lowered.steps.size(), 1u);
  EXPECT_TRUE(lowered.scratch.empty());
  const Launch& launch = launch_of(lowered);
  EXPECT_EQ(config_value(source_of(lowered), "store"), kGathered);
  EXPECT_EQ(config_value(source_of(lowered), "gathered"), 8);
  EXPECT_EQ(launch.cluster[0], 8u);
  EXPECT_EQ(launch.grid[0], 8u * 8) << "a block a part, of 8 tiles";
}

// 20 steps are no 8 parts that all have some of: 7 of 3 steps.
TEST(WgmmaGathered, TakesOnlyPartsThatAllHaveSteps) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(linear(32, 1000, 20 * 64));
  std::set<int64_t> blocks;
  for (const EngineConfig& config : configs(fusion, device)) {
    if (config.knob("gather", 0) == 0) continue;
    const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
    EXPECT_EQ(launch_of(lowered).cluster[0], static_cast<uint32_t>(config.knob("split", 1)))
        << to_string(config);
    EXPECT_EQ(config_value(source_of(lowered), "store"), kGathered) << to_string(config);
    blocks.insert(config.knob("split", 1));
  }
  EXPECT_EQ(blocks, (std::set<int64_t>{2, 3, 4}));
}

TEST(WgmmaGathered, NeverOverfillsTheDevice) {
  const DeviceInfo device = DeviceInfo::named("H200");
  int gathered = 0;
  for (const int64_t m : {1, 49, 197, 1568, 4096}) {
    const Fusion fusion = fusion_of(linear(m, 768, 3072));
    for (const EngineConfig& config : configs(fusion, device)) {
      if (config.knob("gather", 0) == 0) continue;
      const Launch launch = launch_of(test::lower(wgmma_engine(), fusion, config, device));
      EXPECT_LE(launch.grid[0], 2u * static_cast<uint32_t>(device.sm_count)) << to_string(config);
      EXPECT_LE(launch.shared_bytes, device.shared_per_block) << to_string(config);
      ++gathered;
    }
  }
  EXPECT_GT(gathered, 20);
}

// Its vectors run along n.
TEST(WgmmaGathered, IsRefusedWhereResultsLieAlongM) {
  const Graph graph = linear(512, 256, 2048, Strides{1, 512});
  const Lowered lowered = lowered_with(graph, {.split = 4, .gather = 1});
  EXPECT_EQ(lowered.steps.size(), 2u);
  EXPECT_EQ(config_value(source_of(lowered), "store"), kPartials);
  for (const EngineConfig& config : configs(fusion_of(graph), DeviceInfo::named("H200")))
    EXPECT_EQ(config.knob("gather", 0), 0) << to_string(config);
}

TEST(WgmmaClusters, ShareBothOperands) {
  const Graph graph = matmul(1288, 1288, 1288, DataType::bf16);
  for (const int64_t swap : {0, 1}) {
    const Lowered lowered = lowered_with(graph, {.swap = swap, .cluster = 2, .cluster_n = 2});
    const Launch& launch = launch_of(lowered);
    EXPECT_EQ(launch.cluster[0], 4u);
    EXPECT_EQ(launch.grid[0] % 4, 0u);
    EXPECT_EQ(config_value(source_of(lowered), "cluster"), 2);
    EXPECT_EQ(config_value(source_of(lowered), "cluster_n"), 2);
  }
}

// Lines of a map's box along k, or of steps of k where the operand's lines lie across it.
int64_t lines_of_box(const Lowered& lowered, size_t map) {
  return launch_of(lowered).arguments.maps().at(map).box[1];
}

// Two blocks that share 128 adjacent columns have a box of 64 each; four have some steps of k of both boxes.
TEST(WgmmaClusters, ShareWholeBoxesOrStepsOfThem) {
  const Graph graph = matmul(1288, 1288, 1288, DataType::bf16);
  const Lowered two = lowered_with(graph, {.cluster = 2}), four = lowered_with(graph, {.cluster = 4});
  EXPECT_EQ(launch_of(two).cluster[0], 2u);
  EXPECT_EQ(lines_of_box(two, 1), 64);
  EXPECT_EQ(launch_of(four).cluster[0], 4u);
  EXPECT_EQ(lines_of_box(four, 1), 16);
}

// Rows that reach the tensor cores from registers, whose boxes have 32 lines, are not shared out by steps.
TEST(WgmmaClusters, ShareStepsOf16BitsAlone) {
  const auto blocks = [](DataType type, Precision precision) {
    const Graph graph = matmul(712, 712, 712, type, {}, precision);
    return launch_of(lowered_with(graph, {.tile_m = 64, .swap = 1, .ping_pong = 1, .cluster_n = 2}))
        .cluster[0];
  };
  EXPECT_EQ(blocks(DataType::f16, Precision::exact), 2u);
  EXPECT_EQ(blocks(DataType::f32, Precision::allow_tf32), 1u);
}

TEST(WgmmaClusters, OfEightShareBothOperands) {
  const Graph graph = matmul(712, 712, 712, DataType::bf16);
  for (const auto& [below, beside] : {std::pair<int64_t, int64_t>{4, 2}, {2, 4}}) {
    const Lowered lowered = lowered_with(
        graph,
        {.tile_m = 64, .tile_n = 80, .swap = 1, .ping_pong = 1, .cluster = below, .cluster_n = beside});
    EXPECT_EQ(launch_of(lowered).cluster[0], 8u);
    EXPECT_EQ(launch_of(lowered).grid[0] % 8, 0u);
    EXPECT_EQ(lines_of_box(lowered, 0), 64 / beside) << "steps of k of 64 adjacent rows";
    EXPECT_EQ(lines_of_box(lowered, 1), 80 / below) << "of 80 columns that lie along k";
  }
}

// Clusters of more than two do not reach every SM: 30 of four.
// 192 rows are 64 for each of three consumers, whose threads have registers for 96 sums; wider tiles are not
// to be had.
TEST(WgmmaThreeConsumers, ShareTilesOf192Rows) {
  const Graph graph = matmul(2080, 2080, 2080, DataType::bf16);
  const Lowered lowered = lowered_with(graph, {.tile_m = 192, .tile_n = 176, .swap = 1});
  EXPECT_EQ(launch_of(lowered).block[0], 4u * 128);
  EXPECT_EQ(config_value(source_of(lowered), "consumers"), 3);
  EXPECT_EQ(config_value(source_of(lowered), "tile_m"), 192);
  EXPECT_EQ(launch_of(lowered).grid[0], 132u) << "11 x 12 tiles at once";
  const Lowered wide = lowered_with(graph, {.tile_m = 192, .tile_n = 256, .swap = 1});
  EXPECT_EQ(launch_of(wide).block[0], 3u * 128);
  EXPECT_EQ(config_value(source_of(wide), "tile_m"), 128);
}

TEST(WgmmaClusters, ArePersistentOnlyWhereAllRunAtOnce) {
  const Graph graph = matmul(4024, 4024, 4024, DataType::bf16);
  EXPECT_EQ(launch_of(lowered_with(graph, {.cluster = 2})).grid[0], 132u);
  EXPECT_EQ(launch_of(lowered_with(graph, {.cluster = 2, .cluster_n = 2})).grid[0], 120u);
}

TEST(WgmmaClusters, AreOfferedWhereLinesStraddleOrProductsAreShort) {
  const auto shares = [](int64_t n) {
    const std::vector<EngineConfig> all =
        configs(fusion_of(matmul(n, n, n, DataType::bf16)), DeviceInfo::named("H200"));
    return std::ranges::any_of(all,
                               [](const EngineConfig& config) { return config.knob("cluster_n", 1) == 2; });
  };
  EXPECT_TRUE(shares(1288));
  EXPECT_TRUE(shares(1280));
  EXPECT_FALSE(shares(2560));
}

// 29 x 20 tiles of 128 x 192 take five rounds of 132, 29 x 18 of 208 four.
TEST(WgmmaClusters, WidthsBetweenTheUsualFillTheLastRound) {
  const auto columns = [](int64_t n) {
    const Plan plan = build(matmul(n, n, n, DataType::bf16), DeviceInfo::named("H200"), {.compile = false});
    return plan.fusions.at(0).config.knob("tile_n", 0);
  };
  EXPECT_EQ(columns(3664), 208);
  EXPECT_EQ(columns(3160), 160);
  EXPECT_EQ(columns(4096), 256);
}

TEST(WgmmaClusters, KernelsCompile) {
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const std::string& what, const Graph& graph, const ClusterSetting& setting) {
    test::add_kernels(what, lowered_with(graph, setting), kernels);
  };
  const Graph wide = matmul(1288, 1288, 1288, DataType::bf16);
  for (const int64_t columns : {112, 144, 176, 208, 224, 240})
    add("between", wide, {.tile_n = columns, .swap = 1});
  for (const int64_t swap : {0, 1})
    for (const int64_t ping_pong : {0, 1})
      add("shared", wide, {.swap = swap, .ping_pong = ping_pong, .cluster = 2, .cluster_n = 2});
  for (const int64_t swap : {0, 1}) {
    add("three consumers", wide, {.tile_m = 192, .tile_n = 192, .swap = swap});
    add("three consumers and GELU", linear(1568, 512, 512), {.tile_m = 192, .tile_n = 64, .swap = swap});
    add("eight blocks", wide,
        {.tile_m = 64, .tile_n = 64, .swap = swap, .ping_pong = 1, .cluster = 4, .cluster_n = 2});
  }
  const Graph small = linear(64, 4096, 4096);
  for (const int64_t swap : {0, 1}) {
    add("gathered", small, {.tile_n = 64, .swap = swap, .split = 8, .gather = 1});
    add("gathered in turns", small,
        {.tile_m = 64, .tile_n = 64, .swap = swap, .ping_pong = 1, .split = 2, .gather = 1});
    add("gathered wide", small, {.tile_n = 256, .swap = swap, .split = 4, .gather = 1});
  }
  test::expect_all_compiled(kernels);
}

// A plan file may ask for what no candidate does.
TEST(WgmmaClusters, OfMoreThanEightBlocksAreSmaller) {
  const Lowered lowered =
      lowered_with(matmul(2080, 2080, 2080, DataType::bf16), {.swap = 1, .cluster = 4, .cluster_n = 4});
  EXPECT_EQ(launch_of(lowered).cluster[0] * launch_of(lowered).cluster[1], 8U);
}

TEST(WgmmaClusters, ConsumersThatTakeTurnsHaveWholeParts) {
  for (const int64_t columns : {64, 192, 256}) {
    const Lowered lowered = lowered_with(matmul(2080, 2080, 2080, DataType::bf16),
                                         {.tile_m = 192, .tile_n = columns, .swap = 1, .ping_pong = 1});
    EXPECT_EQ(config_value(source_of(lowered), "tile_m") % 64, 0) << columns << " columns";
  }
}

// Both operands lie across k.
Graph pointwise_wgrad(int64_t m, int64_t n) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {32, m, 28, 28}, DataType::f16, Layout::nhwc);
  const Tensor x = g.input("x", {32, n, 28, 28}, DataType::f16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {m, n, 1, 1}), {.type = DataType::f16, .layout = Layout::nhwc});
  return g.finish();
}

// 24 neighbouring columns come in a box of 64, of which 32 are multiplied.
TEST(WgmmaWgrad, MultipliesNoMoreColumnsThanThereAre) {
  const Lowered lowered = lowered_with(pointwise_wgrad(144, 24), {.tile_n = 32, .split = 8});
  const KernelSource& source = source_of(lowered);
  EXPECT_EQ(config_value(source, "tile_n"), 32);
  EXPECT_EQ(launch_of(lowered).arguments.maps()[1].box, Dims({64, 64, 1}));
  EXPECT_GE(launch_of(lowered).shared_bytes, config_value(source, "stages") * (128 + 64) * 128)
      << "lines of whole boxes";
  // Beside other columns, a tile begins where a box does; exchanged, results would leave one by one.
  EXPECT_EQ(config_value(source_of(lowered_with(pointwise_wgrad(144, 200), {.tile_n = 32})), "tile_n"), 64);
  EXPECT_EQ(
      config_value(source_of(lowered_with(pointwise_wgrad(24, 144), {.tile_n = 32, .swap = 1})), "tile_n"),
      64);
}

// One consumer of a small tile, and half as many parts as there is room for.
TEST(WgmmaWgrad, OffersSmallTilesInParts) {
  std::set<int64_t> parts;
  for (const EngineConfig& config : configs(fusion_of(pointwise_wgrad(192, 192)), DeviceInfo::named("H200")))
    if (config.knob("tile_m", 0) == 64 && config.knob("tile_n", 0) == 64 && config.knob("swap", 0) == 0 &&
        config.knob("gather", 0) == 0)
      parts.insert(config.knob("split", 1));
  EXPECT_TRUE(parts.contains(132 / 9)) << "blocks of 9 tiles fill the device";
  EXPECT_TRUE(parts.contains((132 / 9 + 1) / 2));
}

// Lines that lie in one line of L2 each: every width, and tiles of three consumers, but no narrow ones.
TEST(WgmmaClusters, ShortMatmulsOfWholeLinesHaveTilesOfEveryWidth) {
  const auto has = [](int64_t m, int64_t n, int64_t k, int64_t tile_m, int64_t tile_n) {
    const std::vector<EngineConfig> all = configs(fusion_of(linear(m, n, k)), DeviceInfo::named("H200"));
    return std::ranges::any_of(all, [&](const EngineConfig& config) {
      return config.knob("tile_m", 0) == tile_m && config.knob("tile_n", 0) == tile_n;
    });
  };
  EXPECT_TRUE(has(1568, 768, 256, 128, 48));
  EXPECT_TRUE(has(6272, 384, 768, 192, 96));
  EXPECT_FALSE(has(6272, 384, 768, 192, 64));
}

}  // namespace
}  // namespace fusor
