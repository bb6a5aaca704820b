// Owns the GPU tests of attention's backward pass: every setting against the oracle, behind the forward pass
// and by itself, on odd lengths, masks, shared heads and other scores.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "backend/engines/list.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/gpu/engines/sm90/attention/documents.h"
#include "tests/gpu/same_bits.h"
#include "tests/support/attention_graph.h"

namespace fusor::backward_test {
namespace {

using test::AttentionBackwardGraph;
using test::AttentionCase;
using test::attributes_of;
using test::Mask;

// mma takes what is left where one key or large heads leave no attention.
const std::array<const Engine*, 5> kEngines{&attention_engine(), &attention_backward_engine(), &rows_engine(),
                                            &elementwise_engine(), &mma_engine()};

std::string words(const AttentionCase& c) {
  return fmt::format("{} x {}({}) x {} x {}, {} and {}, mask {}", c.batch, c.heads, c.shared_heads, c.queries,
                     c.keys, c.head, c.value, static_cast<int>(c.mask));
}

const AttentionCase kCases[] = {
    {1, 1, 1, 128, 128, 64, 64},
    {2, 3, 3, 200, 333, 64, 64},
    {1, 2, 2, 129, 1000, 128, 128},
    {1, 2, 2, 1, 77, 128, 128},
    {1, 2, 2, 77, 1, 64, 64},
    {1, 4, 2, 300, 300, 64, 64, Mask::causal},
    {2, 4, 1, 257, 257, 128, 128, Mask::causal, DataType::f16},
    {1, 2, 2, 100, 400, 128, 128, Mask::bottom_right},
    {1, 2, 2, 400, 100, 128, 128, Mask::causal},
    {1, 2, 2, 400, 100, 64, 64, Mask::bottom_right},
    {1, 4, 2, 500, 500, 64, 128, Mask::window},
    {1, 2, 2, 190, 270, 192, 128, Mask::causal},
    {1, 1, 1, 260, 290, 256, 256},
    {1, 2, 2, 150, 150, 80, 40, Mask::causal},
    {1, 2, 2, 65, 513, 72, 104, Mask::none, DataType::f16},
    {1, 2, 2, 300, 300, 96, 96, Mask::window},
};

class AttentionBackwardGpu : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionBackwardGpu, BehindTheForwardPass) {
  FUSOR_NEEDS_HOPPER();
  expect_every_config_correct(test::attention_and_gradients(GetParam(), attributes_of(GetParam())), kEngines,
                              words(GetParam()));
}

// The mask of the forward pass, found anew in both ways to dq.
TEST_P(AttentionBackwardGpu, WithDropout) {
  FUSOR_NEEDS_HOPPER();
  const double rate = GetParam().keys % 2 == 0 ? 0.1 : 0.5;
  expect_every_config_correct(test::attention_and_gradients(GetParam(), attributes_of(GetParam(), rate)),
                              kEngines, words(GetParam()));
}

// cudnn-frontend writes dropout as rng, select and a product with a scale: a constant or an operand of the
// run.
TEST_P(AttentionBackwardGpu, WithDropoutInPrimitives) {
  FUSOR_NEEDS_HOPPER();
  AttentionCase c = GetParam();
  c.shared_heads = c.heads;
  expect_every_config_correct(test::gradients_in_primitives(c, c.keys % 3 != 0, false, 0.3), kEngines,
                              words(c));
}

// As cudnn-frontend writes it.
TEST_P(AttentionBackwardGpu, OfAGivenScale) {
  FUSOR_NEEDS_HOPPER();
  AttentionCase c = GetParam();
  c.shared_heads = c.heads;
  expect_every_config_correct(test::gradients_in_primitives(c), kEngines, words(c));
}

// Soft-capped, with a bias and the slopes of heads.
TEST_P(AttentionBackwardGpu, OfAnyScore) {
  FUSOR_NEEDS_HOPPER();
  AttentionCase c = GetParam();
  c.shared_heads = c.heads;
  AttentionBackwardGraph graph(c);
  GraphBuilder& g = graph.g;
  const Tensor capped = g.tanh(g.div(graph.score, g.constant(5)));
  const Tensor slope = g.sub(g.constant(1), g.mul(capped, capped));
  graph.score = g.add(g.mul(capped, g.constant(5)), g.input("bias", {1, c.heads, c.queries, c.keys}, c.type));
  graph.mask();
  graph.differentiate();
  graph.gradient = g.mul(graph.gradient, slope);
  expect_every_config_correct(graph.finish(), kEngines, words(c));
}

// Both products rounded to 16 bits.
TEST_P(AttentionBackwardGpu, OfScoresOfSixteenBits) {
  FUSOR_NEEDS_HOPPER();
  AttentionCase c = GetParam();
  c.shared_heads = c.heads;
  AttentionBackwardGraph graph(c, true, c.type);
  graph.mask();
  graph.differentiate();
  expect_every_config_correct(graph.finish(), kEngines, words(c));
}

// The gradient of a bias of each score, of each head's, and of each key's; zeros where a mask hides keys.
TEST_P(AttentionBackwardGpu, OfABias) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase& c = GetParam();
  for (const Dims& bias : {Dims{c.batch, c.heads, c.queries, c.keys}, Dims{1, c.heads, c.queries, c.keys},
                           Dims{c.batch, 1, 1, c.keys}})
    expect_every_config_correct(test::attention_and_gradients(c, attributes_of(c), bias), kEngines,
                                fmt::format("{}, bias {}", words(c), to_string(bias)));
}

// Gradients of scores in the workspace, of all heads at once and of two chunks of them.
TEST_P(AttentionBackwardGpu, WithSpilledGradients) {
  FUSOR_NEEDS_HOPPER();
  const Graph graph = test::attention_and_gradients(GetParam(), attributes_of(GetParam()));
  for (Candidate candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kEngines})) {
    const auto backward = std::ranges::find_if(
        candidate.fusions, [](const PlannedFusion& fusion) { return fusion.config.knob("spill", 0) > 0; });
    if (backward == candidate.fusions.end()) continue;
    expect_config_correct(graph, candidate, kEngines, words(GetParam()));
    if (GetParam().batch * GetParam().shared_heads < 2) continue;
    backward->config.set("spill", 2);
    expect_config_correct(graph, candidate, kEngines, words(GetParam()) + ", chunks");
  }
}

// Lengths of each entry: none, some, all, and a graph's own mask beside them; in both ways to dq.
TEST_P(AttentionBackwardGpu, OfLengths) {
  FUSOR_NEEDS_HOPPER();
  AttentionCase c = GetParam();
  c.batch = 4;
  c.shared_heads = c.heads;
  const Graph graph = test::gradients_in_primitives(c, true, true);
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kEngines})) {
    if (!test::is_sampled(words(c) + to_string(candidate.fusions.back().config), 3)) continue;
    DeviceRun run(graph,
                  build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = kEngines}));
    for (const auto& [name, rows] : {std::pair{"seq_len_q", c.queries}, {"seq_len_kv", c.keys}})
      run.edit(name, [&, extent = rows](std::byte* bytes) {
        const auto most = static_cast<int32_t>(extent);
        const int32_t values[] = {most, 0, most / 2 + 1, 1};
        std::memcpy(bytes, values, sizeof values);
      });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << words(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << words(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionBackwardGpu, testing::ValuesIn(kCases));

// Masks stand alone or behind a causal one; scores are plain or computed; in one case gradients of scores
// leave, too.
TEST(AttentionBackwardGpuForms, BlocksOfOtherDocumentsArePassedOver) {
  FUSOR_NEEDS_HOPPER();
  for (const AttentionCase& c :
       {AttentionCase{2, 2, 2, 1100, 1100, 128, 128, Mask::causal}, AttentionCase{1, 2, 2, 700, 1333, 64, 64},
        AttentionCase{1, 2, 2, 200, 290, 64, 64, Mask::none, DataType::f16},
        AttentionCase{1, 2, 2, 900, 600, 64, 128}})
    for (const bool is_capped : {false, true}) {
      AttentionBackwardGraph graph(c);
      GraphBuilder& g = graph.g;
      Tensor capped;
      if (is_capped) graph.score = capped = g.tanh(graph.score);
      graph.keep_documents();
      graph.mask();
      graph.differentiate();
      if (is_capped) graph.gradient = g.mul(graph.gradient, g.sub(g.constant(1), g.mul(capped, capped)));
      if (c.value != c.head && !is_capped) {
        graph.gradient = g.identity(graph.gradient, {.type = c.type});
        g.output(graph.gradient, {.name = "ds", .type = c.type});
      }
      test::expect_right_of_documents(graph.finish(), c, kEngines,
                                      words(c) + (is_capped ? " capped" : " of documents"));
    }
}

// Blocks of 128 x 128 scores that reach beyond the last query and key, for all heads or for each; one row of
// blocks has no key.
TEST(AttentionBackwardGpuForms, BlockMasksOfTheOp) {
  FUSOR_NEEDS_HOPPER();
  for (const auto& [c, mask_heads] : {std::pair{AttentionCase{2, 4, 2, 300, 520, 64, 64}, 4},
                                      {AttentionCase{1, 2, 2, 257, 130, 128, 128, Mask::causal}, 1},
                                      {AttentionCase{1, 2, 1, 100, 700, 64, 128}, 2}}) {
    const Dims blocks{c.batch, mask_heads, (c.queries + 127) / 128, (c.keys + 127) / 128};
    const Graph graph = test::attention_and_gradients(c, attributes_of(c), {}, blocks);
    DeviceRun run(graph);
    run.edit("blocks", [&](std::byte* bytes) {
      for (int64_t i = 0; i < element_count(blocks); ++i)
        bytes[i] = static_cast<std::byte>(i >= blocks[3] && i % 3 != 1 ? i : 0);
    });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << words(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << words(c);
  }
}

// Every residue of the lengths modulo tiles and blocks.
TEST(AttentionBackwardGpuLengths, FromOneToThreeHundred) {
  FUSOR_NEEDS_HOPPER();
  for (int64_t length = 1; length <= 300; length += length < 140 ? 3 : 7) {
    const AttentionCase c{1, 2, 1, length, 301 - length, 64, 64, length % 2 == 0 ? Mask::none : Mask::causal};
    const Graph graph = test::attention_and_gradients(c, attributes_of(c));
    DeviceRun run(graph, build(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kEngines}));
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << words(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << words(c);
  }
}

// Chunks take turns with the workspace's buffers while the ones before are still under way.
TEST(AttentionBackwardGpuBits, ChunksAreThoseOfAllAtOnce) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase c{3, 6, 6, 1100, 1100, 128, 128, Mask::causal};
  const Graph graph = test::attention_and_gradients(c, attributes_of(c));
  const PlannerOptions options{.engine_list = kEngines};
  const auto may_spill = [](const PlannedFusion& fusion) {
    return fusion.config.engine == attention_backward_engine().name() && fusion.config.knob("split", 1) == 0;
  };
  std::vector<Candidate> all = candidates(graph, DeviceInfo::current(), options);
  const auto spilling = std::ranges::find_if(
      all, [&](const Candidate& one) { return std::ranges::any_of(one.fusions, may_spill); });
  ASSERT_NE(spilling, all.end());
  Plan plan = build(graph, DeviceInfo::current(), *spilling, options);
  const auto backward = std::ranges::find_if(plan.fusions, may_spill);
  std::vector<std::byte> dq;
  for (const auto& [chunks, buffers] : {std::pair{1, 3}, {8, 3}, {8, 2}, {4, 2}, {16, 2}}) {
    backward->config.set("spill", chunks);
    backward->config.set("buffers", buffers);
    expect_same_bits(graph, plan, to_string(backward->config));
    DeviceRun run(graph, plan);
    run.run();
    if (dq.empty()) dq = run.host("dq");
    EXPECT_TRUE(run.host("dq") == dq) << to_string(backward->config);
  }
}

TEST(AttentionBackwardGpuBits, AHundredRunsAreOne) {
  FUSOR_NEEDS_HOPPER();
  const AttentionCase c{2, 4, 2, 1000, 1000, 128, 128, Mask::causal};
  const Graph graph = test::attention_and_gradients(c, attributes_of(c));
  expect_same_bits(graph, build(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kEngines}));
}

}  // namespace
}  // namespace fusor::backward_test
