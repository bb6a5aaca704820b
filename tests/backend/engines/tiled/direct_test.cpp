// Owns the checks of the direct engine's rules, candidates and steps; its kernels:
// tests/backend/engines/tiled/direct_compile_test.cpp, its index arithmetic:
// tests/backend/engines/contraction/product_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "codegen/text/expr_emitter.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/launch_facts.h"
#include "tests/backend/engines/tiled/cases.h"

namespace fusor::direct_test {
namespace {

using direct_cases::convolution;
using direct_cases::fusion_of;
using direct_cases::h200;
using direct_cases::matmul;
using testing::ElementsAre;

EngineConfig tiled(int64_t tile_m, int64_t tile_n, int64_t split = 1) {
  return {"direct", 1, {{"tile_m", tile_m}, {"tile_n", tile_n}, {"split", split}}};
}

Lowered lowered(const Fusion& fusion, const EngineConfig& config = tiled(64, 64)) {
  return test::lower(direct_engine(), fusion, config, h200());
}

const Launch& launch(const Lowered& lowered, size_t step = 0) {
  return std::get<Launch>(lowered.steps.at(step));
}

int64_t config_value(const KernelSource& source, std::string_view name) {
  const auto found = std::ranges::find(source.config, name, &ConfigValue::name);
  return found == source.config.end() ? -1 : found->number();
}

int64_t config_of(const Fusion& fusion, std::string_view name, const EngineConfig& config = tiled(64, 64)) {
  return config_value(*launch(lowered(fusion, config)).source, name);
}

// conv_fprop of x [2, groups * channels, 14, 14] with `outputs` channels, 3x3 windows.
Fusion forward(int64_t outputs, Layout layout, int64_t groups = 1, int64_t alignment = 16,
               int64_t extent = 14) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, groups * 8, extent, extent}, DataType::f16, layout);
  const Tensor w = g.input("w", {outputs, 8, 3, 3}, DataType::f16, layout);
  const Tensor y = g.conv_fprop(x, w, {.padding = {1, 1}});
  return fusion_of(g.finish({g.output(y, {.name = "y", .type = DataType::f16, .alignment = alignment})}));
}

// --- supports ---

TEST(Direct, RefusesAFusionWithoutAnchor) {
  GraphBuilder g;
  const Fusion fusion = fusion_of(g.finish({g.relu(g.input("x", {4}, DataType::f32))}));
  const Support support = test::supports(direct_engine(), fusion, h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "needs-anchor");
}

TEST(Direct, RefusesTheCpu) {
  DeviceInfo cpu = h200();
  cpu.kind = DeviceKind::cpu;
  const Support support = test::supports(direct_engine(), matmul(DataType::f32), cpu);
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "needs-gpu");
}

TEST(Direct, RefusesAReductionInTheEpilogueAndNamesIt) {
  GraphBuilder g;
  const Tensor y = g.matmul(g.input("a", {8, 4}, DataType::f32), g.input("b", {4, 6}, DataType::f32));
  const Tensor sums = g.reduce(y, ReductionMode::add, {1}, {.name = "row_sums"});
  const Support support = test::supports(direct_engine(), fusion_of(g.finish({y, sums})), h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "no-epilogue-reduction");
  EXPECT_EQ(support.refusal->node, "row_sums");
  EXPECT_EQ(support.refusal->op, 1);
}

TEST(Direct, RefusesAnEpilogueOverALargerDomain) {
  GraphBuilder g;
  const Tensor column = g.matmul(g.input("a", {8, 4}, DataType::f32), g.input("b", {4, 1}, DataType::f32));
  const Tensor y = g.add(column, g.input("c", {8, 6}, DataType::f32), {.name = "spread"});
  const Support support = test::supports(direct_engine(), fusion_of(g.finish({y})), h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "epilogue-over-result");
  EXPECT_EQ(support.refusal->op, 1);
}

TEST(Direct, TakesEveryPassRankAndType) {
  for (const DataType type : {DataType::f16, DataType::f64, DataType::i8, DataType::f8_e4m3}) {
    EXPECT_TRUE(test::supports(direct_engine(), matmul(type), h200()));
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (int spatial = 1; spatial <= 3; ++spatial)
        EXPECT_TRUE(test::supports(direct_engine(), convolution(pass, spatial, type), h200()));
  }
}

// --- lower ---

TEST(Direct, LaunchesABlockPerTile) {
  // 300 rows, 100 of each entry, by 72 columns, in tiles of 64 x 64 and of 32 x 32.
  EXPECT_EQ(launch(lowered(matmul(DataType::f32))).grid[0], 5u * 2);
  EXPECT_EQ(launch(lowered(matmul(DataType::f32), tiled(32, 32))).grid[0], 10u * 3);
  // 2 * 14 * 14 pixels by 40 / 2 channels, twice.
  EXPECT_EQ(launch(lowered(forward(40, Layout::nhwc, 2))).grid[0], 2u * 7 * 1);
}

TEST(Direct, ArgumentsAreWhatTheDeviceStructuresHold) {
  // m, n, k; channels; both channel counts; one window axis; two batch divisors; tiles and their two
  // divisors.
  constexpr size_t kDivisor = 24;
  constexpr size_t kProduct = 24 + kDivisor + 16 + (4 * kDivisor + 16) + kDivisor + 8 + 2 * kDivisor;
  GraphBuilder g;
  const Tensor y = g.matmul(g.input("a", {8, 4}, DataType::f32), g.input("b", {4, 6}, DataType::f32));
  const Lowered steps = lowered(fusion_of(g.finish({y})));
  // A, B and Y: a pointer and the stride of the slower axis each.
  EXPECT_EQ(test::own_arguments(launch(steps)).size(), kProduct + 3 * 16);
  EXPECT_EQ(launch(steps).arguments.patches().size(), 3u);
}

TEST(Direct, SplitSumsPartsInASecondLaunch) {
  const Fusion fusion = matmul(DataType::f32, 1, 64, 64, 1000);
  const Lowered steps = lowered(fusion, tiled(64, 64, 4));
  ASSERT_EQ(steps.steps.size(), 2u);
  EXPECT_EQ(launch(steps, 0).grid[0], 4u);
  EXPECT_EQ(launch(steps, 1).entry, "split_finish");
  EXPECT_THAT(steps.scratch, ElementsAre(4 * 64 * 64 * 4));
  EXPECT_EQ(config_value(*launch(steps, 0).source, "split"), 1);
  EXPECT_EQ(launch(steps, 0).source->sites.size(), 2u);
  EXPECT_EQ(launch(steps, 1).source->sites.size(), 1u);
}

TEST(Direct, FewResultsOfManyPartsAreAddedByManyLanes) {
  const Fusion few = matmul(DataType::f32, 1, 64, 64, 100000),
               many = matmul(DataType::f32, 1, 2048, 2048, 1000);
  const auto lanes_of = [](const Lowered& steps) { return config_value(*launch(steps, 1).source, "lanes"); };
  const Lowered of_few = lowered(few, tiled(64, 64, 128));
  EXPECT_EQ(lanes_of(of_few), 16);
  // 64 x 64 in vectors of 4, a block of 256 threads for 16 of them.
  EXPECT_EQ(launch(of_few, 1).grid[0], 64u * 64 / 4 / 16);
  EXPECT_EQ(lanes_of(lowered(few, tiled(64, 64, 4))), 1) << "a lane has a few parts to add";
  EXPECT_EQ(lanes_of(lowered(many, tiled(64, 64, 128))), 1) << "the device is busy as it is";
}

TEST(Direct, StructureDoesNotDependOnExtentsAndNames) {
  const Lowered one = lowered(matmul(DataType::f16, 3, 100, 72, 56));
  const Lowered other = lowered(matmul(DataType::f16, 5, 444, 80, 128));
  EXPECT_EQ(structure_hash(*launch(one).source), structure_hash(*launch(other).source));
  EXPECT_NE(launch(one).arguments.bytes(), launch(other).arguments.bytes());
}

TEST(Direct, TakesWideIndicesOnlyWhereNumbersNeedThem) {
  EXPECT_EQ(config_of(matmul(DataType::f16, 1, 4096, 4096, 64), "index_bits"), 32);
  EXPECT_EQ(config_of(matmul(DataType::f16, 1, 70000, 40000, 64), "index_bits"), 64);
}

TEST(Direct, FinishRunsAlongTheAxisThatIsAdjacentInMemory) {
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "y_along_n"), 1);
  EXPECT_EQ(config_of(forward(64, Layout::nchw), "y_along_n"), 0);
}

TEST(Direct, LoadsRunAlongTheAxisThatIsAdjacentInMemory) {
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "a_along_k"), 1);
  EXPECT_EQ(config_of(forward(64, Layout::nchw), "a_along_k"), 0);
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "b_along_k"), 1);
  EXPECT_EQ(config_of(matmul(DataType::f16), "a_along_k"), 1);
  EXPECT_EQ(config_of(matmul(DataType::f16), "b_along_k"), 0);
}

TEST(Direct, ChannelsVaryFastestWhereTheyLieClosest) {
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "channels_fastest"), 1);
  EXPECT_EQ(config_of(forward(64, Layout::nchw), "channels_fastest"), 0);
}

TEST(Direct, FinishMovesVectorsWhereEachStartsAligned) {
  EXPECT_EQ(config_of(forward(64, Layout::nhwc), "vector"), 4);
  EXPECT_EQ(config_of(forward(63, Layout::nhwc), "vector"), 1);
  EXPECT_EQ(config_of(forward(64, Layout::nhwc, 1, 2), "vector"), 1)
      << "the pointer is promised 2 bytes only";
  EXPECT_EQ(config_of(forward(60, Layout::nhwc, 6), "vector"), 1) << "groups of 10 channels";
  EXPECT_EQ(config_of(forward(64, Layout::nchw), "vector"), 1) << "rows of 14 pixels";
  EXPECT_EQ(config_of(forward(64, Layout::nchw, 1, 16, 16), "vector"), 4);
  EXPECT_EQ(config_of(matmul(DataType::f16, 3, 100, 72, 50), "vector"), 4);
  EXPECT_EQ(config_of(matmul(DataType::f16, 3, 100, 70, 50), "vector"), 1) << "rows start on multiples of 70";
}

TEST(Direct, GuardsTheAlignmentOfVectors) {
  const Fusion fusion = forward(64, Layout::nhwc);
  const Lowered steps = lowered(fusion);
  for (const Guard& guard : steps.guards) EXPECT_EQ(guard.alignment, 8) << fusion.name_of(guard.operand);
  EXPECT_EQ(steps.guards.size(), 3u);
}

TEST(Direct, PixelsAndTapsAreLoadedOneByOne) {
  for (const Guard& guard : lowered(forward(64, Layout::nchw)).guards)
    EXPECT_LE(guard.alignment, 8) << "channels are no neighbours: only the result may move in vectors";
  const KernelSource source = *launch(lowered(forward(64, Layout::nchw))).source;
  const auto width = std::ranges::find(source.config, "a_width", &ConfigValue::name);
  ASSERT_NE(width, source.config.end());
  EXPECT_EQ(width->number(), 1);
}

// --- candidates ---

TEST(Direct, CandidatesStandInTheKnobs) {
  const Fusion fusions[] = {matmul(DataType::f32), matmul(DataType::f64, 1, 20, 500, 100000),
                            convolution(ConvPass::wgrad, 2, DataType::f16),
                            matmul(DataType::f16, 1, 1, 1, 1)};
  for (const Fusion& fusion : fusions) {
    const std::vector<Knob> knobs = test::knobs(direct_engine(), fusion, h200());
    const auto candidates = test::candidates(direct_engine(), fusion, h200());
    EXPECT_FALSE(candidates.empty());
    for (const EngineCandidate& candidate : candidates)
      for (const Knob& knob : knobs)
        EXPECT_THAT(knob.values, testing::Contains(candidate.config.knob(knob.name, -1))) << knob.name;
  }
}

TEST(Direct, OffersASplitWhereTilesAreFewAndStepsAreMany) {
  const auto has_split = [](const Fusion& fusion) {
    return std::ranges::any_of(test::candidates(direct_engine(), fusion, h200()),
                               [](const EngineCandidate& one) { return one.config.knob("split", 1) > 1; });
  };
  EXPECT_TRUE(has_split(matmul(DataType::f32, 1, 64, 64, 100000)));
  EXPECT_FALSE(has_split(matmul(DataType::f32, 1, 64, 64, 100)));
  EXPECT_FALSE(has_split(matmul(DataType::f32, 1, 8192, 8192, 100000)));
}

TEST(Direct, WorkCountsTheMultiplyAddsOfWholeTiles) {
  for (const EngineCandidate& candidate :
       test::candidates(direct_engine(), matmul(DataType::f32, 1, 128, 64, 64), h200())) {
    // Beside them: one instruction for the relu of each result and of each element of a in each tile.
    EXPECT_GE(candidate.work.fp32_flops, 2.0 * 128 * 64 * 64);
    EXPECT_LE(candidate.work.fp32_flops, 2.0 * 128 * 64 * 64 + 2.0 * (128 * 64 * 2 + 128 * 64));
    EXPECT_EQ(candidate.work.dram_bytes, 4.0 * (128 * 64 + 64 * 64 + 128 * 64));
  }
}

TEST(Direct, WorkCountsFp64WhereSumsAreFp64) {
  for (const EngineCandidate& candidate : test::candidates(direct_engine(), matmul(DataType::f64), h200()))
    EXPECT_GT(candidate.work.fp64_flops, 0);
}

TEST(DirectText, IsTheGoldenText) {
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {2, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 64, 1, 1}, DataType::f16);
  const Fusion fusion = fusion_of(g.finish({g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b))}));
  const EngineConfig config = test::candidates(direct_engine(), fusion, h200()).front().config;
  EXPECT_EQ(test::generated_text(test::lower(direct_engine(), fusion, config, h200()), 0),
            test::golden_text("tiled/direct"));
}

TEST(DirectText, OfASplitsSecondKernelIsTheGoldenText) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Tensor x = g.input("x", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Fusion fusion = fusion_of(g.finish({g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}})}));
  const auto found = test::candidates(direct_engine(), fusion, h200());
  const auto split = std::ranges::find_if(found, [](const auto& c) { return c.config.knob("split", 1) > 1; });
  ASSERT_NE(split, found.end());
  EXPECT_EQ(test::generated_text(test::lower(direct_engine(), fusion, split->config, h200()), 1),
            test::golden_text("tiled/split_finish"));
}

}  // namespace
}  // namespace fusor::direct_test
