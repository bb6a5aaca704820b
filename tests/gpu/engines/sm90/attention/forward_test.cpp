// Owns the GPU tests of forward attention: every setting against the oracle, on odd lengths, masks, shared
// heads and whatever the scores pass through.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <string>

#include "backend/engines/list.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/gpu/engines/sm90/attention/documents.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using test::AttentionCase;
using test::AttentionGraph;
using test::Mask;

const std::array<const Engine*, 1> kAttentionOnly{&attention_engine()};

std::string words(const AttentionCase& c) {
  return fmt::format("{} x {}({}) x {} x {}, {} and {}, mask {}", c.batch, c.heads, c.shared_heads, c.queries,
                     c.keys, c.head, c.value, static_cast<int>(c.mask));
}

const AttentionCase kCases[] = {
    {1, 1, 1, 128, 128, 64, 64},
    {2, 3, 3, 200, 333, 64, 64},
    {1, 2, 2, 129, 1000, 128, 128},
    {1, 2, 2, 1, 77, 128, 128},
    {1, 4, 1, 300, 300, 64, 64, Mask::causal},
    {2, 4, 1, 257, 257, 128, 128, Mask::causal, DataType::f16},
    {1, 2, 2, 100, 400, 128, 128, Mask::bottom_right},
    {1, 2, 1, 500, 500, 64, 128, Mask::window},
    {1, 2, 2, 190, 270, 192, 128, Mask::causal},
    {1, 1, 1, 260, 290, 256, 256},
    {1, 2, 1, 200, 200, 256, 256, Mask::window},
    {1, 2, 2, 150, 150, 80, 40, Mask::causal},
    {1, 2, 2, 65, 513, 72, 104, Mask::none, DataType::f16},
};

class AttentionGpu : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionGpu, Forward) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(test::attention(GetParam()), kAttentionOnly, words(GetParam()));
}

TEST_P(AttentionGpu, ForwardWithStatistics) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(test::attention(GetParam(), true), kAttentionOnly, words(GetParam()));
}

// A scale of any sign is an op of the score.
TEST_P(AttentionGpu, ForwardOfAGivenScale) {
  FUSOR_NEEDS_HOPPER();
  const std::array<const Engine*, 2> engines{&attention_engine(), &attention_mma_engine()};
  const auto expect = [&](AttentionGraph::Scale kind, std::initializer_list<float> scales) {
    const Graph graph = test::attention_of_given_scale(GetParam(), kind);
    expect_every_config_correct(graph, std::span(engines).first(kind == AttentionGraph::Scale::any ? 2 : 1),
                                words(GetParam()));
    for (const float scale : scales) {
      DeviceRun run(graph);
      run.edit("scale", [&](std::byte* bytes) { std::memcpy(bytes, &scale, sizeof scale); });
      run.run();
      const VerifyReport report = run.check();
      EXPECT_TRUE(report.passed()) << words(GetParam()) << " scale " << scale << "\n" << to_string(report);
    }
  };
  expect(AttentionGraph::Scale::positive, {0.1F, 0.7F});
  expect(AttentionGraph::Scale::any, {0.1F, -0.1F, 0.0F});
}

// Lengths of each entry: none, some, all, and a graph's own mask beside them.
TEST_P(AttentionGpu, ForwardOfLengths) {
  FUSOR_NEEDS_HOPPER();
  AttentionCase c = GetParam();
  c.batch = 4;
  if (c.mask == Mask::window) GTEST_SKIP() << "lengths have no window";
  GraphBuilder g("lengths");
  const auto lengths = [&](const char* name) { return g.input(name, {c.batch, 1, 1, 1}, DataType::i32); };
  SdpaOptions options{.attributes = {.attn_scale = 0.125, .padding_mask = true},
                      .seq_len_q = lengths("seq_len_q"),
                      .seq_len_kv = lengths("seq_len_kv")};
  if (c.mask != Mask::none) options.attributes.right_bound = 0;
  const SdpaResults r = g.sdpa_fwd(g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type),
                                   g.input("k", {c.batch, c.shared_heads, c.keys, c.head}, c.type),
                                   g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type), options);
  g.output(r.o, {.name = "o", .type = c.type});
  g.output(r.stats, {.name = "stats", .type = DataType::f32});
  const Graph graph = g.finish();
  const std::array<const Engine*, 2> engines{&attention_engine(), &elementwise_engine()};
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines})) {
    if (!test::is_sampled(words(c) + to_string(candidate.fusions.back().config), 3)) continue;
    DeviceRun run(graph,
                  build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = engines}));
    const auto edit = [&](const char* name, int64_t extent) {
      run.edit(name, [&](std::byte* bytes) {
        const auto most = static_cast<int32_t>(extent);
        const int32_t values[] = {most, 0, most / 2 + 1, 1};
        std::memcpy(bytes, values, sizeof values);
      });
    };
    edit("seq_len_q", c.queries);
    edit("seq_len_kv", c.keys);
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << words(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << words(c);
  }
}

// Beside statistics, which are those of all probabilities.
TEST_P(AttentionGpu, ForwardWithDropout) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase& c = GetParam();
  const double rate = c.keys % 2 == 0 ? 0.1 : 0.5;
  expect_every_config_correct(test::attention_with_dropout(c, test::attributes_of(c, rate)), kAttentionOnly,
                              words(c));
}

// Soft-capped, with a bias of keys and a slope of heads. Heads of 256 leave `attention` registers for blocks
// of 32 keys.
TEST_P(AttentionGpu, ForwardOfAnyScore) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase& c = GetParam();
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  Tensor& score = graph.score;
  score = g.mul(g.tanh(g.div(score, g.constant(5))), g.constant(5));
  score = g.add(score, g.input("bias", {1, c.heads, c.queries, c.keys}, c.type));
  score = g.add(score,
                g.mul(g.sub(graph.key(), graph.row()), g.input("slope", {1, c.heads, 1, 1}, DataType::f32)));
  graph.mask();
  const std::array<const Engine*, 2> engines{&attention_engine(), &attention_mma_engine()};
  expect_every_config_correct(graph.finish(true), engines, words(c));
}

// Products, scaled ones and what a bias makes of them, each rounded to 16 bits in front of the softmax.
TEST_P(AttentionGpu, ForwardOfScoresOfSixteenBits) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase& c = GetParam();
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  graph.score = g.identity(graph.score, {.type = c.type});
  graph.score =
      g.add(graph.score, g.input("bias", {1, c.heads, c.queries, c.keys}, c.type), {.type = c.type});
  graph.mask();
  const std::array<const Engine*, 2> engines{&attention_engine(), &attention_mma_engine()};
  expect_every_config_correct(graph.finish(true), engines, words(c));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionGpu, testing::ValuesIn(kCases));

constexpr DataType kFp8 = DataType::f8_e4m3;

// Operands of 8 bits: values are transposed on their way, in every tail that keys and elements leave.
const AttentionCase kFp8Cases[] = {
    {1, 1, 1, 128, 128, 64, 64, Mask::none, kFp8},
    {1, 1, 1, 128, 128, 128, 128, Mask::none, kFp8},
    {2, 3, 3, 200, 333, 64, 64, Mask::none, kFp8},
    {1, 2, 2, 129, 1000, 128, 128, Mask::none, kFp8},
    {1, 2, 2, 1, 77, 128, 128, Mask::none, kFp8},
    {1, 4, 1, 300, 300, 64, 64, Mask::causal, kFp8},
    {2, 4, 1, 257, 257, 128, 128, Mask::causal, kFp8},
    {1, 2, 2, 100, 400, 128, 128, Mask::bottom_right, kFp8},
    {1, 2, 1, 500, 500, 64, 128, Mask::window, kFp8},
    {1, 2, 2, 150, 150, 80, 48, Mask::causal, kFp8},
    {1, 2, 2, 65, 513, 112, 16, Mask::none, kFp8},
    {1, 1, 1, 193, 31, 16, 96, Mask::none, kFp8},
    {3, 5, 5, 400, 1111, 128, 128, Mask::causal, kFp8},
    {1, 2, 2, 129, 1000, 128, 128, Mask::none, DataType::f8_e5m2},
    {1, 4, 1, 300, 300, 64, 64, Mask::causal, DataType::f8_e5m2},
    {1, 2, 2, 150, 150, 80, 48, Mask::window, DataType::f8_e5m2},
};

class AttentionFp8Gpu : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionFp8Gpu, ByHand) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(test::attention(GetParam(), true), kAttentionOnly, words(GetParam()));
}

TEST_P(AttentionFp8Gpu, ByTheOp) {
  FUSOR_NEEDS_HOPPER();
  if (GetParam().type != kFp8) GTEST_SKIP() << "the op rounds probabilities to fp8_e4m3";
  SdpaAttributes attributes{.attn_scale = 1 / std::sqrt(static_cast<double>(GetParam().head))};
  if (GetParam().mask != Mask::none) attributes.right_bound = 0;
  if (GetParam().mask == Mask::window) attributes.left_bound = test::kWindow;
  if (GetParam().mask == Mask::bottom_right) attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
  expect_every_config_correct(test::attention_in_fp8(GetParam(), attributes, true), kAttentionOnly,
                              words(GetParam()));
}

TEST_P(AttentionFp8Gpu, OfAnyScore) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase& c = GetParam();
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  graph.score = g.mul(g.tanh(g.div(graph.score, g.constant(5))), g.constant(5));
  graph.score = g.add(graph.score, g.input("bias", {1, c.heads, c.queries, c.keys}, DataType::f32));
  graph.mask();
  expect_every_config_correct(graph.finish(true), kAttentionOnly, words(c));
}

// Factors in memory, as quantised operands come with them; probabilities have one, too.
TEST_P(AttentionFp8Gpu, WithFactors) {
  FUSOR_NEEDS_HOPPER();
  AttentionGraph graph(GetParam());
  graph.score = graph.g.mul(graph.score, graph.g.input("descale", {1, 1, 1, 1}, DataType::f32));
  graph.mask();
  expect_every_config_correct(graph.finish(true, 64), kAttentionOnly, words(GetParam()));
}

// As cudnn-frontend writes it; the maxima are launches of their own.
TEST_P(AttentionFp8Gpu, InPrimitives) {
  FUSOR_NEEDS_HOPPER();
  expect_correct(test::quantised_attention(GetParam()), words(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionFp8Gpu, testing::ValuesIn(kFp8Cases));

// Every residue of the lengths modulo tiles and blocks.
TEST(AttentionFp8GpuLengths, FromOneToThreeHundred) {
  FUSOR_NEEDS_HOPPER();
  for (int64_t length = 1; length <= 300; length += length < 140 ? 3 : 7) {
    const int64_t head = length % 2 == 0 ? 64 : 128;
    const AttentionCase c{
        1, 2, 1, length, 301 - length, head, head, length % 3 == 0 ? Mask::none : Mask::causal, kFp8};
    const Graph graph = test::attention(c, true);
    DeviceRun run(graph, build(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kAttentionOnly}));
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << words(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << words(c);
  }
}

// A mask that is no bound, the result in another type and multiplied by a gate.
TEST(AttentionGpuForms, AMaskFromMemoryAndAGateBehind) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase c{2, 2, 2, 140, 210, 64, 64};
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  graph.score = g.add(graph.score, g.input("mask", {c.batch, 1, 1, c.keys}, DataType::f32));
  const Tensor largest = g.reduce(graph.score, ReductionMode::max, {3});
  const Tensor exponential = g.exp(g.sub(graph.score, largest));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
  const Tensor v = g.input("v", {c.batch, c.heads, c.keys, c.value}, c.type);
  const Tensor o = g.matmul(g.div(exponential, sum), v);
  g.output(g.mul(o, g.sigmoid(g.input("gate", o.dims, c.type))), {.name = "o", .type = DataType::f32});
  expect_every_config_correct(g.finish(), kAttentionOnly, "gate");
}

// A matrix of scores comes in boxes, with planes for all entries or for some of them; where its rows are no
// multiple of 16 bytes apart, or 32 bits wide, threads load it.
TEST(AttentionGpuForms, AMatrixOfScores) {
  FUSOR_NEEDS_HOPPER();
  struct Matrix {
    AttentionCase c;
    int64_t batch, heads;
    DataType type;
  };
  for (const Matrix& m :
       {Matrix{{3, 2, 2, 300, 1000, 128, 128}, 1, 2, DataType::bf16},
        Matrix{{2, 2, 1, 333, 328, 64, 64, Mask::causal}, 1, 2, DataType::f16},
        Matrix{{2, 3, 3, 200, 520, 64, 128}, 2, 1, DataType::bf16},
        Matrix{{2, 2, 2, 257, 264, 192, 128, Mask::window, DataType::f16}, 2, 2, DataType::f16},
        Matrix{{1, 2, 2, 190, 333, 128, 128}, 1, 1, DataType::bf16},
        Matrix{{1, 2, 2, 190, 336, 128, 128}, 1, 1, DataType::f32}}) {
    AttentionGraph graph(m.c);
    GraphBuilder& g = graph.g;
    graph.score = g.add(graph.score, g.input("bias", {m.batch, m.heads, m.c.queries, m.c.keys}, m.type));
    graph.mask();
    expect_every_config_correct(graph.finish(true), kAttentionOnly, words(m.c) + " with a matrix");
  }
}

// Documents one behind the other, in no order, and one that has no key.
TEST(AttentionGpuForms, BlocksOfOtherDocumentsArePassedOver) {
  FUSOR_NEEDS_HOPPER();
  for (const AttentionCase& c :
       {AttentionCase{2, 2, 1, 1500, 1500, 128, 128, Mask::causal}, AttentionCase{2, 2, 2, 700, 1333, 64, 64},
        AttentionCase{1, 2, 2, 200, 290, 64, 64, Mask::none, DataType::f16},
        AttentionCase{1, 2, 2, 260, 390, 64, 64, Mask::none, DataType::f8_e4m3}}) {
    AttentionGraph graph(c);
    graph.keep_documents();
    graph.mask();
    test::expect_right_of_documents(graph.finish(true), c, kAttentionOnly, words(c));
  }
}

// Heads of a group as an axis of their own, which keys and values have once.
TEST(AttentionGpuForms, GroupsOfHeads) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("grouped");
  const Tensor q = g.input("q", {2, 2, 3, 150, 64}, DataType::bf16);
  const Tensor k = g.input("k", {2, 2, 1, 64, 200}, DataType::bf16,
                           {.strides = Strides{2 * 200 * 64, 200 * 64, 0, 1, 64}});
  const Tensor v = g.input("v", {2, 2, 1, 200, 64}, DataType::bf16);
  const Tensor score = g.mul(g.matmul(q, k), g.constant(0.125));
  const Tensor exponential = g.exp(g.sub(score, g.reduce(score, ReductionMode::max, {4})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {4}));
  g.output(g.matmul(p, v), {.name = "o"});
  expect_every_config_correct(g.finish(), kAttentionOnly, "groups");
}

}  // namespace
}  // namespace fusor
