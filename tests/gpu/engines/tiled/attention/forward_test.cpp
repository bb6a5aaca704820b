// Owns the GPU tests of attention on mma.sync: every setting against the oracle, on odd lengths, masks,
// shared heads, layouts that TMA cannot read, and ops in front of the operands.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "backend/engines/list.h"
#include "backend/planning.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using test::AttentionCase;
using test::AttentionGraph;
using test::Mask;

const std::array<const Engine*, 1> kMmaAttentionOnly{&attention_mma_engine()};

#define FUSOR_NEEDS_AMPERE() \
  FUSOR_NEEDS_GPU();         \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs an Ampere GPU or later"

std::string words(const AttentionCase& c) {
  return fmt::format("{} x {}({}) x {} x {}, {} and {}, mask {}", c.batch, c.heads, c.shared_heads, c.queries,
                     c.keys, c.head, c.value, static_cast<int>(c.mask));
}

const AttentionCase kCases[] = {
    {1, 1, 1, 128, 128, 64, 64},
    {2, 3, 3, 200, 333, 64, 64},
    {1, 2, 2, 1, 77, 128, 128},
    {1, 4, 1, 300, 300, 64, 64, Mask::causal},
    {2, 4, 1, 257, 257, 128, 128, Mask::causal, DataType::f16},
    {1, 2, 2, 100, 400, 128, 128, Mask::bottom_right},
    {1, 2, 1, 500, 500, 64, 128, Mask::window},
    {1, 2, 2, 190, 270, 192, 128, Mask::causal},
    {1, 1, 1, 260, 290, 256, 256},
    {1, 2, 2, 150, 150, 80, 40, Mask::causal},
    {1, 2, 2, 65, 513, 72, 104, Mask::none, DataType::f16},
    {1, 2, 1, 130, 259, 20, 6, Mask::causal},
    {2, 2, 2, 67, 131, 5, 33},
};

class AttentionMmaGpu : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionMmaGpu, Forward) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(test::attention(GetParam()), kMmaAttentionOnly, words(GetParam()));
}

TEST_P(AttentionMmaGpu, ForwardWithStatistics) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(test::attention(GetParam(), true), kMmaAttentionOnly, words(GetParam()));
}

TEST_P(AttentionMmaGpu, ForwardWithHeadsAcrossMemory) {
  FUSOR_NEEDS_AMPERE();
  expect_every_config_correct(test::transposed_attention(GetParam()), kMmaAttentionOnly, words(GetParam()));
}

// Soft-capped, with a bias of keys.
TEST_P(AttentionMmaGpu, ForwardOfAnyScore) {
  FUSOR_NEEDS_AMPERE();
  const AttentionCase& c = GetParam();
  AttentionGraph graph(c);
  GraphBuilder& g = graph.g;
  graph.score = g.mul(g.tanh(g.div(graph.score, g.constant(5))), g.constant(5));
  graph.score = g.add(graph.score, g.input("bias", {1, c.heads, c.queries, c.keys}, c.type));
  graph.mask();
  expect_every_config_correct(graph.finish(true), kMmaAttentionOnly, words(c));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionMmaGpu, testing::ValuesIn(kCases));

TEST(AttentionMmaGpuForms, OpsInFrontOfEveryOperand) {
  FUSOR_NEEDS_AMPERE();
  GraphBuilder g("prologues");
  const auto scaled = [&](const char* name, const Dims& dims, const Dims& of_scale) {
    const Tensor scale = g.input(fmt::format("{}_scale", name), of_scale, DataType::f32);
    return g.mul(g.mul(g.input(name, dims, DataType::i8), scale), g.constant(1.0 / 64),
                 {.type = DataType::bf16});
  };
  const Tensor q = scaled("q", {2, 3, 150, 64}, {1, 1, 1, 64});
  const Tensor k = scaled("k", {2, 3, 64, 200}, {1, 3, 1, 200});
  const Tensor v = scaled("v", {2, 3, 200, 64}, {2, 1, 1, 1});
  const Tensor score = g.mul(g.matmul(q, k), g.constant(0.125));
  const Tensor exponential = g.exp(g.sub(score, g.reduce(score, ReductionMode::max, {3})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {3}));
  g.output(g.matmul(p, v), {.name = "o", .type = DataType::bf16});
  expect_every_config_correct(g.finish(), kMmaAttentionOnly, "prologues");
}

TEST(AttentionMmaGpuForms, AHundredRunsGiveTheSameBits) {
  FUSOR_NEEDS_AMPERE();
  const Graph graph = test::attention({1, 4, 1, 300, 300, 128, 128, Mask::causal}, true);
  const Plan plan = build(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kMmaAttentionOnly});
  DeviceRun run(graph, plan);
  run.run();
  const std::vector<std::byte> first = run.host("o");
  for (int i = 0; i < 99; ++i) {
    run.run();
    ASSERT_EQ(run.host("o"), first) << "run " << i + 2;
  }
}

}  // namespace
}  // namespace fusor
