// Owns the tests of which matmuls by experts the wgmma engine carries out whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/build.h"
#include "core/print.h"
#include "tests/support/expert_matmul.h"

namespace fusor {
namespace {

using test::ExpertCase;

Plan plan_on(const Graph& graph, const char* device) {
  return build(graph, DeviceInfo::named(device), {.compile = false});
}

// The workspace of the list alone: a dense product would store all rows by all experts.
constexpr int64_t kListOfTiles = 1024;

TEST(Experts, AreOneFusionWithWhatComesBehind) {
  for (const bool lies_across : {false, true})
    for (const bool has_matrix : {false, true}) {
      const Plan plan = plan_on(
          test::expert_matmul({.lies_across = lies_across, .has_matrix = has_matrix, .has_epilogue = true}),
          "H200");
      ASSERT_EQ(plan.fusions.size(), 1U);
      EXPECT_EQ(plan.fusions[0].config.engine, "wgmma");
      EXPECT_LE(plan.workspace_bytes, kListOfTiles);
      EXPECT_NE(source(plan).find("wgmma_expert_tiles"), std::string::npos);
    }
}

TEST(Experts, GatheredTokensAreMadeInFront) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 200, 64}, DataType::bf16), w = g.input("w", {4, 64, 96}, DataType::bf16),
               first = g.input("first", {4, 1, 1}, DataType::i32),
               index = g.input("index", {1, 400, 1}, DataType::i32);
  const Graph graph = g.finish(
      {g.moe_grouped_matmul(x, w, first, {.mode = TokenMode::gather, .token_index = index, .top_k = 2})});
  const Plan plan = plan_on(graph, "H200");
  EXPECT_EQ(plan.fusions.back().config.engine, "wgmma");
  EXPECT_LE(plan.workspace_bytes, 400 * 64 * 2 + 400 * 4 + kListOfTiles);
}

TEST(Experts, OtherTypesLinesAndDevicesMultiplyAllRowsByAll) {
  const auto has_list = [](const ExpertCase& c, const char* device) {
    return source(plan_on(test::expert_matmul(c), device)).find("wgmma_expert_tiles") != std::string::npos;
  };
  EXPECT_TRUE(has_list({}, "H200"));
  EXPECT_FALSE(has_list({.type = DataType::f32}, "H200"));
  EXPECT_FALSE(has_list({.n = 90}, "H200"));
  EXPECT_FALSE(has_list({.k = 60}, "H200"));
  EXPECT_FALSE(has_list({}, "A100"));
}

// Experts' rows that are scattered are read through a view of the tokens.
TEST(Experts, TokensThatMayStartAnywhereMultiplyAllRowsByAll) {
  for (const TokenMode mode : {TokenMode::none, TokenMode::scatter})
    for (const int alignment : {8, 16}) {
      GraphBuilder g;
      const Tensor x = g.input("x", {200, 64}, DataType::bf16, {.alignment = alignment}),
                   w = g.input("w", {4, 64, 96}, DataType::bf16),
                   first = g.input("first", {4, 1, 1}, DataType::i32);
      const Tensor index = mode == TokenMode::none ? Tensor() : g.input("index", {200}, DataType::i32);
      const Graph graph = g.finish({g.moe_grouped_matmul(x, w, first, {.mode = mode, .token_index = index})});
      const std::string text = source(plan_on(graph, "H200"));
      EXPECT_EQ(text.find("wgmma_expert_tiles") != std::string::npos, alignment == 16);
    }
}

TEST(Experts, AnEngineThatIsForbiddenCarriesOutNone) {
  const Plan plan = build(test::expert_matmul({}), DeviceInfo::named("H200"),
                          BuildOptions{.forbid = {"wgmma"}, .compile = false});
  EXPECT_EQ(source(plan).find("wgmma_expert_tiles"), std::string::npos);
}

// A total of rows of all experts would be one of each expert's rows.
TEST(Experts, TotalsOfTheResultAreAFusionOfTheirOwn) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 256, 64}, DataType::bf16), w = g.input("w", {2, 64, 96}, DataType::bf16);
  const Tensor y = g.moe_grouped_matmul(x, w, g.input("first", {2, 1, 1}, DataType::i32));
  const Graph graph = g.finish({y, g.reduce(y, ReductionMode::add, {1})});
  EXPECT_EQ(plan_on(graph, "H200").fusions.size(), 2U);
}

}  // namespace
}  // namespace fusor
