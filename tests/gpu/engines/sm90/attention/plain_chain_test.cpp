// Owns the GPU tests of two products without a softmax between them: every setting against the oracle, on odd
// lengths, shared heads, masks that are zeros and whatever the scores pass through.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "backend/engines/list.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using test::AttentionCase;
using test::AttentionGraph;

const std::array<const Engine*, 2> kPlainEngines{&attention_engine(), &attention_mma_engine()};

const AttentionCase kPlainCases[] = {
    {1, 1, 1, 128, 128, 64, 64},
    {2, 3, 3, 200, 333, 64, 64},
    {1, 2, 2, 129, 1000, 128, 128},
    {1, 4, 1, 300, 300, 64, 128},
    {1, 2, 2, 150, 150, 80, 40},
    {1, 1, 1, 260, 290, 128, 256},
    {1, 2, 2, 65, 513, 72, 104, test::Mask::none, DataType::f16},
};

class PlainChainGpu : public testing::TestWithParam<AttentionCase> {
 protected:
  static void expect_correct(const std::function<void(AttentionGraph&)>& change) {
    FUSOR_NEEDS_HOPPER();
    AttentionGraph graph(GetParam());
    change(graph);
    const AttentionCase& c = GetParam();
    expect_every_config_correct(
        graph.finish_plain(), kPlainEngines,
        fmt::format("{} x {} x {} x {}, {} and {}", c.batch, c.heads, c.queries, c.keys, c.head, c.value));
  }
};

TEST_P(PlainChainGpu, Products) {
  expect_correct([](AttentionGraph&) {});
}

TEST_P(PlainChainGpu, SigmoidOfVisibleKeys) {
  expect_correct([](AttentionGraph& graph) {
    graph.score = graph.g.sigmoid(graph.score);
    graph.keep_or_zero();
  });
}

// Keys behind the last one exist for no query: the ops make something else than zero of no score.
TEST_P(PlainChainGpu, OpsThatLeaveNoZero) {
  expect_correct([](AttentionGraph& graph) { graph.score = graph.g.exp(graph.score); });
}

TEST_P(PlainChainGpu, SwishWithABias) {
  expect_correct([](AttentionGraph& graph) {
    const AttentionCase& c = graph.c;
    const Tensor bias = graph.g.input("bias", {1, 1, c.queries, c.keys}, c.type);
    graph.score = graph.g.swish(graph.g.add(graph.score, bias));
  });
}

TEST_P(PlainChainGpu, DecayOfDistances) {
  expect_correct([](AttentionGraph& graph) {
    GraphBuilder& g = graph.g;
    const Tensor distance = g.identity(g.sub(graph.row(), graph.key()), {.type = DataType::f32});
    const Tensor decay = g.exp(g.mul(distance, g.constant(-0.01)));
    graph.score =
        g.mul(graph.score, g.binary_select(decay, g.constant(0), g.cmp_ge(graph.row(), graph.key())));
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, PlainChainGpu, testing::ValuesIn(kPlainCases));

}  // namespace
}  // namespace fusor
