// Owns the tests of the wgmma_narrow engine that need no GPU: its refusals, its launches, and that its
// kernels compile.
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/conv_dims.h"

namespace fusor {
namespace {

using test::fusion_of;

struct Case {
  Dims x, w;
  ConvOptions options = {};
  DataType type = DataType::f16;
  Layout layout = Layout::nhwc;
};

const ConvOptions kStemOptions{.padding = {3, 3}, .stride = {2, 2}};
const Case kStem{{128, 3, 224, 224}, {64, 3, 7, 7}, kStemOptions};
const Case kStemNchw{{128, 3, 224, 224}, {64, 3, 7, 7}, kStemOptions, DataType::bf16, Layout::nchw};

Graph fprop(const Case& c) {
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", c.x, c.type, c.layout), w = g.input("w", c.w, c.type, c.layout);
  g.output(g.conv_fprop(x, w, c.options), {.layout = c.layout});
  return g.finish();
}

Graph wgrad(const Case& c) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", test::conv_output_dims(c.x, c.w, c.options), c.type, c.layout);
  const Tensor x = g.input("x", c.x, c.type, c.layout);
  g.output(g.conv_wgrad(dy, x, c.w, c.options), {.type = DataType::f32, .layout = c.layout});
  return g.finish();
}

// With an op before the input, a bias, a residual, and a second result in fp32.
Graph fused(const Case& c) {
  GraphBuilder g("fused");
  const Tensor x = g.input("x", c.x, c.type, c.layout), w = g.input("w", c.w, c.type, c.layout);
  Dims channels = Dims::filled(c.x.rank(), 1), inputs = channels;
  inputs[1] = c.x[1], channels[1] = c.w[0];
  const Tensor scaled = g.mul(x, g.input("scale", inputs, c.type), {.type = c.type});
  const Tensor y = g.add(g.conv_fprop(scaled, w, c.options), g.input("bias", channels, c.type));
  g.output(y, {.name = "pre", .type = DataType::f32, .layout = c.layout});
  const Tensor sum = g.add(y, g.input("residual", y.dims, c.type, c.layout));
  g.output(g.relu(sum), {.type = c.type, .layout = c.layout});
  return g.finish();
}

std::string rule(const Graph& graph, const char* device = "H200") {
  const Support support = test::supports(wgmma_narrow_engine(), fusion_of(graph), DeviceInfo::named(device));
  return support ? "" : support.refusal->rule;
}

TEST(WgmmaNarrow, TakesFirstLayersOnHopperOnly) {
  EXPECT_EQ(rule(fprop(kStem)), "");
  EXPECT_EQ(rule(fprop(kStemNchw), "H100"), "");
  EXPECT_EQ(rule(fused(kStem)), "");
  EXPECT_EQ(rule(fprop(kStem), "A100"), "sm-90");
  EXPECT_EQ(rule(fprop({{2, 8, 30, 31}, {24, 8, 5, 3}, {.dilation = {2, 1}}})), "");
  EXPECT_EQ(rule(fprop({{2, 1, 300}, {24, 1, 9}, {.stride = {2}}})), "");
}

// A few images in whole columns of strips would leave most of the device idle.
TEST(WgmmaNarrow, CutsFewImagesIntoShortStrips) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const auto rows = [&](int64_t images) {
    const Graph graph = fprop({{images, 3, 224, 224}, {64, 3, 7, 7}, kStemOptions});
    const Fusion fusion = fusion_of(graph);
    return test::candidates(wgmma_narrow_engine(), fusion, device).front().config.knob("rows", 0);
  };
  EXPECT_LE(rows(1), 2);
  EXPECT_LE(rows(8), 14);
  EXPECT_GE(rows(128), 56);
}

TEST(WgmmaNarrow, TakesWeightGradientsOfWholeUnits) {
  EXPECT_EQ(rule(wgrad(kStem)), "");
  EXPECT_EQ(rule(wgrad(kStemNchw)), "");
  EXPECT_EQ(rule(wgrad({{2, 3, 30, 30}, {64, 3, 3, 3}})), "whole-units");
  EXPECT_EQ(rule(wgrad({{2, 3, 30, 34}, {64, 3, 15, 11}, {.padding = {7, 3}}})), "whole-units");
  EXPECT_EQ(rule(wgrad({{2, 3, 38, 42}, {64, 3, 15, 11}})), "window-sums");
  EXPECT_EQ(rule(wgrad({{2, 3, 34, 34}, {63, 3, 3, 3}})), "16-byte-lines");
}

TEST(WgmmaNarrow, RefusesWhatItsSlotsDoNotHold) {
  EXPECT_EQ(rule(fprop({{2, 5, 30, 30}, {64, 5, 3, 3}, {.stride = {2, 2}}})), "few-channels");
  EXPECT_EQ(rule(fprop({{2, 9, 30, 30}, {64, 9, 3, 3}})), "few-channels");
  EXPECT_EQ(rule(fprop({{2, 3, 30, 30}, {64, 3, 3, 3}, {.stride = {1, 4}}})), "column-stride");
  EXPECT_EQ(rule(fprop({{2, 3, 30, 30}, {64, 3, 3, 3}, {.dilation = {1, 2}}})), "column-dilation");
  EXPECT_EQ(rule(fprop({{2, 6, 30, 30}, {64, 3, 3, 3}})), "one-group");
  EXPECT_EQ(rule(fprop({{2, 3, 9, 30, 30}, {64, 3, 3, 3, 3}})), "spatial-axes");
  EXPECT_EQ(rule(fprop({{2, 3, 30, 30}, {64, 3, 3, 3}, {}, DataType::f32})), "16-bit-operands");
  EXPECT_EQ(rule(fprop({{2, 3, 30, 30}, {512, 3, 7, 7}})), "resident-filters");
  EXPECT_EQ(rule(fprop({{2, 3, 900, 30}, {64, 3, 7, 7}, {.dilation = {99, 1}}})), "resident-window");
}

std::vector<Graph> graphs() {
  std::vector<Graph> all;
  for (const Case& c : {kStem, kStemNchw, Case{{2, 8, 30, 31}, {24, 8, 5, 3}, {.dilation = {2, 1}}},
                        Case{{1, 4, 40, 700}, {200, 4, 3, 4}, {.stride = {3, 2}}},
                        Case{{2, 1, 300}, {24, 1, 9}, {.stride = {2}}}})
    for (const bool with_ops : {false, true}) all.push_back(with_ops ? fused(c) : fprop(c));
  for (const Case& c :
       {kStem, kStemNchw, Case{{2, 8, 31, 32}, {24, 8, 5, 3}, {.padding = {0, 1}, .dilation = {2, 1}}},
        Case{{1, 4, 40, 690}, {200, 4, 3, 4}, {.stride = {3, 2}}},
        Case{{2, 1, 309}, {24, 1, 7}, {.stride = {2}}}})
    all.push_back(wgrad(c));
  return all;
}

// Strips are numbered, and copies placed, in 32 bits: images of few pixels may be more than that.
TEST(WgmmaNarrow, RefusesMorePixelsThanItCanNumber) {
  constexpr int64_t kImages = int64_t{1} << 31;
  EXPECT_EQ(rule(fprop({{kImages, 1, 1, 3}, {8, 1, 1, 3}})), "32-bit-coordinates");
  EXPECT_EQ(rule(fprop({{kImages / 128, 1, 1, 3}, {64, 1, 1, 3}})), "");
  EXPECT_EQ(rule(fprop({{kImages / 32, 1, 1, 3}, {64, 1, 1, 3}})), "32-bit-coordinates") << "planes";
}

TEST(WgmmaNarrow, CandidatesAreSettingsThatFitTheDevice) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const Graph& graph : graphs()) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = test::knobs(wgmma_narrow_engine(), fusion, device);
    const auto candidates = test::candidates(wgmma_narrow_engine(), fusion, device);
    ASSERT_FALSE(candidates.empty());
    for (const EngineCandidate& candidate : candidates)
      for (const auto& [name, value] : candidate.config.knobs) {
        const auto knob = std::ranges::find(knobs, name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name;
        EXPECT_THAT(knob->values, testing::Contains(value)) << to_string(candidate.config);
      }
    for (const int64_t tile : knobs.at(0).values)
      for (const int64_t rows : knobs.at(1).values) {
        EngineConfig config{"wgmma_narrow", 1, {}};
        config.set("tile_n", tile);
        config.set("rows", rows);
        const Lowered lowered = test::lower(wgmma_narrow_engine(), fusion, config, device);
        const Launch& launch = std::get<Launch>(lowered.steps.at(0));
        EXPECT_LE(launch.shared_bytes, device.shared_per_block) << to_string(config);
        EXPECT_LE(launch.grid[0], static_cast<uint32_t>(device.sm_count));
      }
  }
}

TEST(WgmmaNarrow, StoresRowsOfTheResultByTheCopyEngine) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const auto map = [&](const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    const EngineConfig config = test::candidates(wgmma_narrow_engine(), fusion, device).front().config;
    const Lowered lowered = test::lower(wgmma_narrow_engine(), fusion, config, device);
    return std::get<Launch>(lowered.steps.at(0)).arguments.maps().at(0);
  };
  const TensorMap rows = map(fprop(kStem));
  EXPECT_EQ(rows.dims, (Dims{64, 112, 128 * 112}));
  EXPECT_EQ(rows.stride_bytes, (Dims{128, 112 * 128}));
  EXPECT_EQ(rows.box, (Dims{64, 112, 1}));
  const TensorMap planes = map(fprop(kStemNchw));
  EXPECT_EQ(planes.dims, (Dims{112, 128 * 64, 112}));
  EXPECT_EQ(planes.stride_bytes, (Dims{112 * 112 * 2, 112 * 2}));
}

TEST(WgmmaNarrow, IsChosenForFirstLayers) {
  for (const Case& c : {kStem, kStemNchw, Case{{32, 3, 112, 112}, {64, 3, 5, 5}, {.padding = {2, 2}}},
                        Case{{32, 3, 224, 224}, {32, 3, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}}}) {
    for (const Graph& graph : {fprop(c), wgrad(c)}) {
      const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
      EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_narrow") << graph.name << to_string(c.x);
    }
  }
}

TEST(WgmmaNarrow, KernelsCompile) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> cases;
  for (const Graph& graph : graphs())
    test::add_kernels(wgmma_narrow_engine(), graph.name + " " + to_string(graph.tensors[0].dims),
                      fusion_of(graph), DeviceInfo::named("H200"), cases);
  test::expect_all_compiled(cases);
}

}  // namespace
}  // namespace fusor
