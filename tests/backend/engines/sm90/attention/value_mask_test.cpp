// Owns the tests of masks that compare numbers of queries and keys: which are found, what they leave to the
// score, and that the kernels that pass over blocks compile.
#include <gmock/gmock.h>

#include "backend/engines/list.h"
#include "backend/engines/sm90/attention/problem.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using attention::Problem;
using attention::Reach;
using attention::Schedule;
using attention::ValueMask;
using test::AttentionCase;
using test::AttentionGraph;

const DeviceInfo& h200() {
  static const DeviceInfo device = DeviceInfo::named("H200");
  return device;
}

constexpr AttentionCase kLong{.batch = 2, .heads = 3, .shared_heads = 3, .queries = 1000, .keys = 1000};

attention::Scores scores_of(const Graph& graph) {
  const Fusion fusion = test::fusion_of(graph);
  return std::get<attention::Scores>(attention::take_apart(fusion, operand_site(fusion, 1, 0)));
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
  GraphBuilder& g = graph.g;
  graph.keep(g.cmp_eq(g.input("of_queries", {c.batch, 1, c.queries, 1}, DataType::i32),
                      g.input("of_keys", {c.batch, 1, 1, c.keys}, DataType::i32)));
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
  graph.keep(g.logical_and(g.cmp_eq(q, k), g.cmp_neq(g.add(q, k), g.constant(7, DataType::i32))));
  const Fusion more = test::fusion_of(graph.finish());
  const auto of_more = attention::problem_of(more, h200());
  EXPECT_FALSE(std::get<Problem>(of_more).scores.scale.has_value());
  EXPECT_TRUE(std::get<Problem>(of_more).scores.values->in_score);
}

TEST(ValueMask, BlocksOfLongSequencesHaveABitEach) {
  const Fusion fusion = test::fusion_of(documents(kLong));
  const auto answer = attention::problem_of(fusion, h200());
  const Schedule schedule(std::get<Problem>(answer), {.tile_k = 96});
  EXPECT_EQ(schedule.words(), 1);
  // 2 entries of 8 tiles and 11 blocks: heads have no numbers of their own.
  EXPECT_EQ(schedule.ranges()->bytes(), 2 * (8 + 11) * 16);
  EXPECT_EQ(attention::lower(schedule).steps.size(), 2U);
  const Fusion few = test::fusion_of(documents({.queries = 256, .keys = 256}));
  const auto of_few = attention::problem_of(few, h200());
  EXPECT_EQ(Schedule(std::get<Problem>(of_few), {.tile_k = 96}).words(), 0);
  EXPECT_EQ(attention::lower(Schedule(std::get<Problem>(of_few), {.tile_k = 96})).steps.size(), 1U);
}

TEST(ValueMaskKernels, Compile) {
  std::vector<test::KernelCase> cases, few;
  for (const int64_t head : {64, 128})
    test::add_kernels(attention_engine(), "documents",
                      test::fusion_of(documents({.batch = 2,
                                                 .heads = 2,
                                                 .shared_heads = 2,
                                                 .queries = 5000,
                                                 .keys = 5000,
                                                 .head = head,
                                                 .value = head,
                                                 .mask = test::Mask::causal})),
                      h200(), cases);
  for (size_t i = 0; i < cases.size(); i += 7) few.push_back(cases[i]);
  test::expect_distinct_compiled(few);
}

}  // namespace
}  // namespace fusor
