// Owns the tests of results whose positions lie side by side that the wgmma_repacked engine stores without a
// copy, as far as they need no GPU: the units in which they leave, and their price.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "heuristics/time_model.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/repack/cases.h"

namespace fusor {
namespace {

using namespace repacked;

Graph planes(const Dims& x, const Dims& w, OutputOptions y = {}, DataType type = DataType::f16) {
  GraphBuilder g("planes", Precision::allow_tf32);
  const ConvOptions padded{.padding = Dims::filled(x.rank() - 2, w[2] / 2)};
  y.type = type;
  g.output(g.relu(g.conv_fprop(g.input("x", x, type), g.input("w", w, type), padded)), y);
  return g.finish();
}

int64_t value_of(const KernelSource& source, std::string_view name) {
  const auto found = std::ranges::find(source.config, name, &ConfigValue::name);
  return found == source.config.end() ? -1 : found->number();
}

// The product of the cheapest setting of the first way out.
Launch product(const Graph& graph) {
  const Fusion fusion = fusion_of(graph);
  const EngineCandidate* best = nullptr;
  const auto all = test::candidates(wgmma_repacked_engine(), fusion, h200());
  for (const EngineCandidate& candidate : all)
    if (candidate.config.knob("repack_y", 0) == 0 &&
        (best == nullptr || estimate_seconds(candidate.work, h200()) < estimate_seconds(best->work, h200())))
      best = &candidate;
  for (const Step& step : test::lower(wgmma_repacked_engine(), fusion, best->config, h200()).steps)
    if (std::get<Launch>(step).entry.starts_with("wgmma")) return std::get<Launch>(step);
  return {};
}

TEST(WgmmaRepacked, PlanesLeaveInTheLargestUnitsThatStayInAnImage) {
  constexpr int64_t kPlanesStored = 4;
  const auto unit = [&](const Launch& launch) {
    EXPECT_EQ(value_of(*launch.source, "store"), kPlanesStored);
    return value_of(*launch.source, "unit");
  };
  const Dims w{128, 128, 3, 3};
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w))), 8);
  EXPECT_EQ(unit(product(planes({128, 128, 14, 14}, w))), 4);
  EXPECT_EQ(unit(product(planes({128, 128, 13, 14}, w))), 2);
  EXPECT_EQ(unit(product(planes({128, 128, 7, 7}, w))), 1);
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w, {}, DataType::f32))), 4);
  EXPECT_EQ(unit(product(planes({64, 128, 8, 8, 8}, {128, 128, 3, 3, 3}))), 8);
  // Planes that are further apart; addresses that promise less.
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w, {.strides = Strides{128 * 260, 260, 16, 1}}))), 4);
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w, {.alignment = 4}))), 2);
  // Rows of the padded grid have 58 positions, 56 of which are pixels.
  const Launch window = product(planes({128, 64, 56, 56}, {64, 64, 3, 3}));
  EXPECT_EQ(window.entry, "wgmma_window");
  EXPECT_EQ(unit(window), 2);
}

TEST(WgmmaRepacked, PlanesNeedNoCopyOfTheResult) {
  for (const Dims& x : {Dims{128, 256, 14, 14}, Dims{128, 64, 56, 56}}) {
    const Plan plan = build(planes(x, {x[1], x[1], 3, 3}), h200(), {.compile = false});
    EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_repacked");
    EXPECT_EQ(plan.fusions.at(0).config.knob("repack_y", -1), 0) << to_string(x);
  }
}

TEST(WgmmaRepacked, OnlyWhatThreadsScatterIsPricedAsSuch) {
  const auto l2_bytes = [](Layout layout, int64_t tile_n) {
    const Fusion fusion = fusion_of(planes({128, 256, 14, 14}, {256, 256, 3, 3}, {.layout = layout}));
    for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
      const EngineConfig& config = candidate.config;
      if (config.knob("swap", 0) == 1 && config.knob("tile_n", 0) == tile_n &&
          config.knob("tile_m", 0) == 128 && config.knob("ping_pong", 0) == 1 &&
          config.knob("repack_y", 0) == 0)
        return candidate.work.l2_bytes;
    }
    return 0.0;
  };
  ASSERT_GT(l2_bytes(Layout::nhwc, 192), 0);
  EXPECT_EQ(l2_bytes(Layout::nchw, 192), l2_bytes(Layout::nhwc, 192));
  // Boxes of 96 columns are no whole lines: of 8 bytes of L2 a thread uses 2.
  EXPECT_EQ(l2_bytes(Layout::nchw, 96), l2_bytes(Layout::nhwc, 96) + 128.0 * 256 * 14 * 14 * 6);
}

TEST(WgmmaRepacked, EveryKernelOfPlanesCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const std::string& name, const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
      const EngineConfig& config = candidate.config;
      if (config.knob("repack_y", 0) != 0 || config.knob("cluster", 1) != 1) continue;
      const int64_t tile_n = config.knob("tile_n", 0);
      if (tile_n == 16 || tile_n == 192)
        test::add_kernels(name + " " + to_string(config),
                          test::lower(wgmma_repacked_engine(), fusion, config, h200()), kernels);
    }
  };
  add("units of 4", planes({128, 128, 14, 14}, {136, 128, 3, 3}));
  add("a window", planes({128, 64, 56, 56}, {64, 64, 3, 3}));
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
