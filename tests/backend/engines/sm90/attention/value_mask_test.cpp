// Owns the tests of masks that compare numbers of queries and keys: which are found, what they leave to the
// score, and that the kernels that pass over blocks compile.
#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/engines/sm90/attention/problem.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/sm90/attention/gradients.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"
#include "tests/support/ragged_attention.h"

namespace fusor::value_mask_test {
namespace {

using attention::Problem;
using attention::Reach;
using attention::Schedule;
using attention::ValueMask;
using test::AttentionBackwardGraph;
using test::AttentionCase;
using test::AttentionGraph;
using test::backward_of;

using test::h200;

constexpr AttentionCase kLong{.batch = 2, .heads = 3, .shared_heads = 3, .queries = 1000, .keys = 1000};

attention::Scores scores_of(const Graph& graph) {
  const Fusion fusion = test::fusion_of(graph);
  return std::get<attention::Scores>(
      attention::take_apart(fusion, operand_site(fusion, 1, 0), {.values = true}));
}

// Whether the mask of `condition`, of the numbers of queries and keys, is found, and which way they compare.
template <class Condition>
std::optional<ValueMask> found(const Condition& condition) {
  AttentionGraph graph(kLong);
  GraphBuilder& g = graph.g;
  const Tensor of_queries = g.input("of_queries", {2, 1, 1000, 1}, DataType::i32),
               of_keys = g.input("of_keys", {2, 1, 1, 1000}, DataType::i32);
  graph.keep(condition(graph, of_queries, of_keys));
  return scores_of(graph.finish()).values;
}

TEST(ValueMask, EqualNumbersReachEachOther) {
  const auto mask = found([](auto& graph, const Tensor& q, const Tensor& k) { return graph.g.cmp_eq(k, q); });
  ASSERT_TRUE(mask);
  EXPECT_EQ(mask->query, Reach::as_much);
  EXPECT_EQ(mask->key, Reach::as_much);
  EXPECT_EQ(mask->of_query.domain, (Dims{2, 3, 1000, 1}));
  EXPECT_EQ(mask->of_key.domain, (Dims{2, 3, 1, 1000}));
}

TEST(ValueMask, ComparisonsHaveADirection) {
  const auto less = found([](auto& graph, const Tensor& q, const Tensor& k) { return graph.g.cmp_lt(k, q); });
  ASSERT_TRUE(less);
  EXPECT_EQ(less->query, Reach::more);
  EXPECT_EQ(less->key, Reach::none);
  const auto negated = found([](auto& graph, const Tensor& q, const Tensor& k) {
    return graph.g.logical_not(graph.g.cmp_lt(k, q));
  });
  ASSERT_TRUE(negated);
  EXPECT_EQ(negated->query, Reach::none);
  EXPECT_EQ(negated->key, Reach::as_much);
}

TEST(ValueMask, IsFoundInAConjunctionAndBehindACausalMask) {
  const auto mask = found([](auto& graph, const Tensor& q, const Tensor& k) {
    graph.keep(graph.g.cmp_ge(graph.row(), graph.key()));
    return graph.g.logical_and(graph.g.cmp_ge(graph.row(), graph.key()), graph.g.cmp_eq(q, k));
  });
  EXPECT_TRUE(mask);
}

TEST(ValueMask, ALengthIsComparedWithTheKeysOwnNumber) {
  const auto mask = found([](auto& graph, const Tensor&, const Tensor&) {
    return graph.g.cmp_gt(graph.g.input("length", {2, 1, 1, 1}, DataType::i32), graph.key());
  });
  ASSERT_TRUE(mask);
  EXPECT_EQ(mask->query, Reach::more);
}

// key - row <= number is key <= row + number.
TEST(ValueMask, ADistanceIsComparedByItsKey) {
  const auto upper = found([](auto& graph, const Tensor& q, const Tensor&) {
    return graph.g.cmp_le(graph.g.sub(graph.key(), graph.row()), q);
  });
  ASSERT_TRUE(upper);
  EXPECT_EQ(upper->query, Reach::as_much);
  EXPECT_EQ(upper->key, Reach::none);
  EXPECT_FALSE(upper->in_score);
  EXPECT_EQ(upper->of_key.domain, (Dims{2, 3, 1, 1000}));
  const auto negated = found([](auto& graph, const Tensor& q, const Tensor&) {
    return graph.g.cmp_lt(graph.g.sub(graph.row(), graph.key()), q);
  });
  ASSERT_TRUE(negated);
  EXPECT_EQ(negated->query, Reach::none);
  EXPECT_EQ(negated->key, Reach::more);
}

TEST(ValueMask, OtherMasksAreNone) {
  // Unequal numbers leave almost every block.
  EXPECT_FALSE(found([](auto& graph, const Tensor& q, const Tensor& k) { return graph.g.cmp_neq(q, k); }));
  // One of two conditions says nothing of a block.
  EXPECT_FALSE(found([](auto& graph, const Tensor& q, const Tensor& k) {
    return graph.g.logical_or(graph.g.cmp_eq(q, k), graph.g.cmp_eq(graph.key(), graph.row()));
  }));
  // A number of both has no range of a tile.
  EXPECT_FALSE(found([](auto& graph, const Tensor& q, const Tensor& k) {
    return graph.g.cmp_ge(graph.g.add(q, k), graph.g.constant(3, DataType::i32));
  }));
}

// In fp32 two numbers beyond 2^24 may be equal that are not.
TEST(ValueMask, AComparisonThatRoundsNumbersIsNone) {
  EXPECT_FALSE(found([](auto& graph, const Tensor& q, const Tensor& k) {
    return graph.g.cmp_eq(q, k, {.compute = DataType::f32});
  }));
  EXPECT_TRUE(found([](auto& graph, const Tensor& q, const Tensor& k) {
    return graph.g.cmp_eq(q, k, {.compute = DataType::i64});
  }));
}

TEST(ValueMask, ANumberThatHidesLittleIsNone) {
  AttentionGraph graph(kLong);
  GraphBuilder& g = graph.g;
  graph.score = g.binary_select(graph.score, g.constant(-1e9),
                                g.cmp_eq(g.input("q_number", {2, 1, 1000, 1}, DataType::i32),
                                         g.input("k_number", {2, 1, 1, 1000}, DataType::i32)));
  EXPECT_FALSE(scores_of(graph.finish()).values);
}

Graph documents(const AttentionCase& c) {
  AttentionGraph graph(c);
  graph.keep_documents();
  graph.mask();
  return graph.finish(true);
}

TEST(ValueMask, IsNoPartOfTheScoreWhereItStandsAlone) {
  const Fusion fusion = test::fusion_of(documents(kLong));
  const auto answer = attention::problem_of(fusion, h200());
  const attention::Scores& scores = std::get<Problem>(answer).scores;
  EXPECT_TRUE(scores.scale.has_value());
  EXPECT_FALSE(scores.values->in_score);
  AttentionGraph graph(kLong);
  GraphBuilder& g = graph.g;
  const Tensor q = g.input("of_queries", {2, 1, 1000, 1}, DataType::i32),
               k = g.input("of_keys", {2, 1, 1, 1000}, DataType::i32);
  graph.keep(g.logical_and(g.cmp_neq(g.add(q, k), g.constant(7, DataType::i32)), g.cmp_eq(q, k)));
  const Fusion more = test::fusion_of(graph.finish());
  const auto of_more = attention::problem_of(more, h200());
  EXPECT_FALSE(std::get<Problem>(of_more).scores.scale.has_value());
  EXPECT_FALSE(std::get<Problem>(of_more).scores.values->in_score);
}

// "Neither of two conditions" is no conjunction that a comparison could be taken out of.
TEST(ValueMask, StaysInTheScoreWhereItIsBoundToOtherConditions) {
  AttentionGraph graph(kLong);
  GraphBuilder& g = graph.g;
  const Tensor q = g.input("of_queries", {2, 1, 1000, 1}, DataType::i32),
               k = g.input("of_keys", {2, 1, 1, 1000}, DataType::i32);
  graph.keep(
      g.logical_not(g.logical_or(g.cmp_eq(g.add(q, k), g.constant(7, DataType::i32)), g.cmp_neq(q, k))));
  EXPECT_TRUE(scores_of(graph.finish()).values->in_score);
}

TEST(ValueMask, BlocksOfLongSequencesHaveABitEach) {
  const Fusion fusion = test::fusion_of(documents(kLong));
  const auto answer = attention::problem_of(fusion, h200());
  const Schedule schedule(std::get<Problem>(answer), {.tile_k = 96});
  EXPECT_EQ(schedule.words(), 1);
  // A count, and 2 entries of 8 tiles and 11 blocks: heads have no numbers of their own.
  EXPECT_EQ(schedule.ranges()->end_byte(), 16 + 2 * (8 + 11) * 16);
  EXPECT_EQ(attention::lower(schedule).steps.size(), 2U);
  const Fusion few = test::fusion_of(documents({.queries = 256, .keys = 256}));
  const auto of_few = attention::problem_of(few, h200());
  EXPECT_EQ(Schedule(std::get<Problem>(of_few), {.tile_k = 96}).words(), 0);
  EXPECT_EQ(attention::lower(Schedule(std::get<Problem>(of_few), {.tile_k = 96})).steps.size(), 1U);
}

// --- Gradients ---

namespace backward = attention::backward;

// `with_more`: a second condition is bound to the comparison.
Graph gradients(const AttentionCase& c, bool with_more = false) {
  AttentionBackwardGraph graph(c);
  GraphBuilder& g = graph.g;
  const Tensor q = g.input("of_queries", {c.batch, 1, c.queries, 1}, DataType::i32),
               k = g.input("of_keys", {c.batch, 1, 1, c.keys}, DataType::i32);
  const auto is_other = [&] { return g.cmp_eq(g.add(q, k), g.constant(7, DataType::i32)); };
  graph.keep(with_more ? g.logical_not(g.logical_or(is_other(), g.cmp_neq(q, k))) : g.cmp_eq(q, k));
  graph.mask();
  graph.differentiate();
  return graph.finish();
}

backward::Problem problem_of_gradients(const Fusion& fusion) { return test::gradients_of(fusion, h200()); }

constexpr AttentionCase kTwoHeads{.batch = 2, .heads = 2, .shared_heads = 2, .queries = 1000, .keys = 1000};

TEST(ValueMaskOfGradients, IsNoPartOfTheScoreWhereItStandsAlone) {
  const Fusion alone = backward_of(gradients(kTwoHeads));
  const backward::Problem problem = problem_of_gradients(alone);
  EXPECT_TRUE(problem.is_plain());
  ASSERT_NE(problem.mask(), nullptr);
  EXPECT_EQ(problem.mask()->query, Reach::as_much);
  const Fusion more = backward_of(gradients(kTwoHeads, true));
  const backward::Problem of_more = problem_of_gradients(more);
  EXPECT_FALSE(of_more.is_plain());
  EXPECT_EQ(of_more.mask(), nullptr);
  EXPECT_TRUE(of_more.gradient.values->in_score);
}

TEST(ValueMaskOfGradients, EachKernelHasRangesOfItsTilesAndBlocks) {
  const Fusion fusion = backward_of(gradients(kTwoHeads));
  const backward::Problem problem = problem_of_gradients(fusion);
  const backward::Schedule schedule(problem, {.consumers = 2, .step_q = 64, .step_k = 128});
  EXPECT_EQ(schedule.words(0), 1);
  // A count, and 2 entries: heads have no numbers of their own. Blocks of 64 queries and tiles of 128 keys,
  // then tiles and blocks of 128.
  EXPECT_EQ(schedule.ranges(0)->end_byte(), 16 + 2 * (16 + 8) * 16);
  EXPECT_EQ(schedule.ranges(1)->end_byte(), 2 * 16 + 2 * (16 + 8 + 8 + 8) * 16);
  EXPECT_EQ(backward::lower(schedule).steps.size(), 4U);
  const backward::Schedule spilled(problem, {.consumers = 2, .spill = 1});
  EXPECT_EQ(spilled.words(0), 0);
}

TEST(ValueMaskOfGradients, NumbersOfHeadsThatShareKeysLeaveAllBlocks) {
  AttentionCase c = kTwoHeads;
  for (const bool shares : {false, true}) {
    GraphBuilder g("shared");
    const auto input = [&](const char* name, int64_t heads, int64_t rows) {
      return g.input(name, {c.batch, heads, rows, c.head}, c.type);
    };
    const int64_t of_keys = shares ? 1 : c.heads;
    const Tensor q = input("q", c.heads, c.queries), k = input("k", of_keys, c.keys),
                 v = input("v", of_keys, c.keys), dy = input("dy", c.heads, c.queries);
    const auto across = [&](const Tensor& x) { return g.transpose(x, {0, 1, 3, 2}); };
    const auto row = [&](const char* name) {
      return g.input(name, {c.batch, c.heads, c.queries, 1}, DataType::f32);
    };
    const Tensor sees = g.cmp_eq(g.input("of_queries", {c.batch, c.heads, c.queries, 1}, DataType::i32),
                                 g.input("of_keys", {c.batch, c.heads, 1, c.keys}, DataType::i32));
    const Tensor score =
        g.binary_select(g.matmul(q, across(k)), g.constant(-std::numeric_limits<double>::infinity()), sees);
    const Tensor p = g.exp(g.sub(score, row("stats")));
    const Tensor ds = g.mul(p, g.sub(g.matmul(dy, across(v)), row("delta")));
    const auto of_group = [&](const Tensor& x) { return shares ? g.reduce(x, ReductionMode::add, {1}) : x; };
    g.output(g.matmul(ds, k), {.name = "dq", .type = c.type});
    g.output(of_group(g.matmul(across(ds), q)), {.name = "dk", .type = c.type});
    g.output(of_group(g.matmul(across(p), dy)), {.name = "dv", .type = c.type});
    const Fusion fusion = backward_of(g.finish());
    const backward::Problem problem = problem_of_gradients(fusion);
    const backward::Schedule schedule(problem, {.consumers = 2, .step_q = 48, .step_k = 96});
    EXPECT_NE(problem.mask(), nullptr);
    EXPECT_EQ(schedule.words(0), shares ? 0 : 1);
  }
}

// --- Sequences one behind the other ---

// A causal diagonal through each sequence's last query and key is a number of the entry away from the first.
TEST(ValueMask, RaggedSequencesPassOverBlocksBehindTheirDiagonals) {
  const test::RaggedCase c{.queries = {300, 700},
                           .keys = {1400, 800},
                           .head = 128,
                           .value = 128,
                           .is_causal = true,
                           .ends_together = true};
  const Graph by_hand = test::ragged_attention(c), by_op = test::ragged_attention_by_op(c);
  for (const Graph* graph : {&by_hand, &by_op}) {
    const Plan plan = build(*graph, h200(), BuildOptions{.compile = false});
    const std::string text = source(plan);
    for (const char* part : {"ragged = true", "ordered = true", "words = 1", "masks = true"})
      EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(ValueMaskKernels, Compile) {
  std::vector<test::KernelCase> cases, few;
  for (const int64_t head : {64, 128}) {
    const AttentionCase c{.batch = 2,
                          .heads = 2,
                          .shared_heads = 2,
                          .queries = 5000,
                          .keys = 5000,
                          .head = head,
                          .value = head,
                          .mask = test::Mask::causal};
    test::add_kernels(attention_engine(), "documents", test::fusion_of(documents(c)), h200(), cases);
    test::add_kernels(attention_backward_engine(), "gradients", backward_of(gradients(c)), h200(), cases);
  }
  for (size_t i = 0; i < cases.size(); i += 7) few.push_back(cases[i]);
  test::expect_distinct_compiled(few);
}

}  // namespace
}  // namespace fusor::value_mask_test
