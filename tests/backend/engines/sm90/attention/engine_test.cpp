// Owns the tests of the attention engine without a GPU: what it reads in the scores, what it refuses, and
// that its kernels compile.
#include <gmock/gmock.h>

#include <tuple>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/sm90/attention/problem.h"
#include "core/ops/expansion.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using attention::Problem;
using test::AttentionCase;
using test::AttentionGraph;
using test::Mask;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;
using testing::SizeIs;

using test::h200;

attention::Scores scores_of(const Graph& graph) {
  const Fusion fusion = test::fusion_of(graph);
  return std::get<attention::Scores>(attention::take_apart(fusion, operand_site(fusion, 1, 0)));
}

std::string rule_of(const Graph& graph) {
  const Support support = test::supports(attention_engine(), test::fusion_of(graph), h200());
  return support ? "" : support.refusal->rule;
}

TEST(Attention, AConstantScaleIsPartOfTheExponent) {
  const attention::Scores scores = scores_of(test::attention({.head = 16}));
  EXPECT_DOUBLE_EQ(scores.scale.value(), 0.25);
  EXPECT_THAT(scores.bounds.lower, IsEmpty());
  EXPECT_THAT(scores.bounds.upper, IsEmpty());
}

TEST(Attention, ACausalMaskIsABoundOnKeys) {
  const attention::Scores scores = scores_of(test::attention({.mask = Mask::causal}));
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 0)));
  EXPECT_THAT(scores.bounds.lower, IsEmpty());
  EXPECT_TRUE(scores.scale.has_value());
}

TEST(Attention, AlignmentAtTheLastKeyShiftsTheBound) {
  const attention::Scores scores =
      scores_of(test::attention({.queries = 10, .keys = 64, .mask = Mask::bottom_right}));
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 54)));
}

TEST(Attention, AWindowIsTwoBounds) {
  const attention::Scores scores = scores_of(test::attention({.mask = Mask::window}));
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 0)));
  EXPECT_THAT(scores.bounds.lower, ElementsAre(FieldsAre(1, 1 - test::kWindow)));
}

TEST(Attention, AMaskMayBeNegatedOrAdded) {
  AttentionGraph negated({});
  negated.score = negated.g.binary_select(negated.nothing(), negated.score,
                                          negated.g.cmp_lt(negated.row(), negated.key()));
  EXPECT_THAT(scores_of(negated.finish()).bounds.upper, ElementsAre(FieldsAre(1, 0)));
  AttentionGraph added({});
  added.score = added.g.add(added.score, added.g.binary_select(added.g.constant(0), added.nothing(),
                                                               added.g.cmp_ge(added.row(), added.key())));
  const attention::Scores scores = scores_of(added.finish());
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 0)));
  EXPECT_TRUE(scores.scale.has_value());
}

// Rows of which every key is hidden are uniform then, not empty.
TEST(Attention, ALowNumberHidesKeysOnlyWhereEveryRowSeesOne) {
  for (const int64_t keys : {64, 32}) {
    AttentionGraph graph({.queries = 64, .keys = keys});
    graph.score = graph.g.binary_select(
        graph.score, graph.g.constant(-1e30),
        graph.g.cmp_ge(graph.key(), graph.g.sub(graph.row(), graph.g.constant(3, DataType::i32))));
    EXPECT_THAT(scores_of(graph.finish()).bounds.lower, SizeIs(keys == 64 ? 1 : 0)) << keys;
  }
}

TEST(Attention, AnyOtherScoreIsComputed) {
  AttentionGraph graph({.mask = Mask::causal});
  graph.score = graph.g.tanh(graph.score);
  graph.mask();
  const attention::Scores scores = scores_of(graph.finish());
  EXPECT_FALSE(scores.scale.has_value());
  EXPECT_THAT(scores.bounds.upper, SizeIs(1));
}

// A score that is rounded is an op of the kernel, masks are bounds all the same.
TEST(Attention, ScoresMayBeRoundedToSixteenBits) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    AttentionGraph graph({.mask = Mask::causal, .type = type});
    graph.score = graph.g.identity(graph.score, {.type = type});
    graph.mask();
    const Graph finished = graph.finish(true);
    EXPECT_EQ(rule_of(finished), "");
    const attention::Scores scores = scores_of(finished);
    EXPECT_FALSE(scores.is_plain());
    EXPECT_THAT(scores.bounds.upper, SizeIs(1));
  }
}

TEST(Attention, TheStepsOfASoftmaxAreInFp32) {
  for (const bool rounds_difference : {false, true}) {
    AttentionGraph graph({});
    GraphBuilder& g = graph.g;
    const PointwiseOptions rounded{.type = DataType::bf16}, whole{};
    const Tensor difference = g.sub(graph.score, g.reduce(graph.score, ReductionMode::max, {3}),
                                    rounds_difference ? rounded : whole);
    const Tensor exponential = g.exp(difference, rounds_difference ? whole : rounded);
    const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {3}));
    const Tensor v = g.input("v", {1, 1, 64, 64}, DataType::bf16);
    EXPECT_EQ(rule_of(g.finish({g.matmul(p, v)})), "fp32-softmax");
  }
}

// A larger number than some score would be that of the rows' statistics, and leave rows below it without a
// sum.
TEST(Attention, ALargestScoreIsAtLeastANumberBelowAllScores) {
  for (const double least : {0.0, -1e4, -1e30, -3e38}) {
    AttentionGraph graph({});
    GraphBuilder& g = graph.g;
    const Tensor largest = g.max(g.reduce(graph.score, ReductionMode::max, {3}), g.constant(least));
    const Tensor exponential = g.exp(g.sub(graph.score, largest));
    const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
    const Tensor v = g.input("v", {1, 1, 64, 64}, DataType::bf16);
    g.output(g.add(largest, g.log(sum)));
    EXPECT_EQ(rule_of(g.finish({g.matmul(g.div(exponential, sum), v)})),
              least > -1e38 ? "scores-above-least" : "")
        << least;
  }
}

TEST(Attention, ASumIsReplacedWhereItIsZeroAndByANumber) {
  for (const auto& [divisor, none, rule] :
       {std::tuple(1.0, 0.0, ""), {1.0, 5.0, "sums-that-are-zero"}, {0.0, 0.0, "sums-that-are-zero"}}) {
    AttentionGraph graph({});
    GraphBuilder& g = graph.g;
    const Tensor exponential = g.exp(g.sub(graph.score, g.reduce(graph.score, ReductionMode::max, {3})));
    const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
    const Tensor guarded = g.binary_select(sum, g.constant(divisor), g.cmp_neq(sum, g.constant(none)));
    const Tensor v = g.input("v", {1, 1, 64, 64}, DataType::bf16);
    EXPECT_EQ(rule_of(g.finish({g.matmul(g.div(exponential, guarded), v)})), rule) << divisor << " " << none;
  }
}

// Rows without a key are zeros beside a sink, too, which may be none (-inf).
TEST(Attention, RowsWithASinkAreGuardedBehindAMask) {
  GraphBuilder g;
  const Tensor q = g.input("q", {1, 2, 64, 64}, DataType::bf16),
               k = g.input("k", {1, 2, 64, 64}, DataType::bf16);
  const SdpaResults r = g.sdpa_fwd(
      q, k, k, {.attributes = {.right_bound = 0}, .sink = g.input("sink", {1, 2, 1, 1}, DataType::f32)});
  g.output(r.stats);
  const Graph graph = expand_composites(g.finish({r.o}));
  EXPECT_EQ(rule_of(graph), "");
  EXPECT_TRUE(scores_of(graph).guarded);
  EXPECT_TRUE(scores_of(graph).sink.has_value());
}

TEST(Attention, RefusalsNameTheRule) {
  EXPECT_EQ(rule_of(test::attention({})), "");
  EXPECT_EQ(rule_of(test::attention({.head = 512})), "head-elements");
  EXPECT_EQ(rule_of(test::attention({.type = DataType::f32})), "16-bit-operands");
  EXPECT_EQ(rule_of(test::attention({.keys = 60, .head = 60})), "16-byte-lines");
  GraphBuilder g;
  const Tensor a = g.input("a", {64, 64}, DataType::bf16);
  EXPECT_EQ(rule_of(g.finish({g.matmul(a, a)})), "two-products");
}

TEST(Attention, DropoutIsWhatAProbabilityIsMultipliedByAndWhereItStays) {
  const AttentionCase c{.heads = 2, .shared_heads = 2};
  const Graph graph =
      expand(test::attention_with_dropout(c, {.attn_scale = 0.5, .dropout_probability = 0.75}));
  const Fusion fusion = test::fusion_of(graph);
  const auto taken = attention::take_apart(fusion, operand_site(fusion, 1, 0), {.dropout = true});
  const auto& scores = std::get<attention::Scores>(taken);
  EXPECT_DOUBLE_EQ(scores.weight, 4);
  EXPECT_TRUE(scores.is_plain());
  ASSERT_TRUE(scores.keep);
  EXPECT_EQ(yielded_node(*scores.keep).pointwise.mode, PointwiseMode::cmp_lt);
  const auto refused = attention::take_apart(fusion, operand_site(fusion, 1, 0));
  EXPECT_EQ(std::get<Refusal>(refused).rule, "dropout");
}

// The part of an element's index that a row shares comes first; nothing is multiplied.
TEST(Attention, DropoutCountsInStepsOfEachAxis) {
  const AttentionCase c{.batch = 2, .heads = 3, .shared_heads = 3, .queries = 70, .keys = 90};
  const Graph graph = expand(test::attention_with_dropout(c, {.dropout_probability = 0.1}));
  const Fusion fusion = test::fusion_of(graph);
  const auto taken = attention::take_apart(fusion, operand_site(fusion, 1, 0), {.dropout = true});
  const Expr& keep = *std::get<attention::Scores>(taken).keep;
  std::vector<int64_t> steps;
  for (const Node& node : keep.nodes) {
    if (node.kind == Node::Kind::index) steps.push_back(node.access.strides[node.axis]);
    EXPECT_FALSE(attention::is_pointwise(node, PointwiseMode::mul));
  }
  EXPECT_THAT(steps, ElementsAre(3 * 70 * 90, 70 * 90, 90, 1));
  validate(keep);
}

// Otherwise than by 0: the rest of the probabilities would have to be known.
TEST(Attention, DropoutLeavesZeros) {
  AttentionGraph graph({});
  GraphBuilder& g = graph.g;
  const Tensor exponential = g.exp(g.sub(graph.score, g.reduce(graph.score, ReductionMode::max, {3})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {3}));
  const Tensor other =
      g.binary_select(p, g.constant(0.5), g.cmp_lt(graph.key(), g.constant(7, DataType::i32)));
  g.output(g.matmul(other, g.input("v", {1, 1, 64, 64}, DataType::bf16)), {.name = "o"});
  EXPECT_EQ(rule_of(g.finish()), "dropout");
}

TEST(Attention, StrictGraphsDivideBeforeTheProduct) {
  Graph graph = test::attention({});
  EXPECT_TRUE(test::notes(attention_engine(), test::fusion_of(graph), h200()).late_division);
  graph.precision = Precision::strict;
  EXPECT_EQ(rule_of(graph), "late-division");
}

TEST(Attention, TakesFp8WhereSumsMayBeShort) {
  const AttentionCase c{.type = DataType::f8_e4m3};
  Graph graph = test::attention(c);
  EXPECT_EQ(rule_of(graph), "");
  EXPECT_TRUE(test::notes(attention_engine(), test::fusion_of(graph), h200()).short_sums);
  EXPECT_FALSE(test::notes(attention_engine(), test::fusion_of(test::attention({})), h200()).short_sums);
  graph.precision = Precision::exact;
  EXPECT_EQ(rule_of(graph), "short-sums");
  EXPECT_EQ(rule_of(test::attention({.head = 144, .type = DataType::f8_e4m3})), "head-elements");
}

TEST(Attention, ProbabilitiesOfFp8AreWeighted) {
  const Fusion fusion = test::fusion_of(AttentionGraph({.type = DataType::f8_e4m3}).finish(false, 256));
  const auto answer = attention::problem_of(fusion, h200());
  ASSERT_TRUE(std::holds_alternative<Problem>(answer)) << to_string(std::get<Refusal>(answer));
  EXPECT_EQ(std::get<Problem>(answer).scores.weight, 256);
}

// Attention of fp8_e5m2 whose probabilities are multiplied by a tensor of these dims.
Graph weighted_attention(const Dims& weights) {
  AttentionGraph graph({.type = DataType::f8_e5m2});
  GraphBuilder& g = graph.g;
  const Tensor exponential = g.exp(g.sub(graph.score, g.reduce(graph.score, ReductionMode::max, {3})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {3}));
  const Tensor v = g.input("v", {1, 1, 64, 64}, DataType::f8_e5m2);
  g.output(g.matmul(g.mul(p, g.input("scale", weights, DataType::f32)), v), {.name = "o"});
  Graph finished = g.finish();
  finished.precision = Precision::allow_short_sums;
  return finished;
}

// A factor of probabilities that only a run knows multiplies the result instead.
TEST(Attention, WeightsInMemoryMultiplyTheResult) {
  const Fusion fusion = test::fusion_of(weighted_attention({1, 1, 1, 1}));
  const auto answer = attention::problem_of(fusion, h200());
  ASSERT_TRUE(std::holds_alternative<Problem>(answer)) << to_string(std::get<Refusal>(answer));
  const Expr& y = std::get<Problem>(answer).y;
  validate(y);
  const Node& stored = y.node(y.stores.at(0).node);
  EXPECT_EQ(stored.pointwise.mode, PointwiseMode::mul);
  EXPECT_EQ(y.node(stored.args[0]).kind, Node::Kind::input);
  EXPECT_EQ(y.node(stored.args[1]).kind, Node::Kind::load);
}

// One that differs from row to row is no factor of theirs.
TEST(Attention, RefusesWeightsOfRows) {
  EXPECT_EQ(rule_of(weighted_attention({1, 1, 64, 1})), "softmax-between");
}

// Factors in memory leave larger blocks than other scores do.
TEST(Attention, FactorsOfFp8NeedFewRegisters) {
  AttentionGraph graph({.head = 128, .value = 128, .type = DataType::f8_e4m3});
  graph.score = graph.g.mul(graph.score, graph.g.input("descale", {1, 1, 1, 1}, DataType::f32));
  const Fusion fusion = test::fusion_of(graph.finish());
  int64_t widest = 0;
  for (const EngineCandidate& candidate : test::candidates(attention_engine(), fusion, h200()))
    widest = std::max(widest, knobs_of<attention::Knobs>(candidate.config).tile_k);
  EXPECT_EQ(widest, 96);
}

// A block's sums are short: it has 128 keys at most, in whole steps of 32.
TEST(Attention, BlocksOfFp8AreOneShortSum) {
  for (const int64_t head : {16, 64, 128}) {
    const Fusion fusion =
        test::fusion_of(test::attention({.head = head, .value = head, .type = DataType::f8_e4m3}));
    const auto answer = attention::problem_of(fusion, h200());
    const auto settings = test::candidates(attention_engine(), fusion, h200());
    EXPECT_FALSE(settings.empty());
    for (const EngineCandidate& candidate : settings) {
      const auto knobs = knobs_of<attention::Knobs>(candidate.config);
      EXPECT_LE(knobs.tile_k, 128);
      EXPECT_EQ(knobs.tile_k % 32, 0);
      EXPECT_LE(attention::Schedule(std::get<Problem>(answer), knobs).shared_bytes(),
                h200().shared_per_block);
    }
  }
}

TEST(Attention, BoundsAreTakenOutOfAMaskThatIsMore) {
  AttentionGraph graph({});
  GraphBuilder& g = graph.g;
  const Tensor live = g.cmp_gt(g.input("length", {1, 1, 1, 1}, DataType::i32), graph.key());
  graph.keep(g.logical_and(live, g.cmp_ge(graph.row(), graph.key())));
  const attention::Scores scores = scores_of(graph.finish());
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 0)));
  EXPECT_FALSE(scores.scale.has_value());
}

// Whether settings with blocks of `tile_k` keys copy the scores' matrix, of `batch` planes of rows that are
// `row` elements apart.
bool stages_matrix(int64_t batch, int64_t row, DataType type, int64_t tile_k) {
  const AttentionCase c{.batch = 2, .heads = 2, .shared_heads = 2, .queries = 200, .keys = 400};
  AttentionGraph graph(c);
  const Tensor matrix =
      graph.g.input("matrix", {batch, 2, 200, 400}, type, {.strides = Strides{400 * row, 200 * row, row, 1}});
  graph.score = graph.g.add(graph.score, matrix);
  const Fusion fusion = test::fusion_of(graph.finish());
  const auto answer = attention::problem_of(fusion, h200());
  return attention::Schedule(std::get<Problem>(answer), {.tile_k = tile_k}).stages_matrix();
}

TEST(Attention, AMatrixOfScoresIsCopiedInWholeLines) {
  EXPECT_TRUE(stages_matrix(2, 400, DataType::bf16, 128));
  EXPECT_TRUE(stages_matrix(1, 408, DataType::f16, 64));
  EXPECT_FALSE(stages_matrix(2, 400, DataType::bf16, 96));
  EXPECT_FALSE(stages_matrix(2, 401, DataType::bf16, 128));
  EXPECT_FALSE(stages_matrix(2, 400, DataType::f32, 128));
}

TEST(Attention, TilesThatShareAMatrixFollowEachOther) {
  AttentionGraph graph({.batch = 2, .heads = 2, .shared_heads = 2, .queries = 200, .keys = 400});
  graph.score = graph.g.add(graph.score, graph.g.input("bias", {1, 2, 200, 400}, DataType::bf16));
  const Fusion fusion = test::fusion_of(graph.finish());
  const auto answer = attention::problem_of(fusion, h200());
  EXPECT_TRUE(attention::Schedule(std::get<Problem>(answer), {.tile_k = 128}).takes_first_axis_first());
}

TEST(Attention, ADifferenceOfEqualLengthsIsNoShift) {
  AttentionGraph graph({});
  GraphBuilder& g = graph.g;
  const Tensor length = g.input("length", {1, 1, 1, 1}, DataType::i32);
  graph.keep(g.cmp_ge(g.add(graph.row(), g.sub(length, length)), graph.key()));
  const attention::Scores scores = scores_of(graph.finish());
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 0)));
  EXPECT_TRUE(scores.scale.has_value());
}

TEST(Attention, NoSettingNeedsMoreThanABlockHas) {
  for (const int64_t head : {8, 64, 128, 192, 256}) {
    const Fusion fusion = test::fusion_of(test::attention({.head = head, .value = head}));
    const auto answer = attention::problem_of(fusion, h200());
    const auto& problem = std::get<Problem>(answer);
    for (const EngineCandidate& candidate : test::candidates(attention_engine(), fusion, h200())) {
      const attention::Schedule schedule(problem, knobs_of<attention::Knobs>(candidate.config));
      EXPECT_LE(schedule.shared_bytes(), h200().shared_per_block);
      EXPECT_GE(schedule.stages, 2);
    }
  }
}

// Gemma 2's layers: a soft-cap and a window leave no registers for the blocks of other heads.
Fusion capped_window_of_wide_heads() {
  AttentionGraph graph({.head = 256, .value = 256, .mask = Mask::window});
  graph.score = graph.g.mul(graph.g.tanh(graph.score), graph.g.constant(50));
  graph.mask();
  return test::fusion_of(graph.finish());
}

TEST(Attention, ComputedScoresOfWideHeadsTakeBlocksOfFewKeys) {
  const auto found = test::candidates(attention_engine(), capped_window_of_wide_heads(), h200());
  EXPECT_FALSE(found.empty());
  for (const EngineCandidate& candidate : found)
    EXPECT_EQ(knobs_of<attention::Knobs>(candidate.config).tile_k, 32);
}

TEST(AttentionKernels, Compile) {
  std::vector<test::KernelCase> cases;
  for (const int64_t head : {64, 128, 256})
    test::add_kernels(attention_engine(), "plain",
                      test::fusion_of(test::attention({.head = head, .value = head})), h200(), cases);
  for (const int64_t head : {64, 128})
    test::add_kernels(
        attention_engine(), "fp8",
        test::fusion_of(test::attention({.head = head, .value = head, .type = DataType::f8_e4m3})), h200(),
        cases);
  test::add_kernels(attention_engine(), "fp8_e5m2",
                    test::fusion_of(test::attention({.type = DataType::f8_e5m2})), h200(), cases);
  AttentionGraph graph({.heads = 2, .mask = Mask::window});
  graph.score = graph.g.add(graph.g.tanh(graph.score), graph.g.input("bias", {1, 2, 64, 64}, DataType::bf16));
  graph.mask();
  AttentionGraph biased({.queries = 512, .keys = 512, .head = 128, .value = 128});
  biased.score = biased.g.add(biased.score, biased.g.input("bias", {1, 1, 512, 512}, DataType::f16));
  test::add_kernels(attention_engine(), "biased", test::fusion_of(biased.finish()), h200(), cases);
  test::add_kernels(attention_engine(), "scored", test::fusion_of(graph.finish(true)), h200(), cases);
  std::vector<test::KernelCase> few;
  for (size_t i = 0; i < cases.size(); i += 12) few.push_back(cases[i]);
  cases.clear();
  test::add_kernels(attention_engine(), "wide", capped_window_of_wide_heads(), h200(), cases);
  few.push_back(cases.front());
  test::expect_distinct_compiled(few);
}

}  // namespace
}  // namespace fusor
