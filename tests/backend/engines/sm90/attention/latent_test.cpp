// Owns the tests of the attention_latent engine without a GPU: which caches it reads once, what it refuses,
// and that its kernels compile.
#include <gmock/gmock.h>

#include <string>
#include <variant>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/engines/sm90/attention/latent.h"
#include "backend/planning.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/support/attention_graph.h"
#include "tests/support/latent_attention.h"

namespace fusor::latent_test {
namespace {

using test::device_named;
using test::LatentCase;

std::string rule_of(const Graph& graph, const char* on = "H200") {
  const Support support = test::supports(attention_latent_engine(), test::fusion_of(graph), device_named(on));
  return support ? "" : support.refusal->rule;
}

TEST(AttentionLatent, IsChosenForALatentCache) {
  for (const int64_t heads : {16, 128}) {
    const Plan plan = build(test::latent_attention({.batch = 64, .heads = heads, .keys = 4096}),
                            device_named("H200"), {.compile = false});
    ASSERT_EQ(plan.fusions.size(), 1U);
    EXPECT_EQ(plan.fusions[0].config.engine, "attention_latent");
  }
}

// Queries in two parts, which are multiplied by slices of the cache, are put side by side.
TEST(AttentionLatent, ASumOfProductsOfSlicesIsOneProduct) {
  const Plan plan = build(test::latent_attention({.form = LatentCase::Form::sum, .batch = 64, .keys = 4096}),
                          device_named("H200"), {.compile = false});
  EXPECT_EQ(plan.fusions.back().config.engine, "attention_latent");
  for (const LatentCase& c : {LatentCase{.form = LatentCase::Form::sum, .keys = 40, .value = 24, .rope = 8},
                              LatentCase{.heads = 3, .keys = 17, .value = 16, .rope = 16, .has_sink = true}})
    expect_right_on_cpu(test::latent_attention(c));
}

TEST(AttentionLatent, RefusesOtherValues) {
  EXPECT_EQ(rule_of(test::latent_attention({})), "");
  EXPECT_EQ(rule_of(test::latent_attention({.has_lengths = true, .has_sink = true, .has_statistics = true})),
            "");
  EXPECT_EQ(rule_of(test::latent_attention({}), "A100"), "sm-90");
  EXPECT_EQ(rule_of(test::latent_attention({.value = 448})), "whole-lines");
  EXPECT_EQ(rule_of(test::latent_attention({.rope = 60})), "whole-vectors");
  EXPECT_EQ(rule_of(test::latent_attention({.rope = 80})), "head-elements");
  EXPECT_EQ(rule_of(test::attention({.heads = 8, .queries = 4, .keys = 512, .head = 128, .value = 128})),
            "values-in-keys");
}

TEST(AttentionLatent, SharedMemoryHoldsEveryCandidate) {
  for (const int64_t value : {128, 256, 512}) {
    const Fusion fusion = test::fusion_of(test::latent_attention({.keys = 2048, .value = value}));
    const auto found = test::candidates(attention_latent_engine(), fusion, device_named("H200"));
    EXPECT_FALSE(found.empty());
    for (const EngineCandidate& candidate : found)
      for (const Step& step :
           test::lower(attention_latent_engine(), fusion, candidate.config, device_named("H200")).steps)
        EXPECT_LE(std::get<Launch>(step).shared_bytes, device_named("H200").shared_per_block);
  }
}

TEST(AttentionLatentKernels, Compile) {
  std::vector<test::KernelCase> cases;
  for (const LatentCase& c :
       {LatentCase{}, LatentCase{.scaled_queries = true},
        LatentCase{.heads = 40, .keys = 777, .value = 256, .rope = 40, .has_lengths = true},
        LatentCase{
            .value = 128, .rope = 64, .has_sink = true, .has_statistics = true, .type = DataType::f16}})
    test::add_kernels(attention_latent_engine(), "latent", test::fusion_of(test::latent_attention(c)),
                      device_named("H200"), cases);
  test::expect_all_compiled(cases);
}

}  // namespace
}  // namespace fusor::latent_test
