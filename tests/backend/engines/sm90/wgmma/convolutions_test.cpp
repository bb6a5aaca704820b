// Owns the tests of the wgmma engine for convolutions: windows, classes of a stride, and wgrad.
#include <gtest/gtest.h>

#include "backend/build.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"
#include "tests/support/conv_dims.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

Graph fprop(const Dims& x, const Dims& w, Layout layout, const ConvOptions& options = {}) {
  GraphBuilder g("fprop");
  const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16, layout),
                                g.input("w", w, DataType::f16, Layout::nhwc), options);
  g.output(y, {.layout = layout});
  return g.finish();
}

TEST(Wgmma, TakesConvolutionsWithAdjacentChannels) {
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, Layout::nhwc)), "");
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, Layout::nchw)), "adjacent-channels");
  EXPECT_EQ(rule(fprop({2, 3, 9, 9}, {64, 3, 3, 3}, Layout::nhwc)), "16-byte-lines");
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 32, 3, 3}, Layout::nhwc)), "channel-blocks");
  EXPECT_EQ(rule(fprop({2, 64, 400, 400}, {64, 64, 3, 3}, Layout::nhwc, {.padding = {150, 150}})),
            "window-limits");
}

Graph wgrad(const Dims& x, const Dims& w, const ConvOptions& options) {
  GraphBuilder g("wgrad");
  const Tensor dw =
      g.conv_wgrad(g.input("dy", test::conv_output_dims(x, w, options), DataType::f16, Layout::nhwc),
                   g.input("x", x, DataType::f16, Layout::nhwc), w, options);
  g.output(dw, {.layout = Layout::nhwc});
  return g.finish();
}

// Columns of a tap are filled up to whole lines; those that are no channels are stored nowhere.
TEST(Wgmma, FillsUpTheChannelsOfWgrad) {
  const ConvOptions options{.padding = {1, 1}};
  EXPECT_EQ(rule(wgrad({2, 100, 9, 9}, {64, 100, 3, 3}, options)), "16-byte-lines");
  EXPECT_EQ(rule(wgrad({2, 96, 9, 9}, {64, 48, 3, 3}, options)), "") << "behind a group's: the next one's";
  EXPECT_EQ(rule(wgrad({2, 96, 9, 9}, {64, 48, 1, 1}, {})), "channel-blocks");
  const DeviceInfo device = DeviceInfo::named("H200");
  const Graph graph = wgrad({8, 96, 28, 28}, {128, 96, 3, 3}, options);
  const Fusion fusion = fusion_of(graph);
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
    for (const Step& step : lowered.steps)
      EXPECT_EQ(config_value(*std::get<Launch>(step).source, "channel_block"), -1)
          << to_string(candidate.config);
    // Nine taps of two blocks of 64 channels.
    EXPECT_GE(candidate.work.tensor_flops, 2.0 * 128 * 9 * 128 * 8 * 28 * 28);
  }
}

// A box that begins within 16 bytes is no instruction of the GPU.
TEST(Wgmma, RefusesGroupsOfAWgradThatBeginWithin16Bytes) {
  EXPECT_EQ(rule(wgrad({4, 128, 56, 56}, {8, 64, 3, 7}, {.padding = {1, 2}})), "16-byte-groups");
  EXPECT_EQ(rule(wgrad({4, 24, 56, 56}, {16, 12, 3, 7}, {.padding = {1, 2}})), "16-byte-inputs");
  EXPECT_EQ(rule(wgrad({4, 128, 56, 56}, {16, 64, 3, 7}, {.padding = {1, 2}})), "");
}

// The map of a wgrad's result that is not split: channels, output channels, taps.
TEST(Wgmma, WgradLeavesInBoxesOfOneTap) {
  const auto map_of = [](const Graph& graph, int64_t swap) {
    const DeviceInfo device = DeviceInfo::named("H200");
    EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
    config.set("tile_m", 128);
    config.set("tile_n", 64);
    config.set("swap", swap);
    const Lowered lowered = test::lower(wgmma_engine(), fusion_of(graph), config, device);
    EXPECT_EQ(config_value(source_of(lowered), "store"), 1);
    return launch_of(lowered).arguments.maps().back();
  };
  for (const int64_t swap : {0, 1}) {
    const TensorMap whole = map_of(wgrad({1, 128, 14, 14}, {72, 128, 3, 3}, {.padding = {1, 1}}), swap);
    EXPECT_EQ(whole.dims, (Dims{128, 72, 9}));
    EXPECT_EQ(whole.stride_bytes, (Dims{9 * 128 * 2, 128 * 2}));
    const TensorMap filled = map_of(wgrad({1, 80, 14, 14}, {72, 80, 3, 1}, {.padding = {1, 0}}), swap);
    EXPECT_EQ(filled.dims, (Dims{80, 72, 3}));
  }
}

Graph dgrad(const Dims& x, const Dims& w, const ConvOptions& options) {
  const Dims y = test::conv_output_dims(x, w, options);
  GraphBuilder g("dgrad");
  const Tensor dx = g.conv_dgrad(g.input("dy", y, DataType::f16, Layout::nhwc),
                                 g.input("w", w, DataType::f16, Layout::nhwc), x, options);
  g.output(dx, {.layout = Layout::nhwc});
  return g.finish();
}

TEST(Wgmma, TakesDgradOfAStrideClassByClass) {
  const Dims w{64, 64, 3, 3};
  EXPECT_EQ(rule(dgrad({2, 64, 16, 16}, w, {.padding = {1, 1}, .stride = {2, 2}})), "");
  EXPECT_EQ(rule(dgrad({2, 64, 16, 16}, w, {.padding = {1, 1}, .stride = {4, 4}})), "");
  EXPECT_EQ(rule(dgrad({2, 64, 32, 32}, w, {.padding = {1, 1}, .stride = {5, 4}})), "dgrad-classes");
  const DeviceInfo device = DeviceInfo::named("H200");
  const Graph graph = dgrad({64, 256, 56, 56}, {256, 256, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}});
  const Fusion fusion = fusion_of(graph);
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    SCOPED_TRACE(to_string(candidate.config));
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
    ASSERT_EQ(lowered.steps.size(), 1u);
    const Launch& launch = std::get<Launch>(lowered.steps[0]);
    EXPECT_EQ(config_value(*launch.source, "classes"), 4);
    EXPECT_EQ(launch.arguments.maps().size(), 2u);
    // All pixels of dx are rows of one class; nine taps of 2x2 meet dy.
    const double flops = 2.0 * 64 * 28 * 28 * 256 * 256 * 9;
    EXPECT_GE(candidate.work.tensor_flops, flops);
    const bool whole_tiles = 256 % candidate.config.knob("tile_n", 1) == 0;
    EXPECT_LE(candidate.work.tensor_flops, (whole_tiles ? 1.1 : 1.5) * flops);
  }
  EXPECT_EQ(build(graph, device, {.compile = false}).fusions.at(0).config.engine, "wgmma");
}

// Two columns of tiles hold 416 and 464 channels without a rest; lines of 784 bytes, which straddle those of
// L2, share filters.
TEST(Wgmma, ColumnsOfStraddlingChannelsAreHalves) {
  struct Expected {
    int64_t channels, tile_n, cluster;
  };
  for (const auto& [channels, tile_n, cluster] :
       {Expected{392, 208, 2}, Expected{416, 208, 2}, Expected{464, 240, 1}, Expected{512, 192, 1}}) {
    GraphBuilder g("straddling");
    const Tensor x = g.input("x", {32, channels, 28, 28}, DataType::bf16, Layout::nhwc);
    const Tensor w = g.input("w", {channels, channels, 3, 3}, DataType::bf16, Layout::nhwc);
    g.output(g.conv_fprop(x, w, {.padding = {1, 1}}), {.type = DataType::bf16, .layout = Layout::nhwc});
    const Plan plan = build(g.finish(), DeviceInfo::named("H200"), {.compile = false});
    EXPECT_EQ(plan.fusions.at(0).config.knob("tile_n", 0), tile_n) << channels;
    EXPECT_EQ(plan.fusions.at(0).config.knob("cluster", 0), cluster) << channels;
  }
}

TEST(Wgmma, LowersEverySettingOfItsKnobsForClasses) {
  expect_every_setting_lowers(dgrad({2, 72, 13, 11}, {40, 72, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}));
  expect_every_setting_lowers(dgrad({2, 64, 16, 16}, {64, 64, 1, 1}, {.stride = {4, 4}}));
  expect_every_setting_lowers(
      dgrad({2, 64, 6, 8, 8}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 4}}));
  // One class, and no tap that meets anything.
  expect_every_setting_lowers(dgrad({2, 64, 1, 1}, {64, 64, 1, 1}, {.padding = {1, 1}, .stride = {2, 2}}));
}

TEST(Wgmma, SplitsTheStepsOfAWgrad) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {64, 64, 56, 56}, DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", {64, 64, 56, 56}, DataType::bf16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}}), {.layout = Layout::nhwc});
  const Plan plan = build(g.finish(), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
  EXPECT_GT(plan.fusions.at(0).config.knob("split", 1), 16);
  EXPECT_GT(plan.workspace_bytes, 0);
}

TEST(Wgmma, KernelsOfClassesCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const ConvOptions options{.padding = {1, 1}, .stride = {2, 2}};
  const Fusion plain = fusion_of(dgrad({16, 256, 28, 28}, {256, 256, 3, 3}, options));
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const auto add_first = [&](const char* name, const Fusion& fusion) {
    const EngineConfig config = configs(fusion, device).front();
    test::add_kernels(name, test::lower(wgmma_engine(), fusion, config, device), kernels);
  };
  test::add_kernels(wgmma_engine(), "plain", plain, device, kernels);
  const Fusion deep = fusion_of(dgrad({2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.stride = {2, 2, 2}}));
  add_first("deep", deep);
  // A result that threads store element by element, beside a residual.
  GraphBuilder g("residual");
  const Tensor dx =
      g.conv_dgrad(g.input("dy", {2, 64, 8, 8}, DataType::f16, Layout::nhwc),
                   g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc), {2, 64, 15, 15}, options);
  g.output(g.add(dx, g.input("residual", {2, 64, 15, 15}, DataType::f16)), {.layout = Layout::nchw});
  const Fusion scattered = fusion_of(g.finish());
  add_first("scattered", scattered);
  // Tiles of few columns, whose filters come in boxes of more.
  for (const int64_t channels : {16, 24, 32}) {
    const Fusion few = fusion_of(dgrad({16, channels, 56, 56}, {64, channels, 3, 3}, options));
    const EngineConfig config = configs(few, device).front();
    EXPECT_EQ(config.knob("swap", -1), 0) << channels;
    EXPECT_EQ(config.knob("tile_n", 0), channels == 16 ? 16 : 32);
    add_first("few", few);
  }
  test::expect_all_compiled(kernels);
}

// Lines of a resident window hold all channels, and are those that TMA swizzles. Few filters are columns.
TEST(Wgmma, WindowsOfFewChannelsComeInShortLines) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const auto window_of = [&](int64_t channels, int64_t filters, int64_t knob) {
    const Fusion fusion =
        fusion_of(fprop({8, channels, 56, 56}, {filters, channels, 3, 3}, Layout::nhwc, {.padding = {1, 1}}));
    EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
    config.set("tile_m", 128);
    config.set("tile_n", knob == 2 ? 16 : 128);
    config.set("window", knob);
    const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
    EXPECT_EQ(config_value(source_of(lowered), "swapped"), knob == 1);
    for (const TensorMap& map : launch_of(lowered).arguments.maps())
      if (map.window) return map.box;
    return Dims{};
  };
  const int64_t positions = 128 + 2 * 57 + 2;
  for (const int64_t knob : {1, 2}) {
    EXPECT_EQ(window_of(8, 16, knob), (Dims{16, positions}));
    EXPECT_EQ(window_of(16, 16, knob), (Dims{16, positions}));
    EXPECT_EQ(window_of(24, 16, knob), (Dims{32, positions}));
    EXPECT_EQ(window_of(48, 16, knob), (Dims{64, positions}));
  }
  const auto chosen = [&](int64_t filters) {
    const Graph graph = fprop({8, 16, 224, 224}, {filters, 16, 3, 3}, Layout::nhwc, {.padding = {1, 1}});
    return build(graph, device, {.compile = false}).fusions.at(0).config;
  };
  EXPECT_EQ(chosen(16).knob("window", 0), 2);
  EXPECT_EQ(chosen(32).knob("window", 0), 2);
  EXPECT_EQ(chosen(64).knob("window", 0), 1) << "fill the rows of a tile";
}

TEST(Wgmma, KernelsOfResidentWindowsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const ConvOptions options{.padding = {1, 1}};
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  const auto add_windows = [&](const Fusion& fusion) {
    for (const EngineConfig& config : configs(fusion, device))
      if (config.knob("window", 0) != 0)
        test::add_kernels(to_string(config), test::lower(wgmma_engine(), fusion, config, device), kernels);
  };
  add_windows(fusion_of(dgrad({256, 64, 56, 56}, {64, 64, 3, 3}, options)));
  GraphBuilder g("bias and relu");
  const Tensor y = g.conv_fprop(g.input("x", {256, 64, 56, 56}, DataType::bf16, Layout::nhwc),
                                g.input("w", {64, 64, 3, 3}, DataType::bf16, Layout::nhwc), options);
  g.output(g.relu(g.add(y, g.input("bias", {1, 64, 1, 1}, DataType::bf16))), {.layout = Layout::nhwc});
  add_windows(fusion_of(g.finish()));
  EXPECT_EQ(kernels.size(), 6u);
  // In layers, with two taps in a line of filters.
  add_windows(fusion_of(dgrad({1, 16, 32, 32, 32}, {16, 16, 3, 3, 3}, {.padding = {1, 1, 1}})));
  GraphBuilder deep("three axes");
  deep.output(deep.conv_fprop(deep.input("x", {1, 32, 64, 64, 64}, DataType::f16, Layout::nhwc),
                              deep.input("w", {32, 32, 3, 3, 3}, DataType::f16, Layout::nhwc),
                              {.padding = {1, 1, 1}}),
              {.layout = Layout::nhwc});
  add_windows(fusion_of(deep.finish()));
  EXPECT_EQ(kernels.size(), 20u) << "five widths, and two heights with positions as rows";
  add_windows(fusion_of(dgrad({8, 24, 56, 56}, {32, 24, 3, 3}, options)));
  EXPECT_EQ(kernels.size(), 27u);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
