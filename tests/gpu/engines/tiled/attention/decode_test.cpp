// Owns the GPU tests of attention_decode: every setting against the oracle, for one and several queries,
// shared heads, masks, odd lengths and layouts, statistics, sinks; and that runs repeat themselves to the
// bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "backend/engines/list.h"
#include "backend/planning.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/attention_graph.h"

namespace fusor::decode_test {
namespace {

using test::AttentionCase;
using test::AttentionGraph;
using test::Mask;

const std::array<const Engine*, 1> kDecodeOnly{&attention_decode_engine()};

#define FUSOR_NEEDS_AMPERE() \
  FUSOR_NEEDS_GPU();         \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs an Ampere GPU or later"

std::string words(const AttentionCase& c) {
  return fmt::format("{} x {}({}) x {} x {}, {} and {}, mask {}", c.batch, c.heads, c.shared_heads, c.queries,
                     c.keys, c.head, c.value, static_cast<int>(c.mask));
}

const AttentionCase kCases[] = {
    {1, 1, 1, 1, 128, 64, 64},
    {4, 8, 1, 1, 3000, 128, 128},
    {1, 8, 1, 1, 5000, 128, 128, Mask::none, DataType::f16},
    {2, 4, 4, 1, 777, 64, 64},
    {4, 4, 1, 4, 2049, 128, 128, Mask::bottom_right},
    {1, 4, 1, 16, 1000, 64, 128, Mask::bottom_right},
    {1, 8, 1, 16, 300, 128, 128, Mask::causal},
    {1, 2, 2, 9, 500, 80, 40, Mask::window},
    {2, 2, 1, 3, 400, 256, 256},
    {1, 2, 1, 5, 259, 20, 6, Mask::causal},
    {2, 2, 2, 7, 131, 5, 33},
    {1, 2, 2, 1, 2, 64, 64},
};

class AttentionDecodeGpu : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionDecodeGpu, Forward) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(test::attention(GetParam()), kDecodeOnly, words(GetParam()));
}

TEST_P(AttentionDecodeGpu, WithStatistics) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(test::attention(GetParam(), true), kDecodeOnly, words(GetParam()));
}

TEST_P(AttentionDecodeGpu, HeadsAcrossMemory) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(test::transposed_attention(GetParam()), kDecodeOnly, words(GetParam()));
}

// Soft-capped, with a bias of keys.
TEST_P(AttentionDecodeGpu, AnyScore) {
  FUSOR_NEEDS_AMPERE();
  const AttentionCase& c = GetParam();
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  graph.score = g.mul(g.tanh(g.div(graph.score, g.constant(5))), g.constant(5));
  graph.score = g.add(graph.score, g.input("bias", {1, c.heads, c.queries, c.keys}, c.type));
  graph.mask();
  expect_every_config_correct(graph.finish(true), kDecodeOnly, words(c));
}

TEST_P(AttentionDecodeGpu, ScoresOfSixteenBits) {
  FUSOR_NEEDS_AMPERE();
  const AttentionCase& c = GetParam();
  AttentionGraph graph(c);
  graph.score = graph.g.identity(graph.score, {.type = c.type});
  graph.mask();
  expect_every_config_correct(graph.finish(true), kDecodeOnly, words(c));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionDecodeGpu, testing::ValuesIn(kCases));

Graph attention_with_sink(int64_t queries, int64_t keys) {
  GraphBuilder g("sink");
  const Tensor q = g.input("q", {2, 8, queries, 64}, DataType::bf16);
  const Tensor k = g.input("k", {2, 2, keys, 64}, DataType::bf16);
  const Tensor v = g.input("v", {2, 2, keys, 64}, DataType::bf16);
  const Tensor sink = g.input("sink", {1, 8, 1, 1}, DataType::f32);
  SdpaAttributes attributes{.attn_scale = 0.125};
  attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
  attributes.right_bound = 0;
  const SdpaResults results = g.sdpa_fwd(q, k, v, {.attributes = attributes, .sink = sink});
  g.output(results.o, {.name = "o", .type = DataType::bf16});
  g.output(results.stats, {.name = "stats", .type = DataType::f32});
  return g.finish();
}

TEST(AttentionDecodeGpuForms, SinksCountOnce) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(attention_with_sink(1, 1500), kDecodeOnly, "sink, one query");
  expect_every_config_correct(attention_with_sink(3, 900), kDecodeOnly, "sink, three queries");
}

// Rows that see no key: the bounds of the first queries lie before the first key.
TEST(AttentionDecodeGpuForms, RowsWithoutKeysAreZero) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(attention_with_sink(12, 5), kDecodeOnly, "fewer keys than queries");
}

// A head whose sink is -inf has none; among its rows are some that see no key.
TEST(AttentionDecodeGpuForms, SinksOfMinusInfinityAreNone) {
  FUSOR_NEEDS_AMPERE();
  const auto expect = [](const Engine& engine, int64_t queries, int64_t keys) {
    const std::array<const Engine*, 2> engines{&engine, &elementwise_engine()};
    const PlannerOptions options{.engine_list = engines};
    const Graph graph = attention_with_sink(queries, keys);
    const DeviceInfo device = DeviceInfo::current();
    DeviceRun run(graph, build(graph, device, candidates(graph, device, options).front(), options));
    run.edit("sink", [](std::byte* bytes) {
      for (size_t head = 0; head < 8; head += 2) {
        const float none = -std::numeric_limits<float>::infinity();
        std::memcpy(bytes + head * sizeof none, &none, sizeof none);
      }
    });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << engine.name() << " " << queries << " x " << keys << "\n"
                                 << to_string(report);
  };
  expect(attention_decode_engine(), 3, 900);
  expect(attention_decode_engine(), 12, 5);
  expect(attention_mma_engine(), 200, 150);
  if (DeviceInfo::current().compute_capability == 90) expect(attention_engine(), 200, 150);
}

// Lengths that only the device knows: of keys, with a diagonal that they move, and a window before that.
Graph attention_of_lengths(int64_t queries) {
  AttentionGraph graph({.batch = 5, .heads = 4, .queries = queries, .keys = 400});
  GraphBuilder& g = graph.g;
  const Tensor whole = g.input("lengths", {5, 1, 1, 1}, DataType::i32);
  const Tensor length = g.mul(g.add(whole, g.constant(5, DataType::i32)), g.constant(40, DataType::i32));
  const Tensor distance = g.sub(graph.key(), graph.row());
  const Tensor diagonal = g.sub(length, g.constant(static_cast<double>(queries), DataType::i32));
  graph.keep(g.cmp_lt(graph.key(), length));
  graph.keep(g.cmp_le(distance, diagonal));
  graph.keep(g.cmp_gt(distance, g.sub(diagonal, g.constant(33, DataType::i32))));
  return graph.finish(true);
}

TEST(AttentionDecodeGpuForms, LengthsOnTheDevice) {
  FUSOR_NEEDS_AMPERE();
  for (const int64_t queries : {1, 3, 7})
    expect_every_config_correct(attention_of_lengths(queries), kDecodeOnly,
                                fmt::format("{} queries with lengths", queries));
}

// Lengths of -4 to 4: of most sequences no key is seen, or no query.
TEST(AttentionDecodeGpuForms, PaddingMasks) {
  FUSOR_NEEDS_AMPERE();
  for (const auto& [queries, values_along_keys] : {std::pair{1, false}, {6, false}, {1, true}}) {
    GraphBuilder g("padding");
    const Tensor q = g.input("q", {6, 8, queries, 64}, DataType::bf16);
    const Tensor k = g.input("k", {6, 2, 200, 64}, DataType::bf16);
    const Tensor v = values_along_keys
                         ? g.transpose(g.input("v", {6, 2, 64, 200}, DataType::bf16), {0, 1, 3, 2})
                         : g.input("v", {6, 2, 200, 64}, DataType::bf16);
    SdpaOptions options{.attributes = {.attn_scale = 0.125, .padding_mask = true}};
    options.seq_len_q = g.input("seq_len_q", {6, 1, 1, 1}, DataType::i32);
    options.seq_len_kv = g.input("seq_len_kv", {6, 1, 1, 1}, DataType::i32);
    const SdpaResults results = g.sdpa_fwd(q, k, v, options);
    g.output(results.o, {.name = "o", .type = DataType::bf16});
    expect_every_config_correct(g.finish(), kDecodeOnly, fmt::format("{} queries, padded", queries));
  }
}

TEST(AttentionDecodeGpuForms, AHundredRunsGiveTheSameBits) {
  FUSOR_NEEDS_AMPERE();
  const Graph graph = test::attention({4, 8, 1, 2, 9000, 128, 128, Mask::bottom_right}, true);
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kDecodeOnly})) {
    if (!test::is_sampled(to_string(candidate.fusions.front().config), 8)) continue;
    DeviceRun run(graph,
                  build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = kDecodeOnly}));
    run.run();
    const std::vector<std::byte> first = run.host("o");
    for (int i = 0; i < 99; ++i) {
      run.run();
      ASSERT_EQ(run.host("o"), first) << "run " << i + 2;
    }
  }
}

}  // namespace
}  // namespace fusor::decode_test
