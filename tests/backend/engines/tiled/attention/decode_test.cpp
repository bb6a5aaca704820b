// Owns the tests of the attention_decode engine without a GPU: what it packs into a tile, how it splits keys,
// what it refuses, and that its kernels compile for Ampere and Hopper.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <variant>

#include "backend/build.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/tiled/attention/decode.h"
#include "backend/planning.h"
#include "backend/report/explain.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"
#include "tests/support/paged_attention.h"

namespace fusor {
namespace {

using test::AttentionCase;
using test::Mask;
using tiled_attention::DecodeKnobs;
using tiled_attention::DecodeProblem;

using test::device_named;

std::string rule_of(const Graph& graph) {
  const Support support =
      test::supports(attention_decode_engine(), test::fusion_of(graph), device_named("H200"));
  return support ? "" : support.refusal->rule;
}

Plan plan_of(const AttentionCase& c, const char* on) { return build(test::attention(c), device_named(on)); }

TEST(AttentionDecode, PacksTheHeadsThatShareKeys) {
  const Fusion fusion = test::fusion_of(test::attention({.batch = 2, .heads = 4, .queries = 3, .keys = 512}));
  const auto answer = tiled_attention::decode_problem_of(fusion, device_named("H200"));
  const auto& decode = std::get<DecodeProblem>(answer);
  EXPECT_EQ(decode.heads, 4);
  EXPECT_EQ(decode.rows(), 12);
  EXPECT_EQ(decode.entries(), 2);
}

// Values lie along the heads, or along the keys.
Graph padded_attention(int64_t queries, bool values_along_keys = false) {
  GraphBuilder g;
  const Tensor q = g.input("q", {6, 8, queries, 64}, DataType::bf16);
  const Tensor k = g.input("k", {6, 2, 4096, 64}, DataType::bf16);
  const Tensor v = values_along_keys
                       ? g.transpose(g.input("v", {6, 2, 64, 4096}, DataType::bf16), {0, 1, 3, 2})
                       : g.input("v", {6, 2, 4096, 64}, DataType::bf16);
  SdpaOptions options{.attributes = {.attn_scale = 0.125,
                                     .diagonal_alignment = DiagonalAlignment::bottom_right,
                                     .left_bound = 64,
                                     .right_bound = 0,
                                     .padding_mask = true}};
  options.seq_len_q = g.input("seq_len_q", {6, 1, 1, 1}, DataType::i32);
  options.seq_len_kv = g.input("seq_len_kv", {6, 1, 1, 1}, DataType::i32);
  g.output(g.sdpa_fwd(q, k, v, options).o, {.name = "o", .type = DataType::bf16});
  return g.finish();
}

// The score is left without its masks, and values without their padding.
TEST(AttentionDecode, ReadsLengthsAsLimits) {
  for (const int64_t queries : {1, 4}) {
    const Plan plan = build(padded_attention(queries), device_named("H200"));
    ASSERT_EQ(plan.fusions.size(), 1U);
    EXPECT_EQ(plan.fusions[0].config.engine, "attention_decode");
    const std::string text = source(plan);
    for (const char* fact : {"limits = 4", "plain_scores = true", "v_plain = true"})
      EXPECT_NE(text.find(fact), std::string::npos) << fact;
  }
}

// A vector along the keys may reach beyond a length: the select that makes zeros of what is no number stays.
TEST(AttentionDecode, ValuesAlongTheKeysKeepTheirPadding) {
  const Plan plan = build(padded_attention(1, true), device_named("H200"));
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention_decode");
  EXPECT_THAT(source(plan), testing::HasSubstr("v_plain = false"));
}

// Rows of pages are loaded by their places, each once: no copy of them is made.
TEST(AttentionDecode, ReadsPagesInPlace) {
  using Form = test::PagedCase::Form;
  for (const Form form : {Form::op, Form::loads, Form::written_out})
    for (const bool has_lengths : {false, true})
      for (const bool heads_within_rows : {false, true}) {
        const Graph graph = test::paged_attention({.form = form,
                                                   .batch = 4,
                                                   .keys = 2000,
                                                   .has_lengths = has_lengths,
                                                   .heads_within_rows = heads_within_rows});
        for (const char* on : {"A100", "H200"}) {
          const Plan plan = build(graph, device_named(on), {.compile = false});
          ASSERT_EQ(plan.fusions.size(), 1U);
          EXPECT_EQ(plan.fusions[0].config.engine, "attention_decode");
          const std::string text = source(plan);
          for (const char* fact : {"k_plain = true", "v_plain = true", "kMayMiss = true"})
            EXPECT_NE(text.find(fact), std::string::npos) << fact;
        }
      }
}

// Tiles of many queries would look up each row again.
TEST(AttentionDecode, ManyQueriesHaveTheirPagesGathered) {
  const Plan plan = build(test::paged_attention({.queries = 64, .keys = 512, .has_lengths = false}),
                          device_named("H200"), {.compile = false});
  EXPECT_GT(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions.back().config.engine, "attention");
}

TEST(AttentionDecode, PagesThatOthersReadAreGathered) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 8, 1, 64}, DataType::bf16);
  const Tensor cache = g.input("cache", {20, 8, 16, 64}, DataType::bf16);
  const Tensor table = g.input("table", {2, 1, 8, 1}, DataType::i32);
  const Tensor rows = g.paged_cache_load(cache, table);
  g.output(g.sdpa_fwd(q, rows, rows).o, {.name = "o", .type = DataType::bf16});
  g.output(g.neg(rows), {.name = "rows", .type = DataType::bf16});
  EXPECT_GT(build(g.finish(), device_named("H200"), {.compile = false}).fusions.size(), 1U);
}

TEST(AttentionDecode, PagesCountOnceInWhatIsRead) {
  const Graph graph = test::paged_attention({.batch = 8, .keys = 4096, .has_lengths = false});
  EXPECT_THAT(explain(graph, device_named("H200")), testing::HasSubstr(": 16.0 MiB"));
}

TEST(AttentionDecode, RefusesWhatIsNoDecoding) {
  EXPECT_EQ(rule_of(test::attention({.heads = 8, .queries = 16, .keys = 512})), "");
  EXPECT_EQ(rule_of(test::attention({.heads = 8, .queries = 17, .keys = 512})), "few-rows");
  EXPECT_EQ(rule_of(test::attention({.queries = 129, .keys = 512})), "few-rows");
}

TEST(AttentionDecode, CarriesOutSmallAndOddCases) {
  for (const AttentionCase& c : {AttentionCase{2, 4, 4, 1, 777, 64, 64},
                                 {1, 2, 2, 1, 2, 64, 64},
                                 {1, 4, 1, 16, 1000, 64, 128, Mask::bottom_right},
                                 {1, 8, 1, 16, 300, 128, 128, Mask::causal},
                                 {1, 2, 2, 9, 500, 80, 40, Mask::window}}) {
    EXPECT_EQ(rule_of(test::attention(c)), "");
    EXPECT_EQ(rule_of(test::transposed_attention(c)), "");
  }
}

TEST(AttentionDecode, IsChosenForAFewQueriesOfALongCache) {
  for (const char* on : {"A100", "H200"})
    for (const int64_t batch : {1, 8})
      for (const int64_t keys : {2048, 32768}) {
        const Plan plan = plan_of(
            {.batch = 8 * batch, .heads = 8, .queries = 1, .keys = keys, .head = 128, .value = 128}, on);
        ASSERT_EQ(plan.fusions.size(), 1U);
        EXPECT_EQ(plan.fusions[0].config.engine, "attention_decode");
      }
}

TEST(AttentionDecode, OneSequenceKeepsTheDeviceBusy) {
  const AttentionCase c{.batch = 8, .heads = 8, .queries = 1, .keys = 131072, .head = 128, .value = 128};
  for (const char* on : {"A100", "H200"}) {
    const Plan plan = plan_of(c, on);
    const auto knobs = knobs_of<DecodeKnobs>(plan.fusions.at(0).config);
    EXPECT_GE(8 * knobs.split, device_named(on).sm_count * 9 / 10) << on;
  }
}

TEST(AttentionDecode, SharedMemoryHoldsEveryCandidate) {
  const Fusion fusion = test::fusion_of(
      test::attention({.batch = 4, .heads = 8, .queries = 4, .keys = 4096, .head = 256, .value = 256}));
  for (const char* on : {"A100", "H200"}) {
    const auto found = test::candidates(attention_decode_engine(), fusion, device_named(on));
    EXPECT_FALSE(found.empty());
    for (const EngineCandidate& candidate : found)
      for (const Step& step :
           test::lower(attention_decode_engine(), fusion, candidate.config, device_named(on)).steps)
        EXPECT_LE(std::get<Launch>(step).shared_bytes, device_named(on).shared_per_block);
  }
}

class AttentionDecodeKernels : public testing::TestWithParam<const char*> {};

TEST_P(AttentionDecodeKernels, Compile) {
  std::vector<test::KernelCase> cases;
  const auto add = [&](const char* name, const Graph& graph) {
    test::add_kernels(attention_decode_engine(), name, test::fusion_of(graph), device_named(GetParam()),
                      cases);
  };
  for (const int64_t head : {40, 64, 128, 192, 256})
    add("plain",
        test::attention({.batch = 2, .heads = 4, .queries = 5, .keys = 999, .head = head, .value = head}));
  add("causal",
      test::attention(
          {.heads = 4, .queries = 9, .keys = 999, .head = 96, .value = 72, .mask = Mask::bottom_right},
          true));
  add("odd", test::attention({.queries = 3, .keys = 63, .head = 25, .value = 31}));
  add("transposed", test::transposed_attention({.queries = 4, .keys = 800, .head = 128, .value = 128}));
  test::AttentionGraph graph(
      {.heads = 2, .queries = 1, .keys = 640, .head = 128, .value = 128, .mask = Mask::bottom_right});
  graph.score = graph.g.add(graph.g.tanh(graph.score), graph.g.input("bias", {1, 2, 1, 640}, DataType::bf16));
  graph.mask();
  add("scored", graph.finish(true));
  for (const int64_t head : {64, 80, 128}) {
    const Graph paged = test::paged_attention({.batch = 3, .keys = 500, .head = head});
    const Plan plan = build(paged, device_named(GetParam()), {.compile = false});
    ASSERT_EQ(plan.fusions.size(), 1U);
    test::add_kernels(attention_decode_engine(), "paged", kernels(plan).front().description,
                      device_named(GetParam()), cases);
  }
  test::expect_distinct_compiled(cases);
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionDecodeKernels, testing::Values("A100", "H200"));

}  // namespace
}  // namespace fusor
