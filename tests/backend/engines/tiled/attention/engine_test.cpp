// Owns the tests of the attention_mma engine without a GPU: which operands it loads how, what it refuses, and
// that its kernels compile for Ampere and Hopper.
#include <gmock/gmock.h>

#include <string>
#include <variant>

#include "backend/build.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/tiled/attention/problem.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using test::AttentionGraph;
using test::Mask;
using tiled_attention::Problem;

using test::device_named;

std::string rule_of(const Graph& graph, const DeviceInfo& on) {
  const Support support = test::supports(attention_mma_engine(), test::fusion_of(graph), on);
  return support ? "" : support.refusal->rule;
}

struct Loads {
  int64_t q_width, k_width, v_width;
  bool k_along_head, v_along_head, k_plain;
  bool operator==(const Loads&) const = default;
};

Loads loads_of(const Graph& graph) {
  const Fusion fusion = test::fusion_of(graph);
  const auto answer = tiled_attention::problem_of(fusion, device_named("A100"));
  const auto& problem = std::get<Problem>(answer);
  return {problem.q.width,      problem.k.width,      problem.v.width,
          problem.k.along_head, problem.v.along_head, problem.k.plain};
}

TEST(AttentionMma, LoadsTheLongestVectorsThatStridesAllow) {
  EXPECT_EQ(loads_of(test::attention({})), (Loads{8, 8, 8, true, true, true}));
  EXPECT_EQ(loads_of(test::attention({.head = 20, .value = 6})), (Loads{4, 4, 2, true, true, true}));
  EXPECT_EQ(loads_of(test::attention({.keys = 7, .head = 5, .value = 5})),
            (Loads{1, 1, 1, true, true, true}));
}

TEST(AttentionMma, LoadsOperandsThatAreAdjacentAlongTheirRows) {
  EXPECT_EQ(loads_of(test::transposed_attention({.keys = 72})), (Loads{8, 8, 8, false, false, true}));
}

TEST(AttentionMma, OperandsMayHaveOpsInFront) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 64, 64}, DataType::f16);
  const Tensor scale = g.input("scale", {2, 1, 64}, DataType::f32);
  const Tensor k = g.mul(g.input("k", {2, 64, 64}, DataType::i8), scale, {.type = DataType::f16});
  const Tensor score = g.matmul(q, k);
  const Tensor exponential = g.exp(g.sub(score, g.reduce(score, ReductionMode::max, {2})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {2}));
  g.output(g.matmul(p, g.input("v", {2, 64, 64}, DataType::f16)), {.name = "o"});
  EXPECT_FALSE(loads_of(g.finish()).k_plain);
}

TEST(AttentionMma, RefusalsNameTheRule) {
  EXPECT_EQ(rule_of(test::attention({}), device_named("A100")), "");
  EXPECT_EQ(rule_of(test::attention({}), DeviceInfo::named("T4")), "sm-80");
  EXPECT_EQ(rule_of(test::attention({.head = 512}), device_named("A100")), "head-elements");
  EXPECT_EQ(rule_of(test::attention({.type = DataType::f32}), device_named("A100")), "16-bit-operands");
  Graph strict = test::attention({});
  strict.precision = Precision::strict;
  EXPECT_EQ(rule_of(strict, device_named("A100")), "late-division");
}

TEST(AttentionMma, PlansAttentionWhereHopperIsNot) {
  const Plan plan =
      build(test::attention({.heads = 8, .queries = 1024, .keys = 1024, .head = 128, .value = 128}),
            device_named("A100"));
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention_mma");
}

TEST(AttentionMma, ServesStridesThatTmaCannot) {
  const Plan plan =
      build(test::attention({.queries = 1000, .keys = 1023, .head = 60, .value = 60}), device_named("H200"));
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention_mma");
}

class AttentionMmaKernels : public testing::TestWithParam<const char*> {};

TEST_P(AttentionMmaKernels, Compile) {
  std::vector<test::KernelCase> cases;
  const auto add = [&](const char* name, const Graph& graph) {
    test::add_kernels(attention_mma_engine(), name, test::fusion_of(graph), device_named(GetParam()), cases);
  };
  for (const int64_t head : {40, 64, 128, 192, 256})
    add("plain", test::attention({.heads = 3, .shared_heads = 3, .head = head, .value = head}));
  add("causal", test::attention({.heads = 4, .head = 96, .value = 72, .mask = Mask::causal}, true));
  add("odd", test::attention({.keys = 63, .head = 25, .value = 31}));
  add("transposed", test::transposed_attention({.head = 128, .value = 128}));
  add("odd across", test::transposed_attention({.queries = 67, .keys = 131, .head = 5, .value = 33}));
  AttentionGraph graph({.heads = 2, .head = 128, .value = 128, .mask = Mask::window});
  graph.score = graph.g.add(graph.g.tanh(graph.score), graph.g.input("bias", {1, 2, 64, 64}, DataType::bf16));
  graph.mask();
  add("scored", graph.finish(true));
  test::expect_distinct_compiled(cases);
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionMmaKernels, testing::Values("A100", "H200"));

}  // namespace
}  // namespace fusor
