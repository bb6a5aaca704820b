// Owns the tests of the elementwise engine's choices and steps; the kernels' text is in
// tests/backend/engines/elementwise/compile_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/elementwise/schedule.h"
#include "backend/engines/list.h"
#include "backend/engines/picks.h"
#include "codegen/text/expr_emitter.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/elementwise/cases.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/rows/cases.h"

namespace fusor {
namespace {

using namespace elementwise_cases;
using Variant = ElementwiseSchedule::Variant;

ElementwiseSchedule scheduled(const Fusion& fusion, const ElementwiseKnobs& knobs = {}) {
  const DeviceInfo& device = h200();
  return schedule_elementwise({fusion, device}, 0, knobs);
}

const Access& first_load(const ElementwiseSchedule& schedule) { return schedule.y.expr.nodes[0].access; }

TEST(ElementwiseSchedule, PackedTensorsAreOneAxisOfWholeVectors) {
  const ElementwiseSchedule s = scheduled(chain(DataType::bf16, {64, 32, 128}));
  EXPECT_EQ(s.variant, Variant::plain);
  EXPECT_EQ(s.domain(), (Dims{64 * 32 * 128}));
  EXPECT_EQ(s.vector, 8);
  EXPECT_TRUE(first_load(s).whole_vectors);
  EXPECT_EQ(scheduled(chain(DataType::f32, {64, 128})).vector, 4);
  EXPECT_EQ(scheduled(chain(DataType::f64, {64, 128})).vector, 2);
  EXPECT_EQ(scheduled(chain(DataType::f8_e4m3, {64, 128})).vector, 16);
}

TEST(ElementwiseSchedule, OddRowsMakeNarrowVectors) {
  EXPECT_EQ(scheduled(bias(DataType::bf16, {33, 100})).vector, 4);
  EXPECT_EQ(scheduled(bias(DataType::bf16, {33, 50})).vector, 2);
  EXPECT_EQ(scheduled(bias(DataType::bf16, {33, 49})).vector, 1);
}

// Halves of rotary pairs lie between each other: one access moves vectors of both. (59 us instead of 14 for
// 54 MiB on an H200, element by element.)
TEST(ElementwiseSchedule, PairsAreMovedTogether) {
  const auto accesses = [](const Graph& graph) {
    std::vector<Access> found;
    const ElementwiseSchedule s = scheduled(planned_fusion(graph));
    for (const Node& node : s.y.expr.nodes)
      if (node.kind == Node::Kind::load && node.access.strides[s.y.vector_axis] == 2)
        found.push_back(node.access);
    for (const Store& store : s.y.expr.stores) found.push_back(store.access);
    return found;
  };
  const auto are_whole = [](const std::vector<Access>& all) {
    return std::ranges::all_of(all, &Access::whole_vectors);
  };
  const auto all = accesses(rotary_pairs(DataType::bf16, {64, 128}));
  EXPECT_GE(all.size(), 4u);
  EXPECT_TRUE(are_whole(all));
  EXPECT_TRUE(are_whole(accesses(rotary_pairs(DataType::f32, {64, 128}))));
  EXPECT_FALSE(are_whole(accesses(rotary_pairs(DataType::bf16, {64, 130})))) << "rows of 65 pairs";
}

// As measured on an H200, whose L2 holds 60 MiB: bf16 of 134 MB 62.0 us, elsewise 65.4; of 33.5 MB no faster,
// and vectors of 8 bytes neither.
TEST(ElementwiseSchedule, ResultsLargerThanL2StayThereLongest) {
  const auto stays = [](const Fusion& fusion, const DeviceInfo& device, const ElementwiseKnobs& knobs = {}) {
    return schedule_elementwise({fusion, device}, 0, knobs).y.expr.stores[0].stays_in_l2;
  };
  const Fusion large = bias(DataType::bf16, {16384, 4096});
  EXPECT_TRUE(stays(large, h200()));
  EXPECT_FALSE(stays(bias(DataType::bf16, {4096, 4096}), h200()));
  EXPECT_FALSE(stays(large, h200(), {.vector = 4}));
  DeviceInfo old = h200();
  old.compute_capability = 75;
  EXPECT_FALSE(stays(large, old)) << "has no such policy";
}

// Two stores a thread leave gaps between those of neighbours: they are dearer, and a candidate only.
TEST(ElementwiseSchedule, ResultsAreNoWiderThanOneAccess) {
  const auto converted = [](DataType from, DataType to) {
    GraphBuilder g;
    g.output(g.neg(g.input("x", {4096, 4096}, from)), {.type = to});
    return test::fusion_of(g.finish());
  };
  EXPECT_EQ(scheduled(converted(DataType::i8, DataType::f16)).vector, 8);
  EXPECT_EQ(scheduled(converted(DataType::f8_e4m3, DataType::bf16)).vector, 8);
  EXPECT_EQ(scheduled(converted(DataType::f16, DataType::f8_e4m3)).vector, 16);
  const auto all = test::candidates(elementwise_engine(), converted(DataType::i8, DataType::f16), h200());
  const auto wide = std::ranges::find_if(
      all, [](const EngineCandidate& candidate) { return candidate.config.knob("vector", 0) == 16; });
  ASSERT_NE(wide, all.end());
  EXPECT_GT(wide->work.l2_bytes, 2 * all.front().work.l2_bytes);
}

TEST(ElementwiseSchedule, PromisedAlignmentLimitsVectors) {
  EXPECT_EQ(scheduled(aligned(16)).vector, 8);
  EXPECT_EQ(scheduled(aligned(4)).vector, 2);
  EXPECT_EQ(scheduled(aligned(2)).vector, 1);
}

TEST(ElementwiseSchedule, ABroadcastBiasIsSharedByNeighbouringRows) {
  const ElementwiseSchedule s = scheduled(bias(DataType::bf16, {16384, 8192}));
  EXPECT_EQ(s.unroll_axis, 0);
  EXPECT_EQ(s.unroll, 4);
  EXPECT_EQ(s.blocks(), 16384 * 8192 / 8 / 4 / 256);
}

TEST(ElementwiseSchedule, SmallJobsSpreadOverTheDevice) {
  EXPECT_EQ(scheduled(bias(DataType::bf16, {16, 512})).unroll, 1);
}

TEST(ElementwiseSchedule, LayoutChangesGoThroughSharedMemory) {
  const ElementwiseSchedule s = scheduled(to_nhwc(DataType::f16, {256, 64, 56, 56}));
  EXPECT_EQ(s.variant, Variant::transpose);
  EXPECT_EQ(s.domain(), (Dims{256, 56 * 56, 64}));
  ASSERT_EQ(s.staged.size(), 1u);
  EXPECT_EQ(s.staged[0].vector_axis, 1);
  EXPECT_TRUE(s.staged[0].expr.nodes[0].access.whole_vectors);
  EXPECT_TRUE(s.y.expr.stores[0].access.whole_vectors);
  EXPECT_EQ(s.blocks(), 256 * 49);
}

TEST(ElementwiseSchedule, SmallPlanesOfChannelsAreOneRun) {
  for (const DataType type : {DataType::f16, DataType::f32})
    for (const bool to_last : {true, false}) {
      const Dims dims{128, 256, 14, 14};
      const ElementwiseSchedule s = scheduled(to_last ? to_nhwc(type, dims) : to_nchw(type, dims));
      EXPECT_EQ(s.variant, Variant::planes);
      EXPECT_EQ(s.run_loads, to_last);
      EXPECT_EQ(s.domain()[s.plane_axis()], 14 * 14);
      EXPECT_EQ(s.domain()[s.channel_axis()], 256);
      EXPECT_EQ(s.channels, 128 / byte_size(type)) << "a line";
      EXPECT_TRUE(s.staged[0].expr.nodes[0].access.whole_vectors);
      EXPECT_TRUE(s.y.expr.stores[0].access.whole_vectors);
      EXPECT_EQ(s.blocks(), 128 * 256 / s.channels);
      // 197 places of 16 bytes for every vector of channels.
      EXPECT_EQ(s.shared_bytes(), 8 * 197 * 16);
    }
}

TEST(ElementwiseSchedule, TinyPlanesShareATileAndLargeOnesHaveFewChannels) {
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {128, 512, 7, 7})).channels, 128);
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {24, 512, 7, 7})).channels, 64) << "enough blocks";
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {4, 512, 7, 7})).channels, 16) << "a sector, and 128 blocks";
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {128, 24, 7, 7})).channels, 32);
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {128, 64, 27, 27})).channels, 32);
  for (const Dims& dims : {Dims{128, 64, 27, 27}, Dims{128, 64, 39, 39}, Dims{64, 512, 7, 7}})
    EXPECT_LE(scheduled(to_nchw(DataType::f16, dims)).shared_bytes(), 48 * 1024);
}

TEST(ElementwiseSchedule, PlanesThatFillTilesAreCutIntoThem) {
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {256, 64, 56, 56})).variant, Variant::transpose);
  EXPECT_EQ(scheduled(to_nchw(DataType::f32, {256, 64, 56, 56})).variant, Variant::transpose);
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {128, 128, 28, 28})).variant, Variant::transpose);
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {32, 64, 28, 28}), {.stage = 2}).variant, Variant::planes);
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {32, 64, 14, 14}), {.stage = 1}).variant, Variant::transpose);
}

TEST(ElementwiseSchedule, PlanesNeedWholeVectorsOfChannelsAndRunsWithoutOtherOperands) {
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {128, 250, 14, 14})).variant, Variant::transpose);
  const auto biased = [](Layout from, Layout to) {
    return scheduled(biased_layout(DataType::f16, {128, 256, 14, 14}, from, to));
  };
  EXPECT_EQ(biased(Layout::nchw, Layout::nhwc).variant, Variant::planes);
  EXPECT_EQ(biased(Layout::nhwc, Layout::nchw).variant, Variant::transpose);
  EXPECT_EQ(biased(Layout::nhwc, Layout::nchw).vector, 4) << "planes of 392 bytes";
}

TEST(ElementwiseSchedule, FewChannelsAreNotWorthATile) {
  EXPECT_EQ(scheduled(to_nhwc(DataType::f16, {32, 3, 56, 56})).variant, Variant::plain);
}

TEST(ElementwiseSchedule, StagingIsAKnob) {
  const Fusion fusion = to_nhwc(DataType::f16, {256, 64, 56, 56});
  const ElementwiseSchedule s = scheduled(fusion, {.stage = 0});
  EXPECT_EQ(s.variant, Variant::plain);
  EXPECT_TRUE(s.can_stage);
}

TEST(ElementwiseSchedule, InnermostReductionTakesRows) {
  const ElementwiseSchedule s = scheduled(reduction(DataType::bf16, {8192, 8192}, {1}));
  EXPECT_EQ(s.variant, Variant::rows);
  EXPECT_EQ(s.group, 256);
  EXPECT_EQ(s.splits, 1);
  EXPECT_EQ(s.blocks(), 8192);
}

TEST(ElementwiseSchedule, ShortRowsShareABlock) {
  const ElementwiseSchedule s = scheduled(reduction(DataType::f32, {100000, 32}, {1}));
  EXPECT_EQ(s.group, 2);
  EXPECT_EQ(s.blocks(), (100000 + 127) / 128);
}

TEST(ElementwiseSchedule, FewLongRowsAreSplit) {
  const ElementwiseSchedule s = scheduled(reduction(DataType::f32, {1 << 28}, {0}));
  EXPECT_EQ(s.variant, Variant::rows);
  EXPECT_EQ(s.kept, 0);
  EXPECT_EQ(s.splits, 1024);
}

TEST(ElementwiseSchedule, OutermostReductionTakesColumns) {
  const ElementwiseSchedule s = scheduled(reduction(DataType::bf16, {8192, 8192}, {0}));
  EXPECT_EQ(s.variant, Variant::columns);
  EXPECT_EQ(s.kept, 1);
  EXPECT_EQ(s.vector, 8);
  EXPECT_EQ(s.group, 32);
  EXPECT_EQ(s.splits, 16);
}

TEST(ElementwiseSchedule, ChannelSumsOfNchwKeepTheMiddleAxis) {
  const ElementwiseSchedule s = scheduled(reduction(DataType::f16, {128, 64, 56, 56}, {0, 2, 3}));
  EXPECT_EQ(s.variant, Variant::rows);
  EXPECT_EQ(s.domain(), (Dims{64, 128, 56 * 56}));
  EXPECT_EQ(s.kept, 1);
  EXPECT_EQ(reduction_of(s.y.expr, s.y.expr.stores[0])->over, 0b110u);
}

TEST(ElementwiseSchedule, SplitsCoverTheReductionExactlyOnce) {
  for (const int64_t n : {2, 7, 255, 4096, 100003, 1 << 22})
    for (const int64_t splits : {1, 2, 16, 1024}) {
      const ElementwiseSchedule s = scheduled(reduction(DataType::f32, {3, n}, {1}), {.splits = splits});
      const int64_t steps = s.vectors(s.kept, s.domain().rank());
      EXPECT_GE(s.splits * s.chunk, steps) << n << " " << splits;
      EXPECT_LT((s.splits - 1) * s.chunk, steps) << n << " " << splits;
    }
}

TEST(ElementwiseSchedule, ReductionOverNothingIsAStore) {
  const ElementwiseSchedule s = scheduled(reduction(DataType::f32, {64, 1, 32}, {1}, ReductionMode::norm1));
  EXPECT_EQ(s.variant, Variant::plain);
  EXPECT_FALSE(s.y.expr.has_reduction());
  EXPECT_EQ(s.y.expr.nodes.back().pointwise.mode, PointwiseMode::abs);
}

TEST(ElementwiseEngine, AnElementThatATotalPicksIsAllThatIsRead) {
  constexpr int64_t kRows = 4096, kClasses = 50000;
  const Fusion fusion = fusion_of(rows_cases::labelled(DataType::bf16, kRows, kClasses));
  const EngineCandidate best = test::candidates(elementwise_engine(), fusion, h200()).front();
  constexpr double kSector = 32;
  EXPECT_LE(best.work.dram_bytes, kRows * (kSector + 2 * kSector));
  EXPECT_EQ(test::lower(elementwise_engine(), fusion, best.config, h200()).steps.size(), 1U);
}

TEST(ElementwiseEngine, AnElementIsPickedAsItIsOrNotAtAll) {
  const auto is_picked = [](DataType selected, DataType counted) {
    GraphBuilder g;
    const Tensor x = g.input("x", {64, 1000}, DataType::f32),
                 label = g.input("label", {64, 1}, DataType::i32);
    const Tensor is_label = g.cmp_eq(g.gen_index(x, 1, {.type = counted}), label);
    const Tensor one = g.binary_select(x, g.constant(0, DataType::f32), is_label, {.type = selected});
    return with_picked_elements(fusion_of(g.finish({g.reduce(one, ReductionMode::add, {1})}))).has_value();
  };
  EXPECT_TRUE(is_picked(DataType::f32, DataType::i32));
  EXPECT_FALSE(is_picked(DataType::f16, DataType::i32));   // it is rounded
  EXPECT_FALSE(is_picked(DataType::f32, DataType::bf16));  // 256 and 257 are one number
}

TEST(ElementwiseEngine, RowsOfWhichMoreIsTakenAreRead) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 1000}, DataType::f32);
  const Tensor is_label = g.cmp_eq(g.gen_index(x, 1), g.input("label", {64, 1}, DataType::i32));
  const Tensor picked =
      g.reduce(g.binary_select(x, g.constant(0, DataType::f32), is_label), ReductionMode::add, {1});
  const Graph graph = g.finish({picked, g.reduce(x, ReductionMode::add, {1})});
  EXPECT_TRUE(scheduled(fusion_of(graph)).reduces());
  EXPECT_FALSE(with_picked_elements(fusion_of(graph)).has_value());
}

TEST(ElementwiseSchedule, LargeSpansNeedWideIndices) {
  EXPECT_EQ(scheduled(chain(DataType::bf16, {1 << 15, 1 << 15})).index_bits, 32);
  EXPECT_EQ(scheduled(chain(DataType::bf16, {1 << 16, 1 << 15})).index_bits, 64);
}

TEST(ElementwiseEngine, RefusesReductionsOverDifferentAxesByOp) {
  GraphBuilder g;
  const Tensor x = g.input("x", {32, 64}, DataType::f32);
  const Tensor rows = g.reduce(x, ReductionMode::add, {1}, {.name = "rows"});
  const Tensor columns = g.reduce(x, ReductionMode::add, {0}, {.name = "columns"});
  const Support support = test::supports(elementwise_engine(), fusion_of(g.finish({rows, columns})), h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "one-reduction-mask");
  EXPECT_EQ(support.refusal->node, "columns");
  EXPECT_EQ(support.refusal->op, 1);
}

TEST(ElementwiseEngine, RefusesAnchorsAndTheCpu) {
  GraphBuilder g;
  const Tensor a = g.input("a", {16, 16}, DataType::f32);
  const Support anchored =
      test::supports(elementwise_engine(), fusion_of(g.finish({g.matmul(a, a, {.name = "mm"})})), h200());
  ASSERT_FALSE(anchored);
  EXPECT_EQ(anchored.refusal->rule, "no-anchor");
  EXPECT_EQ(anchored.refusal->node, "mm");
  EXPECT_FALSE(test::supports(elementwise_engine(), chain(DataType::f32, {64}), DeviceInfo::cpu()));
}

TEST(ElementwiseEngine, EverySettingIsAValueOfItsKnob) {
  for (const auto& [name, fusion] : every_variant()) {
    const std::vector<Knob> knobs = test::knobs(elementwise_engine(), fusion, h200());
    for (const EngineCandidate& candidate : test::candidates(elementwise_engine(), fusion, h200()))
      for (const KnobSetting& setting : candidate.config.knobs) {
        const auto knob = std::ranges::find(knobs, setting.name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name << " " << setting.name;
        EXPECT_NE(std::ranges::find(knob->values, setting.value), knob->values.end())
            << name << " " << setting.name << "=" << setting.value;
      }
  }
}

TEST(ElementwiseEngine, CandidatesAreDifferentAndStable) {
  for (const auto& [name, fusion] : every_variant()) {
    const auto candidates = test::candidates(elementwise_engine(), fusion, h200());
    ASSERT_FALSE(candidates.empty());
    for (size_t i = 0; i < candidates.size(); ++i)
      for (size_t k = i + 1; k < candidates.size(); ++k)
        EXPECT_FALSE(candidates[i].config == candidates[k].config)
            << name << " " << to_string(candidates[i].config);
  }
}

TEST(ElementwiseEngine, WorkCountsEachOperandOnce) {
  const auto best =
      test::candidates(elementwise_engine(), chain(DataType::bf16, {8192, 8192}), h200()).front();
  EXPECT_DOUBLE_EQ(best.work.dram_bytes, 4.0 * 2 * 8192 * 8192);
  EXPECT_EQ(best.work.launches, 1);
  EXPECT_GT(best.work.special, 0);
  const auto split =
      test::candidates(elementwise_engine(), reduction(DataType::f32, {1 << 24}, {0}), h200()).front();
  EXPECT_EQ(split.work.launches, 2);
  EXPECT_GT(split.work.scratch_bytes, 0);
}

// A block has four random words: narrower vectors would make each twice.
TEST(ElementwiseEngine, VectorsOfDropoutUseWholeBlocksOfRandomWords) {
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    GraphBuilder g("dropout");
    const Tensor x = g.input("x", {4096, 4096}, type);
    const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i64);
    const Tensor kept =
        g.rng(x.dims, seed, offset, {.distribution = Distribution::bernoulli, .probability = 0.9});
    g.output(g.mul(x, kept), {.type = type});
    const Plan plan = build(g.finish(), h200(), {.compile = false});
    ASSERT_EQ(plan.fusions.size(), 1U);
    EXPECT_EQ(plan.fusions[0].config.engine, "elementwise");
    EXPECT_GE(plan.fusions[0].config.knob("vector", 1), 4);
  }
}

TEST(ElementwiseEngine, SplitReductionsRunInTwoLaunchesThroughScratch) {
  const Fusion fusion = reduction(DataType::f32, {1 << 24}, {0});
  const auto best = test::candidates(elementwise_engine(), fusion, h200()).front();
  const Lowered lowered = test::lower(elementwise_engine(), fusion, best.config, h200());
  ASSERT_EQ(lowered.steps.size(), 2u);
  const Launch& first = std::get<Launch>(lowered.steps[0]);
  const Launch& second = std::get<Launch>(lowered.steps[1]);
  EXPECT_EQ(first.entry, "reduce_rows");
  EXPECT_EQ(second.entry, "reduce_finish");
  EXPECT_EQ(second.source->root, "elementwise/reduce_finish.cuh");
  EXPECT_EQ(lowered.scratch, (std::vector<int64_t>{static_cast<int64_t>(first.grid[1]) * 4}));
  EXPECT_EQ(best.work.scratch_bytes, lowered.scratch[0]);
}

TEST(ElementwiseEngine, GuardsAreTheAlignmentsItReliesOn) {
  const Fusion fusion = chain(DataType::bf16, {64, 128});
  const auto& engine = elementwise_engine();
  const Lowered lowered =
      test::lower(engine, fusion, test::candidates(engine, fusion, h200()).front().config, h200());
  ASSERT_EQ(lowered.guards.size(), fusion.operands.size());
  for (const Guard& guard : lowered.guards) EXPECT_EQ(guard.alignment, 16);
}

TEST(ElementwiseEngine, OneLaunchPerCopyOfAConcatenation) {
  GraphBuilder g;
  const Tensor a = g.input("a", {4, 8}, DataType::f16);
  const Tensor b = g.input("b", {3, 8}, DataType::f16);
  const Graph graph = g.finish({g.concatenate({a, b}, 0)});
  const Fusion fusion = make_single(graph, 0);
  const auto& engine = elementwise_engine();
  ASSERT_TRUE(test::supports(engine, fusion, h200()));
  const Lowered lowered =
      test::lower(engine, fusion, test::candidates(engine, fusion, h200()).front().config, h200());
  EXPECT_EQ(lowered.steps.size(), 2u);
}

// The text of the first kernel that the best candidate launches.
std::string generated(const Fusion& fusion) {
  const Engine& engine = elementwise_engine();
  return test::generated_text(
      test::lower(engine, fusion, test::candidates(engine, fusion, h200()).front().config, h200()), 0);
}

TEST(ElementwiseText, IsTheGoldenText) {
  EXPECT_EQ(generated(bias(DataType::bf16, {16383, 8190})), test::golden_text("elementwise/elementwise"));
  EXPECT_EQ(generated(mixed_layouts(DataType::bf16, {16, 64, 28, 28})),
            test::golden_text("elementwise/transpose"));
  EXPECT_EQ(generated(biased_layout(DataType::bf16, {128, 256, 14, 14}, Layout::nchw, Layout::nhwc)),
            test::golden_text("elementwise/transpose_planes"));
  EXPECT_EQ(generated(statistics(DataType::bf16, {4096, 4096}, {1})),
            test::golden_text("elementwise/reduce_rows"));
  EXPECT_EQ(generated(statistics(DataType::bf16, {4096, 4096}, {0})),
            test::golden_text("elementwise/reduce_columns"));
}

// But for whether L2 holds the result.
TEST(ElementwiseText, ExtentsAndNamesAreNoPartOfIt) {
  EXPECT_EQ(generated(chain(DataType::bf16, {8192, 2048})), generated(chain(DataType::bf16, {4096, 4096})));
  EXPECT_EQ(generated(bias(DataType::f32, {16384, 8192})), generated(bias(DataType::f32, {8192, 4096})));
  EXPECT_EQ(generated(reduction(DataType::f16, {8192, 8192}, {1})),
            generated(reduction(DataType::f16, {9000, 16384}, {1})));
}

}  // namespace
}  // namespace fusor
