// Owns the tests that attention reads a cache and the row appended to it where they lie.
#include "backend/planner/rewrites/concatenations/appended_rows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "backend/build.h"
#include "backend/planner/planner.h"
#include "backend/planning.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/devices.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor::appended_rows_test {
namespace {

using test::device_named;

bool concatenates(const Graph& graph) {
  return std::ranges::any_of(test::planned_once(graph).ops,
                             [](const Op& op) { return std::holds_alternative<Concatenate>(op.attributes); });
}

struct AppendCase {
  int64_t queries = 1, keys = 24, heads = 8, shared_heads = 2, head = 16;
  int64_t rows = 1;       // appended
  bool computed = false;  // the row
  bool is_output = false;
};

Graph appending_attention(const AppendCase& c) {
  GraphBuilder g;
  const auto appended = [&](const std::string& name) {
    const Tensor cache = g.input(name + "_cache", {2, c.shared_heads, c.keys, c.head}, DataType::bf16);
    Tensor row = g.input(name + "_row", {2, c.shared_heads, c.rows, c.head}, DataType::bf16);
    if (c.computed) row = g.tanh(row, {.type = DataType::bf16});
    const Tensor all = g.concatenate({cache, row}, 2);
    return c.is_output ? g.output(all, {.name = name}) : all;
  };
  const Tensor q = g.input("q", {2, c.heads, c.queries, c.head}, DataType::bf16);
  const Tensor k = appended("k"), v = appended("v");
  g.output(g.sdpa_fwd(q, k, v, {.attributes = {.attn_scale = 0.25}}).o, {.name = "o"});
  return g.finish();
}

TEST(AppendedRows, AreReadWhereTheyLie) {
  for (const bool computed : {false, true}) {
    const Graph graph = appending_attention({.computed = computed});
    EXPECT_FALSE(concatenates(graph));
    expect_right_on_cpu(graph);
  }
}

// No pass over the cache stands in front of the attention, whose copies choose between two addresses.
TEST(AppendedRows, DecodingCopiesNoCache) {
  for (const char* on : {"A100", "H200"}) {
    const Plan plan =
        build(appending_attention({.keys = 2048, .head = 128}), device_named(on), {.compile = false});
    ASSERT_EQ(plan.fusions.size(), 1U);
    EXPECT_EQ(plan.fusions[0].config.engine, "attention_decode");
    const std::string text = source(plan);
    for (const char* fact : {"k_plain = true", "v_plain = true", "kMayMiss = true"})
      EXPECT_NE(text.find(fact), std::string::npos) << fact;
  }
}

// Many queries, several rows, a result of the user's.
TEST(AppendedRows, OtherConcatenationsStay) {
  for (const AppendCase& c : {AppendCase{.queries = 40}, {.rows = 3}, {.is_output = true}}) {
    const Graph graph = appending_attention(c);
    EXPECT_TRUE(concatenates(graph));
    expect_right_on_cpu(graph);
  }
}

// A row that is written to its place in the cache by a select.
TEST(AppendedRows, ASelectOfOnePositionIsReadInPlace) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 8, 1, 64}, DataType::bf16);
  const Tensor at = g.input("position", {2, 1, 1, 1}, DataType::i32);
  const auto written = [&](const std::string& name) {
    const Tensor cache = g.input(name + "_cache", {2, 2, 2048, 64}, DataType::bf16);
    const Tensor row = g.input(name + "_row", {2, 2, 1, 64}, DataType::bf16);
    return g.binary_select(row, cache, g.cmp_eq(g.gen_index(cache, 2), at), {.type = DataType::bf16});
  };
  const Tensor k = written("k"), v = written("v");
  g.output(g.sdpa_fwd(q, k, v, {.attributes = {.attn_scale = 0.125}}).o, {.name = "o"});
  const Plan plan = build(g.finish(), device_named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention_decode");
  EXPECT_THAT(source(plan), testing::HasSubstr("k_plain = true"));
}

// Values that are slices of the cache of keys.
TEST(AppendedRows, ALatentCacheIsReadOnce) {
  GraphBuilder g;
  const Tensor cache = g.concatenate(
      {g.input("cache", {64, 4095, 576}, DataType::bf16), g.input("row", {64, 1, 576}, DataType::bf16)}, 1);
  const Tensor s = g.mul(g.matmul(g.input("q", {64, 16, 576}, DataType::bf16), g.transpose(cache, {0, 2, 1})),
                         g.constant(0.07));
  const Tensor p = g.softmax(s, {.axis = 2, .type = DataType::bf16}).y;
  g.output(g.matmul(p, g.slice(cache, {0, 0, 0}, {64, 4096, 512})), {.name = "o", .type = DataType::bf16});
  const Plan plan = build(g.finish(), device_named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_EQ(plan.fusions[0].config.engine, "attention_latent");
}

}  // namespace
}  // namespace fusor::appended_rows_test
