// Owns the tests of how many boxes results take boxes in on their way out of the wgmma engine, and that the
// stages which the main loop needs are no fewer for it.
#include <gtest/gtest.h>

#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

struct Setting {
  int64_t tile_m, tile_n, swap, ping_pong;
};

// How shared memory is used.
struct Uses {
  int64_t stages, boxes;
  friend bool operator==(const Uses&, const Uses&) = default;
  friend void PrintTo(const Uses& uses, std::ostream* out) {
    *out << uses.stages << " stages, " << uses.boxes << " boxes";
  }
};

int64_t boxes_of(const KernelSource& source) { return config_value(source, "boxes"); }

Uses uses(const Graph& graph, const Setting& setting, int64_t store = 1) {
  const DeviceInfo device = DeviceInfo::named("H200");
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("tile_m", setting.tile_m);
  config.set("tile_n", setting.tile_n);
  config.set("swap", setting.swap);
  config.set("ping_pong", setting.ping_pong);
  const Lowered lowered = test::lower(wgmma_engine(), fusion_of(graph), config, device);
  const Launch& launch = std::get<Launch>(lowered.steps.at(0));
  const KernelSource& source = *launch.source;
  EXPECT_EQ(config_value(source, "store"), store);
  EXPECT_LE(launch.shared_bytes, device.shared_per_block);
  return {config_value(source, "stages"), boxes_of(source)};
}

Graph pointwise_convolution(Layout layout, int64_t from, int64_t to) {
  GraphBuilder g("pointwise");
  const Tensor x = g.input("x", {128, from, 56, 56}, DataType::f16, layout);
  const Tensor w = g.input("w", {to, from, 1, 1}, DataType::f16, layout);
  g.output(g.conv_fprop(x, w, {}), {.type = DataType::f16, .layout = layout});
  return g.finish();
}

// One step, or four.
TEST(WgmmaBoxes, TilesOfFewStepsLeaveInFourTurns) {
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const int64_t swap : {0, 1}) {
      const Graph wide = pointwise_convolution(layout, 64, 256),
                  narrow = pointwise_convolution(layout, 256, 64);
      EXPECT_EQ(uses(wide, {128, 192, swap, 1}), (Uses{4, 4}));
      EXPECT_EQ(uses(wide, {128, 128, swap, 1}), (Uses{5, 4}));
      EXPECT_EQ(uses(narrow, {64, 256, swap, 1}), (Uses{4, 4}));
      EXPECT_EQ(uses(narrow, {64, 192, swap, 1}), (Uses{5, 4}));
    }
}

// Where there are few stages, none is given to boxes: they hold few tiles.
TEST(WgmmaBoxes, WideTilesOfFewStepsKeepTheirStages) {
  EXPECT_EQ(uses(pointwise_convolution(Layout::nhwc, 64, 256), {128, 256, 0, 0}), (Uses{4, 2}));
  EXPECT_EQ(uses(pointwise_convolution(Layout::nhwc, 64, 256), {256, 192, 1, 0}), (Uses{3, 3}));
}

TEST(WgmmaBoxes, TilesOfManyStepsKeepAllStages) {
  const Graph graph = matmul(4096, 4096, 4096, DataType::bf16);
  EXPECT_EQ(uses(graph, {128, 128, 0, 1}), (Uses{6, 2}));
  EXPECT_EQ(uses(graph, {64, 128, 0, 1}), (Uses{8, 2}));
  EXPECT_EQ(uses(graph, {128, 256, 0, 0}), (Uses{4, 2}));
  EXPECT_EQ(uses(graph, {128, 192, 0, 0}), (Uses{4, 4}));
}

// As many steps as the ring has stages are not few.
TEST(WgmmaBoxes, StagesAreSparedWhereTheRingHoldsMoreThanATile) {
  EXPECT_EQ(uses(matmul(4096, 4096, 5 * 64, DataType::bf16), {128, 128, 0, 1}), (Uses{5, 4}));
  EXPECT_EQ(uses(matmul(4096, 4096, 6 * 64, DataType::bf16), {128, 128, 0, 1}), (Uses{6, 2}));
}

// Whoever stores a box has read it when all meet for the next one.
TEST(WgmmaBoxes, WhatThreadsStoreTakesTwoTurns) {
  GraphBuilder lines("lines");
  const Tensor dy = lines.input("dy", {32, 64, 28, 28}, DataType::f16, Layout::nhwc);
  const Tensor w = lines.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  lines.output(lines.conv_dgrad(dy, w, {32, 64, 56, 56}, {.padding = {1, 1}, .stride = {2, 2}}),
               {.type = DataType::f16, .layout = Layout::nhwc});
  EXPECT_EQ(uses(lines.finish(), {64, 192, 1, 1}, 3).boxes, 2);
  GraphBuilder planes("planes");
  const Tensor x = planes.input("x", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Tensor filter = planes.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  planes.output(planes.conv_fprop(x, filter, {.padding = {1, 1}}),
                {.type = DataType::f16, .layout = Layout::nchw});
  EXPECT_EQ(uses(planes.finish(), {64, 192, 1, 1}, 4).boxes, 2);
}

// A tile of few steps is mostly epilogue, and a loop over its pieces chooses its sums with two instructions
// an element.
TEST(WgmmaBoxes, EpiloguesOfSomeLengthAreWrittenOutBehindFewSteps) {
  const auto is_unrolled = [](int64_t k, bool backward) {
    GraphBuilder g("linear");
    Tensor y =
        g.add(g.matmul(g.input("a", {4096, k}, DataType::bf16), g.input("b", {k, 1024}, DataType::bf16)),
              g.input("bias", {1, 1024}, DataType::bf16));
    y = backward ? g.gelu_bwd(g.gelu(y), g.input("z", {4096, 1024}, DataType::bf16)) : g.gelu(y);
    g.output(y, {.type = DataType::bf16});
    const Fusion fusion = fusion_of(g.finish());
    EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
    config.set("tile_m", 128);
    config.set("tile_n", 128);
    const Lowered lowered = test::lower(wgmma_engine(), fusion, config, DeviceInfo::named("H200"));
    return config_value(source_of(lowered), "unrolled") != 0;
  };
  EXPECT_TRUE(is_unrolled(64, false));
  EXPECT_TRUE(is_unrolled(768, false));
  EXPECT_FALSE(is_unrolled(4096, false)) << "hidden behind products";
  EXPECT_FALSE(is_unrolled(64, true)) << "its text would be long";
}

// Whole rows of a dense result of few columns, in one line of TMA's where there is an even number of them.
int64_t joined_rows(int64_t rows, int64_t columns, Strides result, int64_t swap = 0) {
  GraphBuilder g("few columns");
  const Tensor y = g.matmul(g.input("x", {rows, 64}, DataType::f16),
                            g.input("w", {64, columns}, DataType::f16, {.strides = Strides{1, 64}}));
  OutputOptions options{.type = DataType::f16};
  options.strides = result;
  g.output(y, options);
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("tile_m", 128);
  config.set("tile_n", columns);
  config.set("swap", swap);
  const Lowered lowered =
      test::lower(wgmma_engine(), fusion_of(g.finish()), config, DeviceInfo::named("H200"));
  return config_value(*std::get<Launch>(lowered.steps.at(0)).source, "joined_rows");
}

TEST(WgmmaBoxes, PairsOfShortRowsLeaveAsOneLine) {
  EXPECT_EQ(joined_rows(4096, 32, {32, 1}), 2);
  EXPECT_EQ(joined_rows(4096, 16, {16, 1}), 2);
  EXPECT_EQ(joined_rows(4095, 32, {32, 1}), 1) << "an odd number of rows";
  EXPECT_EQ(joined_rows(4096, 32, {40, 1}), 1) << "something between rows";
  EXPECT_EQ(joined_rows(4096, 64, {64, 1}), 1) << "lines of 128 bytes";
  EXPECT_EQ(joined_rows(4096, 32, {32, 1}, 1), 1) << "exchanged";
}

}  // namespace
}  // namespace fusor
