// Owns the tests of two products without a softmax between them, without a GPU: what the engines take, which
// keys they pass over, and that the kernels compile.
#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/engines/sm90/attention/scores.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using test::AttentionGraph;
using test::h200;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

attention::Scores plain_scores_of(const Graph& graph) {
  const Fusion fusion = test::fusion_of(graph);
  return std::get<attention::Scores>(
      attention::take_apart(fusion, operand_site(fusion, 1, 0), {.plain_chains = true}));
}

std::string rule_of(const Engine& engine, const Graph& graph) {
  const Support support = test::supports(engine, test::fusion_of(graph), h200());
  return support ? "" : support.refusal->rule;
}

Graph of_sigmoid(const test::AttentionCase& c) {
  AttentionGraph graph(c);
  graph.score = graph.g.sigmoid(graph.score);
  graph.keep_or_zero();
  return graph.finish_plain();
}

std::vector<std::string> planned_engines_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const PlannedFusion& fusion : build(graph, h200()).fusions) names.push_back(fusion.config.engine);
  return names;
}

TEST(PlainChain, TakesAnyOpsOnSingleScores) {
  const Graph graph = of_sigmoid({});
  EXPECT_EQ(rule_of(attention_engine(), graph), "");
  EXPECT_EQ(rule_of(attention_mma_engine(), graph), "");
  EXPECT_EQ(rule_of(attention_decode_engine(), graph), "softmax-between");
  EXPECT_FALSE(plain_scores_of(graph).softens);
}

TEST(PlainChain, IsOneFusion) {
  EXPECT_THAT(planned_engines_of(of_sigmoid({.heads = 16, .queries = 2048, .keys = 2048})),
              ElementsAre("attention"));
}

TEST(PlainChain, StrictGraphsHaveThemToo) {
  Graph graph = of_sigmoid({});
  graph.precision = Precision::strict;
  EXPECT_EQ(rule_of(attention_engine(), graph), "");
}

TEST(PlainChain, ASelectOfZeroIsABoundOnKeys) {
  const attention::Scores scores = plain_scores_of(of_sigmoid({}));
  EXPECT_THAT(scores.bounds.upper, ElementsAre(FieldsAre(1, 0)));
  for (const Node& node : scores.score.nodes) EXPECT_NE(node.kind, Node::Kind::index);
}

TEST(PlainChain, ANegatedSelectOfZeroIsOne) {
  AttentionGraph graph({});
  graph.score =
      graph.g.binary_select(graph.g.constant(0), graph.score, graph.g.cmp_lt(graph.row(), graph.key()));
  EXPECT_THAT(plain_scores_of(graph.finish_plain()).bounds.upper, ElementsAre(FieldsAre(1, 0)));
}

TEST(PlainChain, AnExponentialOfMinusInfinityIsZero) {
  AttentionGraph graph({});
  graph.keep(graph.g.cmp_ge(graph.row(), graph.key()));
  graph.score = graph.g.exp(graph.score);
  EXPECT_THAT(plain_scores_of(graph.finish_plain()).bounds.upper, ElementsAre(FieldsAre(1, 0)));
}

TEST(PlainChain, SigmoidOfMinusInfinityIsNoBound) {
  AttentionGraph graph({});
  graph.keep(graph.g.cmp_ge(graph.row(), graph.key()));
  graph.score = graph.g.sigmoid(graph.score);
  EXPECT_THAT(plain_scores_of(graph.finish_plain()).bounds.upper, IsEmpty());
}

TEST(PlainChain, AnotherNumberThanZeroIsNoBound) {
  AttentionGraph graph({});
  graph.score =
      graph.g.binary_select(graph.score, graph.g.constant(1), graph.g.cmp_ge(graph.row(), graph.key()));
  EXPECT_THAT(plain_scores_of(graph.finish_plain()).bounds.upper, IsEmpty());
}

// What is infinite times zero is NaN, which strict graphs keep.
TEST(PlainChain, AFactorOfZeroIsABoundUnlessTheGraphIsStrict) {
  AttentionGraph graph({});
  const Tensor decay = graph.g.binary_select(graph.g.constant(0.5), graph.g.constant(0),
                                             graph.g.cmp_ge(graph.row(), graph.key()));
  graph.score = graph.g.mul(graph.score, decay);
  Graph finished = graph.finish_plain();
  EXPECT_THAT(plain_scores_of(finished).bounds.upper, ElementsAre(FieldsAre(1, 0)));
  finished.precision = Precision::strict;
  EXPECT_THAT(plain_scores_of(finished).bounds.upper, IsEmpty());
}

TEST(PlainChain, AQuotientIsZeroWhereTheDivisorIsKnown) {
  for (const bool is_known : {true, false}) {
    AttentionGraph graph({});
    graph.keep_or_zero();
    graph.score =
        graph.g.div(graph.score, is_known ? graph.g.constant(64) : graph.g.scalar("n", DataType::f32));
    EXPECT_EQ(plain_scores_of(graph.finish_plain()).bounds.upper.size(), is_known ? 1U : 0U);
  }
}

TEST(PlainChain, AConditionAsANumberIsAFactor) {
  AttentionGraph graph({});
  const Tensor sees = graph.g.cmp_ge(graph.row(), graph.key());
  graph.score = graph.g.mul(graph.score, graph.g.identity(sees, {.type = DataType::f32}));
  EXPECT_THAT(plain_scores_of(graph.finish_plain()).bounds.upper, ElementsAre(FieldsAre(1, 0)));
}

TEST(PlainChain, ValuesAreRightOnTheCpu) {
  expect_right_on_cpu(of_sigmoid({.heads = 2, .queries = 20, .keys = 33, .head = 16, .value = 24}));
}

// Mamba-2's chunks: one product for all heads, whose decays are their own.
Graph of_shared_product(int64_t heads, int64_t length) {
  GraphBuilder g;
  const Tensor c = g.input("c", {2, 1, length, 64}, DataType::bf16),
               b = g.input("b", {2, 1, length, 64}, DataType::bf16),
               x = g.input("x", {2, heads, length, 64}, DataType::bf16),
               sums = g.input("sums", {2, heads, length, 1}, DataType::f32);
  const Tensor product = g.matmul(c, g.transpose(b, {0, 1, 3, 2}));
  const Tensor difference = g.sub(sums, g.transpose(sums, {0, 1, 3, 2}));
  const Tensor decay =
      g.exp(g.binary_select(difference, g.constant(-std::numeric_limits<double>::infinity()),
                            g.cmp_ge(g.gen_index(difference, 2), g.gen_index(difference, 3))));
  g.output(g.matmul(g.mul(product, decay), x), {.name = "y", .type = DataType::bf16});
  return g.finish();
}

TEST(PlainChain, HeadsMayShareAProduct) {
  EXPECT_THAT(planned_engines_of(of_shared_product(24, 256)), ElementsAre(testing::StartsWith("attention")));
  expect_right_on_cpu(of_shared_product(3, 20));
}

// Gradients of two products without a softmax: dq = dS k, dk = dS^T q, dv = P^T do.
Graph gradients_of_swish(int64_t heads, int64_t length) {
  GraphBuilder g;
  const auto input = [&](const char* name) { return g.input(name, {1, heads, length, 64}, DataType::bf16); };
  const auto turned = [&](const Tensor& x) { return g.transpose(x, {0, 1, 3, 2}); };
  const Tensor q = input("q"), k = input("k"), v = input("v"), dy = input("do");
  const Tensor s = g.matmul(q, turned(k)), dp = g.matmul(dy, turned(v));
  const Tensor p = g.swish(s, {.type = DataType::bf16}), ds = g.swish_bwd(dp, s, {.type = DataType::bf16});
  g.output(g.matmul(ds, k), {.name = "dq", .type = DataType::bf16});
  g.output(g.matmul(turned(ds), q), {.name = "dk", .type = DataType::bf16});
  g.output(g.matmul(turned(p), dy), {.name = "dv", .type = DataType::bf16});
  return g.finish();
}

TEST(PlainChain, GradientsAreOneFusion) {
  EXPECT_THAT(planned_engines_of(gradients_of_swish(16, 1024)), ElementsAre("attention_backward"));
  expect_right_on_cpu(gradients_of_swish(2, 24));
}

// Hidden rows of layers are long, and so are those of the weights that make them.
TEST(PlainChain, LayersWithWeightsStayApart) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4096, 1024}, DataType::bf16), w = g.input("w", {1024, 4096}, DataType::bf16),
               u = g.input("u", {4096, 1024}, DataType::bf16);
  const Graph graph = g.finish({g.matmul(g.gelu(g.matmul(x, w)), u)});
  EXPECT_THAT(planned_engines_of(graph), testing::SizeIs(2));
}

// A layer's hidden rows may be short, too, where the price of two kernels decides.
TEST(PlainChain, NarrowLayersAreTakenWhereThatIsCheaper) {
  GraphBuilder g;
  const Tensor x = g.input("x", {16384, 256}, DataType::bf16), w = g.input("w", {256, 1024}, DataType::bf16),
               u = g.input("u", {1024, 256}, DataType::bf16);
  const Graph graph = g.finish({g.matmul(g.gelu(g.matmul(x, w)), u)});
  EXPECT_THAT(planned_engines_of(graph), testing::SizeIs(2));
}

TEST(PlainChainKernels, Compile) {
  AttentionGraph bias({.mask = test::Mask::none, .type = DataType::f16});
  bias.score = bias.g.swish(bias.g.add(bias.score, bias.g.input("bias", {1, 1, 64, 64}, DataType::f16)));
  bias.keep_or_zero();
  AttentionGraph product({});
  product.keep_or_zero();
  std::vector<test::KernelCase> cases;
  for (const Graph& graph : {of_sigmoid({}), bias.finish_plain(), product.finish_plain()})
    for (const Engine* engine : {&attention_engine(), &attention_mma_engine()}) {
      const Fusion fusion = test::fusion_of(graph);
      const EngineCandidate first = test::candidates(*engine, fusion, h200()).front();
      test::add_kernels(std::string(engine->name()), test::lower(*engine, fusion, first.config, h200()),
                        cases);
    }
  test::expect_distinct_compiled(cases);
}

}  // namespace
}  // namespace fusor
