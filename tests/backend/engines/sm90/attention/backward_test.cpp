// Owns the tests of attention's backward engine without a GPU: what it reads in a graph, what it refuses, how
// its tiles are walked, and that its kernels compile.
#include <gmock/gmock.h>

#include <set>

#include "backend/build.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/sm90/attention/gradients.h"
#include "tests/support/attention_graph.h"

namespace fusor::backward_test {
namespace {

using attention::backward::Knobs;
using attention::backward::Part;
using attention::backward::Problem;
using attention::backward::Schedule;
using test::AttentionBackwardGraph;
using test::AttentionCase;
using test::backward_of;
using test::Mask;
using test::products_of;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;
using testing::SizeIs;

using test::h200;

Problem problem_of(const Fusion& fusion) { return test::gradients_of(fusion, h200()); }

std::string rule_of(const Graph& graph) {
  const auto answer = attention::backward::problem_of(backward_of(graph), h200());
  const auto* const refusal = std::get_if<Refusal>(&answer);
  return refusal == nullptr ? "" : refusal->rule;
}

Graph by_op(const AttentionCase& c, const SdpaAttributes& attributes, bool has_bias = false) {
  GraphBuilder g("op");
  const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
  const Tensor k = g.input("k", {c.batch, c.shared_heads, c.keys, c.head}, c.type);
  const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
  const Tensor o = g.input("o", {c.batch, c.heads, c.queries, c.value}, c.type);
  const Tensor dy = g.input("dy", {c.batch, c.heads, c.queries, c.value}, c.type);
  const Tensor stats = g.input("stats", {c.batch, c.heads, c.queries, 1}, DataType::f32);
  SdpaOptions options{.attributes = attributes};
  if (attributes.padding_mask) {
    options.seq_len_q = g.input("seq_len_q", {c.batch, 1, 1, 1}, DataType::i32);
    options.seq_len_kv = g.input("seq_len_kv", {c.batch, 1, 1, 1}, DataType::i32);
  }
  if (has_bias) options.bias = g.input("bias", {1, c.heads, c.queries, c.keys}, c.type);
  const SdpaGradients back = g.sdpa_bwd(q, k, v, o, dy, stats, options);
  g.output(back.dq, {.name = "dq", .type = c.type});
  g.output(back.dk, {.name = "dk", .type = c.type});
  g.output(back.dv, {.name = "dv", .type = c.type});
  return g.finish();
}

std::set<std::string> structures_of(const Graph& graph) {
  const Fusion fusion = backward_of(graph);
  const EngineConfig config = test::candidates(attention_backward_engine(), fusion, h200()).front().config;
  std::set<std::string> found;
  for (const Step& step : test::lower(attention_backward_engine(), fusion, config, h200()).steps)
    if (const auto* const launch = std::get_if<Launch>(&step)) found.insert(structure_hash(*launch->source));
  return found;
}

TEST(AttentionBackward, IsOneFusionOfFiveProducts) {
  for (const Graph& graph :
       {test::attention_backward({.heads = 2}), by_op({.heads = 2, .shared_heads = 2}, {})}) {
    const Fusion fusion = backward_of(graph);
    EXPECT_EQ(form_of(fusion), Form::chain);
    EXPECT_THAT(fusion.anchors, SizeIs(5));
    validate(fusion);
  }
}

TEST(AttentionBackward, LeadsToTheSameKernelsByHandAndAsAnOp) {
  const std::set<std::string> by_hand = structures_of(test::attention_backward({.heads = 2}));
  EXPECT_THAT(by_hand, SizeIs(2));
  EXPECT_EQ(by_hand, structures_of(by_op({.heads = 2, .shared_heads = 2}, {.attn_scale = 0.125})));
}

TEST(AttentionBackward, MasksAreBoundsWhereverTheyStand) {
  for (const Mask mask : {Mask::causal, Mask::bottom_right, Mask::window}) {
    const AttentionCase c{.heads = 2, .shared_heads = 2, .queries = 100, .keys = 150, .mask = mask};
    const Fusion by_hand = backward_of(test::attention_backward(c));
    const auto alignment =
        mask == Mask::bottom_right ? DiagonalAlignment::bottom_right : DiagonalAlignment::top_left;
    const Fusion op = backward_of(by_op(c, {.attn_scale = 0.125,
                                            .diagonal_alignment = alignment,
                                            .left_bound = mask == Mask::window ? test::kWindow : -1,
                                            .right_bound = 0}));
    for (const Fusion* fusion : {&by_hand, &op}) {
      const Problem problem = problem_of(*fusion);
      EXPECT_TRUE(problem.is_plain());
      EXPECT_FALSE(problem.gradient.values);
      EXPECT_THAT(problem.gradient.bounds.upper,
                  ElementsAre(FieldsAre(1, mask == Mask::bottom_right ? 50 : 0)));
      if (mask == Mask::window)
        EXPECT_THAT(problem.gradient.bounds.lower, ElementsAre(FieldsAre(1, 1 - test::kWindow)));
      else
        EXPECT_THAT(problem.gradient.bounds.lower, IsEmpty());
    }
  }
}

// Behind the sums of rows; rows beyond their lengths are read as zeros where operands lie.
TEST(AttentionBackward, PaddingOfTheOpIsOneFusionBehindSums) {
  const AttentionCase c{.batch = 2, .heads = 2, .shared_heads = 2, .queries = 300, .keys = 300};
  const Graph graph = by_op(c, {.attn_scale = 0.125, .right_bound = 0, .padding_mask = true});
  const Plan plan = build(graph, h200(), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 2U);
  EXPECT_EQ(plan.fusions.back().config.engine, "attention_backward");
  const std::string text = source(plan);
  for (const char* part : {"upper = 1", "limited = true", "plain = true", "attention_ragged_maps"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(AttentionBackward, ValuesOfARowAreTakenOutOfTheSite) {
  const Fusion fusion = backward_of(test::attention_backward({}));
  const Problem problem = problem_of(fusion);
  EXPECT_THAT(problem.gradient.rows, SizeIs(2));
  EXPECT_DOUBLE_EQ(problem.gradient.scale.value(), 0.125);
  EXPECT_TRUE(problem.gradient.rounds);
  for (const Expr& row : problem.gradient.rows) EXPECT_EQ(row.domain[3], 1);
}

TEST(AttentionBackward, OtherScoresAreComputed) {
  AttentionBackwardGraph capped({.heads = 2, .mask = Mask::causal});
  capped.score = capped.g.tanh(capped.score);
  const Tensor slope = capped.g.sub(capped.g.constant(1), capped.g.mul(capped.score, capped.score));
  capped.mask();
  capped.differentiate();
  capped.gradient = capped.g.mul(capped.gradient, slope);
  const Fusion fusion = backward_of(capped.finish());
  const Problem problem = problem_of(fusion);
  EXPECT_FALSE(problem.is_plain());
  EXPECT_THAT(problem.gradient.bounds.upper, SizeIs(1));
  EXPECT_FALSE(problem_of(backward_of(by_op({.heads = 2, .shared_heads = 2}, {}, true))).is_plain());
  EXPECT_FALSE(
      problem_of(backward_of(by_op({.heads = 2, .shared_heads = 2}, {.alibi_mask = true}))).is_plain());
}

TEST(AttentionBackward, ProductsMayBeRoundedToSixteenBits) {
  AttentionBackwardGraph graph({.heads = 2, .mask = Mask::causal}, true, DataType::bf16);
  graph.mask();
  graph.differentiate();
  const Fusion fusion = backward_of(graph.finish());
  const Problem problem = problem_of(fusion);
  EXPECT_FALSE(problem.is_plain());
  EXPECT_THAT(problem.gradient.bounds.upper, SizeIs(1));
}

TEST(AttentionBackward, HeadsThatShareKeysAreSummedInTheKernel) {
  const Fusion fusion =
      backward_of(by_op({.batch = 3, .heads = 8, .shared_heads = 2}, {.attn_scale = 0.125}));
  const Problem problem = problem_of(fusion);
  EXPECT_EQ(problem.heads(), 4);
  EXPECT_EQ(problem.entries(), 24);
  const Schedule schedule(problem, {});
  EXPECT_EQ(schedule.entries(schedule.parts.front()), 6);
  EXPECT_FALSE(problem.dk->has_reduction());
}

TEST(AttentionBackward, RefusalsNameTheRule) {
  EXPECT_EQ(rule_of(test::attention_backward({})), "");
  EXPECT_EQ(rule_of(test::attention_backward({.head = 512})), "head-elements");
  EXPECT_EQ(rule_of(test::attention_backward({.type = DataType::f32})), "16-bit-operands");
  EXPECT_EQ(rule_of(test::attention_backward({.head = 60})), "16-byte-lines");
  AttentionBackwardGraph without_values({});
  without_values.differentiate();
  GraphBuilder& g = without_values.g;
  g.output(g.matmul(without_values.transposed(without_values.gradient), without_values.q),
           {.name = "dk", .type = DataType::bf16});
  EXPECT_EQ(rule_of(g.finish()), "gradients-of-products");
}

// A second forward pass is no gradient, and a stored probability is no virtual one.
TEST(AttentionBackward, OtherGraphsStayAsTheyWere) {
  EXPECT_THAT(products_of(test::attention({})), SizeIs(1));
  AttentionBackwardGraph stored({});
  stored.differentiate();
  stored.g.output(stored.probability, {.name = "p", .type = DataType::bf16});
  EXPECT_THAT(products_of(stored.finish()), SizeIs(5));
}

TEST(AttentionBackward, AGradientOfScoresMayLeave) {
  AttentionBackwardGraph stored({.mask = Mask::causal});
  stored.mask();
  stored.differentiate();
  stored.g.output(stored.gradient, {.name = "ds", .type = DataType::bf16});
  const Fusion fusion = backward_of(stored.finish());
  EXPECT_THAT(fusion.anchors, SizeIs(5));
  const Problem problem = problem_of(fusion);
  EXPECT_TRUE(problem.is_plain());
  EXPECT_THAT(problem.gradient.stored->stores, SizeIs(1));
  EXPECT_THAT(problem.gradient.bounds.upper, SizeIs(1));
}

// One part of the kernels stores it, and what sums it over batches and heads reads it from memory.
TEST(AttentionBackward, TheGradientOfABiasIsStoredOnce) {
  const AttentionCase c{.batch = 2, .heads = 4, .shared_heads = 2};
  for (const Dims& bias : {Dims{2, 4, 64, 64}, Dims{1, 4, 64, 64}, Dims{2, 1, 1, 64}}) {
    const std::vector<Fusion> products = products_of(test::attention_and_gradients(c, {}, bias));
    ASSERT_THAT(products, SizeIs(2)) << to_string(bias);
    const Fusion& backward = products.back();
    EXPECT_THAT(backward.anchors, SizeIs(5));
    for (const EngineCandidate& candidate : test::candidates(attention_backward_engine(), backward, h200())) {
      std::set<std::string> storing;
      for (const Step& step :
           test::lower(attention_backward_engine(), backward, candidate.config, h200()).steps)
        if (const auto* const launch = std::get_if<Launch>(&step))
          for (const KernelSite& site : launch->source->sites)
            if (site.name == "DS") storing.insert(structure_hash(*launch->source));
      EXPECT_THAT(storing, SizeIs(1)) << to_string(bias) << ' ' << to_string(candidate.config);
    }
  }
}

// Gradients of a bias of each score that layers share are added up behind both, not inside of either.
TEST(AttentionBackward, LayersMayShareABias) {
  GraphBuilder g;
  const Dims dims{2, 4, 64, 64};
  const Tensor bias = g.input("bias", dims, DataType::bf16);
  std::vector<Tensor> results;
  const auto gradient_of_bias = [&](const std::string& layer) {
    const auto input = [&](const char* name) { return g.input(name + layer, dims, DataType::bf16); };
    const SdpaGradients made =
        g.sdpa_bwd(input("q"), input("k"), input("v"), input("o"), input("dy"),
                   g.input("stats" + layer, {2, 4, 64, 1}, DataType::f32), {.bias = bias});
    results.insert(results.end(), {made.dq, made.dk, made.dv});
    return g.identity(made.dbias, {.type = DataType::bf16});
  };
  const Tensor first = gradient_of_bias("1"), second = gradient_of_bias("2");
  results.push_back(g.add(first, second, {.type = DataType::bf16}));
  const std::vector<Fusion> products = products_of(g.finish(results));
  ASSERT_THAT(products, SizeIs(2));
  for (const Fusion& backward : products) {
    EXPECT_THAT(backward.anchors, SizeIs(5));
    EXPECT_TRUE(problem_of(backward).gradient.stored.has_value());
  }
}

TEST(AttentionBackward, GradientsOfScoresAreStoredBesideThoseOfKeys) {
  AttentionBackwardGraph queries({});
  queries.differentiate();
  GraphBuilder& g = queries.g;
  g.output(queries.gradient, {.name = "ds", .type = DataType::bf16});
  g.output(g.matmul(queries.gradient, queries.k), {.name = "dq", .type = DataType::bf16});
  EXPECT_EQ(rule_of(g.finish()), "scores-stay");
}

TEST(AttentionBackward, NoSettingNeedsMoreThanABlockHas) {
  for (const int64_t head : {8, 64, 96, 128, 192, 256}) {
    const Fusion fusion = backward_of(test::attention_backward({.head = head, .value = head}));
    const Problem problem = problem_of(fusion);
    const auto candidates = test::candidates(attention_backward_engine(), fusion, h200());
    EXPECT_FALSE(candidates.empty());
    for (const EngineCandidate& candidate : candidates)
      for (const Part& part :
           Schedule(problem, knobs_of<attention::backward::Knobs>(candidate.config)).parts) {
        EXPECT_LE(part.shared_bytes, h200().shared_per_block);
        EXPECT_GE(part.stages, 2);
      }
  }
}

// The settings of a graph's candidates that leave gradients of scores in the workspace.
std::vector<Knobs> spilling(const Fusion& fusion) {
  std::vector<Knobs> found;
  for (const EngineCandidate& candidate : test::candidates(attention_backward_engine(), fusion, h200()))
    if (const Knobs knobs = knobs_of<Knobs>(candidate.config); knobs.spill > 0) found.push_back(knobs);
  return found;
}

TEST(AttentionBackward, ScoresAreComputedOnceWhereTheirGradientsMayBeStored) {
  const AttentionCase c{
      .batch = 2, .heads = 16, .shared_heads = 16, .queries = 4096, .keys = 4096, .head = 128, .value = 128};
  const Graph graph = by_op(c, {.attn_scale = 0.1});
  const auto spill_of = [&](const BuildOptions& options) {
    return knobs_of<Knobs>(build(graph, h200(), options).fusions.back().config).spill;
  };
  // Chunks follow each other without a gap, so that all at once is no better.
  EXPECT_EQ(spill_of({.compile = false}), 4);
  EXPECT_EQ(spill_of({.max_workspace = int64_t{400} << 20, .compile = false}), 8);
  EXPECT_EQ(spill_of({.max_workspace = 1 << 20, .compile = false}), 0);
}

// Their products take less time than what is stored, but where many blocks share what a tile begins with.
TEST(AttentionBackward, ShortHeadsComputeScoresTwiceUnlessRowsAreMany) {
  for (const int64_t length : {512, 1024, 2048, 16384})
    for (const int64_t right_bound : {SdpaAttributes::kNoBound, int64_t{0}}) {
      const AttentionCase c{.batch = 16384 / length,
                            .heads = 32,
                            .shared_heads = 32,
                            .queries = length,
                            .keys = length,
                            .head = 64,
                            .value = 64};
      const Plan plan =
          build(by_op(c, {.attn_scale = 0.125, .right_bound = right_bound}), h200(), {.compile = false});
      const Knobs knobs = knobs_of<Knobs>(plan.fusions.back().config);
      EXPECT_EQ(knobs.spill > 0, length == 16384) << length << ", " << right_bound;
    }
}

TEST(AttentionBackward, ChunksOfHeadsShareTheWorkspace) {
  const Fusion fusion = backward_of(by_op(
      {.batch = 3, .heads = 8, .shared_heads = 2, .queries = 500, .keys = 700, .head = 128, .value = 128},
      {.attn_scale = 0.1}));
  const Problem problem = problem_of(fusion);
  constexpr int64_t kOfAnEntry = 12 * 9 * 8192, kCounters = 128;
  const Schedule whole(problem, {.spill = 1}), chunks(problem, {.spill = 4, .buffers = 2}),
      more(problem, {.spill = 4, .buffers = 3});
  EXPECT_EQ(whole.spilled_bytes(), 24 * kOfAnEntry);
  EXPECT_EQ(chunks.spilled_bytes(), 2 * 8 * kOfAnEntry + kCounters);
  EXPECT_EQ(more.spilled_bytes(), 3 * 8 * kOfAnEntry + kCounters);
  int64_t entries = 0;
  for (int64_t chunk = 0; chunk < 4; ++chunk) entries += chunks.chunk_entries(chunk);
  EXPECT_EQ(entries, 6);
  const Lowered lowered = lower(chunks);
  EXPECT_THAT(lowered.scratch, ElementsAre(chunks.spilled_bytes()));
}

// A chunk's product is launched behind the next chunk's keys: neither waits for the other's last blocks.
TEST(AttentionBackward, ChunksFollowEachOtherWithoutAGap) {
  const Fusion fusion =
      backward_of(by_op({.batch = 3, .heads = 8, .shared_heads = 2, .head = 128, .value = 128}, {}));
  const Problem problem = problem_of(fusion);
  const Lowered lowered = lower(Schedule(problem, {.spill = 3}));
  ASSERT_THAT(lowered.steps, SizeIs(7));
  EXPECT_TRUE(std::holds_alternative<Fill>(lowered.steps.front()));
  std::string order;
  for (size_t i = 1; i < lowered.steps.size(); ++i) {
    const Launch& launch = std::get<Launch>(lowered.steps[i]);
    order += launch.entry == "attention_backward_keys" ? 'K' : 'S';
  }
  EXPECT_EQ(order, "KKSKSS");
  EXPECT_THAT(lower(Schedule(problem, {.spill = 1})).steps, SizeIs(2));
}

// The scale multiplies gradients of scores: heads of 64 have a power of two.
TEST(AttentionBackward, AScaleThatRoundingsSeeIsNotedAndNotMovedWhereNothingMayBe) {
  for (const int64_t head : {64, 128}) {
    Graph graph = test::gradients_in_primitives({.head = head, .value = head}, false);
    const Fusion fusion = products_of(graph).back();
    EXPECT_EQ(test::notes(attention_backward_engine(), fusion, h200()).late_scale, head == 128);
    EXPECT_TRUE(problem_of(fusion).gradient.slope);
    graph.precision = Precision::strict;
    const Fusion strict = products_of(graph).back();
    EXPECT_EQ(problem_of(strict).gradient.slope.has_value(), head == 64);
  }
}

TEST(AttentionBackward, KnobsThatDoNotGoTogetherAreTheFirstSettingThatDoes) {
  const Fusion fusion = backward_of(by_op({.heads = 2, .shared_heads = 2, .head = 128, .value = 128}, {}));
  const auto lowered = [&](const Knobs& knobs) {
    return test::lower(attention_backward_engine(), fusion, config_of(attention_backward_engine(), knobs),
                       h200());
  };
  const EngineConfig first = test::candidates(attention_backward_engine(), fusion, h200()).front().config;
  const Lowered split = lowered({.split = 1, .spill = 2}), wanted = lowered(knobs_of<Knobs>(first));
  ASSERT_EQ(split.steps.size(), wanted.steps.size());
  EXPECT_EQ(split.scratch, wanted.scratch);
}

// Whatever step a plan asks for: the blocks that are stored have 64 queries.
TEST(AttentionBackward, StoredGradientsSettleTheStepOfQueries) {
  const Fusion fusion =
      backward_of(by_op({.heads = 2, .shared_heads = 2, .head = 128, .value = 128}, {.attn_scale = 0.1}));
  const Problem problem = problem_of(fusion);
  const Schedule schedule(problem, {.step_q = 96, .spill = 1});
  EXPECT_EQ(schedule.parts.front().step, 64);
  EXPECT_TRUE(schedule.fits());
}

TEST(AttentionBackward, MoreHeadsThanFitTheWorkspaceAreSeveralChunks) {
  const Fusion few = backward_of(by_op({.heads = 4, .shared_heads = 4, .head = 128, .value = 128}, {}));
  const Fusion many = backward_of(by_op(
      {.heads = 32, .shared_heads = 32, .queries = 16384, .keys = 16384, .head = 128, .value = 128}, {}));
  EXPECT_FALSE(spilling(few).empty());
  EXPECT_FALSE(spilling(many).empty());
  for (const Knobs& knobs : spilling(many)) EXPECT_GE(knobs.spill, 4);
}

TEST(AttentionBackwardKernels, CompileWithSpilledGradients) {
  std::vector<test::KernelCase> cases;
  for (const int64_t head : {64, 96, 128}) {
    const Fusion fusion =
        backward_of(test::attention_backward({.head = head, .value = head, .mask = Mask::causal}));
    const std::vector<Knobs> settings = spilling(fusion);
    ASSERT_FALSE(settings.empty()) << head;
    for (const Knobs& knobs : settings)
      test::add_kernels("spilled", lower(Schedule(problem_of(fusion), knobs)), cases);
  }
  test::expect_distinct_compiled(cases);
}

TEST(AttentionBackwardKernels, Compile) {
  std::vector<test::KernelCase> cases;
  for (const int64_t head : {64, 128, 256})
    test::add_kernels(
        attention_backward_engine(), "plain",
        backward_of(test::attention_backward({.head = head, .value = head, .mask = Mask::causal})), h200(),
        cases);
  const AttentionCase shared{.heads = 4, .shared_heads = 2, .head = 128, .value = 64, .mask = Mask::window};
  test::add_kernels(attention_backward_engine(), "scored",
                    backward_of(by_op(shared, {.right_bound = 0}, true)), h200(), cases);
  for (const int64_t head : {64, 128}) {
    const AttentionCase c{.heads = 4, .shared_heads = 2, .head = head, .value = head};
    test::add_kernels(
        attention_backward_engine(), "stored",
        products_of(test::attention_and_gradients(c, {.right_bound = 0}, {1, 4, 64, 64})).back(), h200(),
        cases);
  }
  std::vector<test::KernelCase> few;
  for (size_t i = 0; i < cases.size(); i += 9) few.push_back(cases[i]);
  test::expect_distinct_compiled(few);
}

}  // namespace
}  // namespace fusor::backward_test
