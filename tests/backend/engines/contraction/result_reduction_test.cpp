// Owns the tests of reductions that a contraction's kernel begins: what they leave, what is refused, and how
// many partial results there are.
#include "backend/engines/contraction/result_reduction.h"
#include "tests/backend/engines/ask.h"

#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

using test::fusion_of;

// A matmul whose result is stored, and reduced over every list of axes.
Fusion reduced_matmul(const Dims& a, const Dims& b, const std::vector<Dims>& over) {
  GraphBuilder g("reduced");
  const Tensor c =
      g.output(g.matmul(g.input("a", a, DataType::bf16), g.input("b", b, DataType::bf16), {.name = "mm"}),
               {.type = DataType::bf16});
  for (size_t i = 0; i < over.size(); ++i)
    g.output(g.reduce(c, ReductionMode::add, over[i], {.name = "sum" + std::to_string(i)}),
             {.type = DataType::f32});
  return fusion_of(g.finish());
}

ResultReduction reduction_of(const Fusion& fusion) {
  const Contraction view = contraction_of(fusion).value();
  EXPECT_FALSE(refuse_reductions(fusion, view).has_value());
  return result_reduction(fusion, view).value();
}

void expect_left(const ResultReduction& reduction, bool m, bool n, bool entries, const Dims& axes,
                 int64_t results) {
  EXPECT_EQ(reduction.leaves_m, m);
  EXPECT_EQ(reduction.leaves_n, n);
  EXPECT_EQ(reduction.leaves_entries, entries);
  EXPECT_EQ(reduction.axes, axes);
  EXPECT_EQ(reduction.results, results);
}

TEST(ResultReduction, LeavesColumnsRowsOrOneResult) {
  expect_left(reduction_of(reduced_matmul({96, 64}, {64, 40}, {{0}})), false, true, false, {1}, 40);
  expect_left(reduction_of(reduced_matmul({96, 64}, {64, 40}, {{1}})), true, false, false, {0}, 96);
  expect_left(reduction_of(reduced_matmul({96, 64}, {64, 40}, {{0, 1}})), false, false, false, {}, 1);
}

TEST(ResultReduction, LeavesTheBatchOrNot) {
  const Dims a{2, 3, 96, 64}, b{2, 3, 64, 40};
  expect_left(reduction_of(reduced_matmul(a, b, {{0, 1, 2}})), false, true, false, {3}, 40);
  expect_left(reduction_of(reduced_matmul(a, b, {{2}})), false, true, true, {0, 1, 3}, 240);
  expect_left(reduction_of(reduced_matmul(a, b, {{0, 1, 3}})), true, false, false, {2}, 96);
  expect_left(reduction_of(reduced_matmul(a, b, {{0, 1, 2, 3}})), false, false, false, {}, 1);
}

TEST(ResultReduction, AxesOfExtentOneAreEither) {
  expect_left(reduction_of(reduced_matmul({1, 64}, {64, 40}, {{0}})), false, true, false, {1}, 40);
  expect_left(reduction_of(reduced_matmul({96, 64}, {64, 1}, {{0}})), false, false, false, {}, 1);
}

TEST(ResultReduction, ChannelsOfAConvolutionHoldItsGroups) {
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {2, 128, 9, 7}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {256, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor y = g.output(g.conv_fprop(x, w), {.type = DataType::f16, .layout = Layout::nhwc});
  g.output(g.reduce(y, ReductionMode::add, {0, 2, 3}), {.type = DataType::f32});
  const Fusion fusion = fusion_of(g.finish());
  const ResultReduction reduction = reduction_of(fusion);
  expect_left(reduction, false, true, true, {1}, 256);
  const Contraction view = contraction_of(fusion).value();
  EXPECT_EQ((PartialResults{reduction, view, 5}.parts()), 5);
}

std::string rule(const Fusion& fusion) {
  const auto refusal = refuse_reductions(fusion, contraction_of(fusion).value());
  return refusal ? refusal->rule + " " + refusal->node : "";
}

TEST(ResultReduction, RefusesWhatTilesDoNotLeave) {
  EXPECT_EQ(rule(reduced_matmul({3, 96, 64}, {3, 64, 40}, {{0}})), "reduction-axes sum0");
  EXPECT_EQ(rule(reduced_matmul({3, 96, 64}, {3, 64, 40}, {{1, 2}})), "reduction-axes sum0");
  EXPECT_EQ(rule(reduced_matmul({2, 3, 96, 64}, {2, 3, 64, 40}, {{1, 2}})), "reduction-axes sum0");
  EXPECT_EQ(rule(reduced_matmul({96, 64}, {64, 40}, {{0}, {1}})), "one-reduction-mask sum1");
  EXPECT_EQ(rule(reduced_matmul({96, 64}, {64, 40}, {})), "");
}

TEST(ResultReduction, PartsAreOfEveryEntryThatIsReduced) {
  const Fusion summed = reduced_matmul({3, 96, 64}, {3, 64, 40}, {{0, 1}});
  const Contraction view = contraction_of(summed).value();
  const ResultReduction all = reduction_of(summed);
  EXPECT_EQ((PartialResults{all, view, 6}.parts()), 18);
  EXPECT_EQ((PartialResults{all, view, 6}.bytes(summed)), 18 * 40 * 4);
  const Fusion kept = reduced_matmul({3, 96, 64}, {3, 64, 40}, {{1}});
  const ResultReduction each = reduction_of(kept);
  EXPECT_EQ((PartialResults{each, view, 6}.parts()), 6);
  EXPECT_EQ((PartialResults{each, view, 6}.bytes(kept)), 6 * 3 * 40 * 4);
}

// 2500 parts in ten groups, whose totals lie behind them.
TEST(ResultReduction, ManyPartsAreAddedInGroupsFirst) {
  const Fusion few = reduced_matmul({32768, 64}, {64, 40}, {{0}}),
               many = reduced_matmul({40000, 64}, {64, 40}, {{0}});
  const Contraction view = contraction_of(many).value();
  const ResultReduction reduction = reduction_of(many);
  const ResultReduction of_few = reduction_of(few);
  EXPECT_EQ((PartialResults{of_few, view, 2048}.launches()), 1);
  const PartialResults partial{reduction, view, 2500};
  EXPECT_EQ(partial.launches(), 2);
  EXPECT_EQ(partial.bytes(many), (2500 + 10) * 40 * 4);
  const std::vector<Launch> launches = partial.combinations(many, 32, "sm_90a");
  ASSERT_THAT(launches, SizeIs(2));
  EXPECT_THAT(launches[0].grid, ElementsAre(2, 10, 1));
  EXPECT_THAT(launches[1].grid, ElementsAre(2, 1, 1));
}

// --- The wgmma engine ---

// dgelu and the gradient of the bias, like the first linear layer of a transformer backwards.
Graph dgelu_dbias(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g("dgelu");
  const Tensor c =
      g.matmul(g.input("dy", {m, k}, DataType::bf16), g.input("w", {k, n}, DataType::bf16), {.name = "mm"});
  const Tensor dx = g.output(g.gelu_bwd(c, g.input("z", {m, n}, DataType::bf16)), {.type = DataType::bf16});
  g.output(g.reduce(dx, ReductionMode::add, {0}, {.name = "dbias"}), {.type = DataType::f32});
  return g.finish();
}

TEST(WgmmaReduction, BiasGradientIsPartOfItsMatmul) {
  const Graph graph = dgelu_dbias(8192, 6400, 1600);
  const DeviceInfo device = DeviceInfo::named("H200");
  const Plan plan = build(graph, device, {.compile = false});
  ASSERT_THAT(plan.fusions, SizeIs(1));
  EXPECT_EQ(plan.fusions[0].config.engine, "wgmma");
  const Fusion fusion = fusion_of(graph);
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    SCOPED_TRACE(to_string(candidate.config));
    EXPECT_EQ(candidate.config.knob("split", 1), 1);
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
    ASSERT_THAT(lowered.steps, SizeIs(2));
    ASSERT_THAT(lowered.scratch, SizeIs(1));
    // Strips of 16 rows, or tiles along m where those are the columns.
    const bool swap = candidate.config.knob("swap", 0) != 0;
    const int64_t columns = candidate.config.knob("tile_n", 0);
    EXPECT_EQ(lowered.scratch[0], (swap ? (8192 + columns - 1) / columns : 512) * 6400 * 4);
    EXPECT_EQ(candidate.work.scratch_bytes, lowered.scratch[0]);
    EXPECT_EQ(std::get<Launch>(lowered.steps[1]).grid[0], 200u);
  }
}

// Carried out as a matmul: both launches speak of its axes.
TEST(WgmmaReduction, StatisticsOfAPointwiseConvolutionAreThoseOfAMatmul) {
  GraphBuilder g("pointwise");
  const Tensor c = g.conv_fprop(g.input("x", {4, 64, 14, 16}, DataType::f16, Layout::nhwc),
                                g.input("w", {128, 64, 1, 1}, DataType::f16));
  const Tensor y = g.output(c, {.type = DataType::f16, .layout = Layout::nhwc});
  g.output(g.reduce(y, ReductionMode::add, {0, 2, 3}), {.type = DataType::f32});
  const Fusion fusion = fusion_of(g.finish());
  const DeviceInfo device = DeviceInfo::named("H200");
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
    ASSERT_THAT(lowered.steps, SizeIs(2));
    const Launch& combination = std::get<Launch>(lowered.steps[1]);
    EXPECT_EQ(combination.source->sites[0].expr.domain, (Dims{128, 4 * 14 * 16}));
    EXPECT_EQ(combination.source->sites[0].expr.stores[0].access.strides, (Strides{1, 0}));
  }
}

TEST(WgmmaReduction, ReductionOfADgradOfAStrideIsCut) {
  GraphBuilder g("dgrad");
  const Tensor dx = g.conv_dgrad(g.input("dy", {8, 64, 14, 14}, DataType::f16, Layout::nhwc),
                                 g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc), {8, 64, 28, 28},
                                 {.padding = {1, 1}, .stride = {2, 2}});
  const Tensor y = g.output(dx, {.type = DataType::f16, .layout = Layout::nhwc});
  g.output(g.reduce(y, ReductionMode::add, {0, 2, 3}, {.name = "sum"}), {.type = DataType::f32});
  const Graph graph = g.finish();
  const DeviceInfo device = DeviceInfo::named("H200");
  const Support support = test::supports(wgmma_engine(), fusion_of(graph), device);
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "no-epilogue-reduction");
  EXPECT_EQ(support.refusal->node, "sum");
  EXPECT_THAT(build(graph, device, {.compile = false}).fusions, SizeIs(2));
}

// Every way in which something is left, in both exchanges, with and without a result that TMA
// stores.
TEST(WgmmaReduction, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> cases;
  const auto add = [&](const char* name, const Fusion& fusion, int64_t tile_n, int64_t swap) {
    EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
    config.set("tile_m", 128);
    config.set("tile_n", tile_n);
    config.set("swap", swap);
    for (const Step& step : test::lower(wgmma_engine(), fusion, config, device).steps)
      cases.push_back({std::string(name) + " " + to_string(config), std::get<Launch>(step).source});
  };
  add("groups of parts", reduced_matmul({40000, 64}, {64, 40}, {{0}}), 96, 0);
  const Fusion dgelu = fusion_of(dgelu_dbias(512, 640, 256));
  for (const int64_t swap : {0, 1})
    for (const int64_t tile_n : {256, 96, 16}) {
      add("dgelu", dgelu, tile_n, swap);
      add("all", reduced_matmul({512, 256}, {256, 640}, {{0, 1}}), tile_n, swap);
    }
  GraphBuilder g("alone");
  const Tensor c = g.matmul(g.input("a", {512, 256}, DataType::f16), g.input("b", {256, 640}, DataType::f16));
  g.output(g.reduce(c, ReductionMode::norm2, {1}), {.name = "norms", .type = DataType::f32});
  g.output(g.reduce(c, ReductionMode::amax, {1}), {.name = "largest", .type = DataType::f16});
  const Fusion alone = fusion_of(g.finish());
  for (const int64_t swap : {0, 1}) add("alone", alone, 128, swap);
  test::expect_all_compiled(cases);
}

TEST(WgmmaReduction, TextOfTheCombinationIsTheGoldenText) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(dgelu_dbias(8192, 6400, 1600));
  const EngineConfig config = test::candidates(wgmma_engine(), fusion, device).front().config;
  EXPECT_EQ(test::generated_text(test::lower(wgmma_engine(), fusion, config, device), 1),
            test::golden_text("elementwise/reduce_parts"));
}

}  // namespace
}  // namespace fusor
