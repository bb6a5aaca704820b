// Owns the tests that matmuls of few steps are pointwise ops.
#include "backend/planner/rewrites/products/short_products.h"

#include <gtest/gtest.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

int64_t contractions(const Graph& graph) {
  return std::ranges::count_if(expand(graph).ops, [](const Op& op) { return is_contraction(op.attributes); });
}

int64_t contractions_of(const Dims& a, const Dims& b) {
  GraphBuilder g;
  const Tensor y = g.matmul(g.input("a", a, DataType::f16), g.input("b", b, DataType::f16));
  const Graph graph = g.finish({g.relu(y)});
  expect_fusions(graph, 1);
  return contractions(graph);
}

TEST(ShortProducts, OuterProductsAreMultiplied) { EXPECT_EQ(contractions_of({5, 40, 1}, {1, 50}), 0); }

TEST(ShortProducts, SmallMatricesAreMultipliedByElement) {
  EXPECT_EQ(contractions_of({1000, 3, 3}, {1000, 3, 3}), 0);
  EXPECT_EQ(contractions_of({1000, 3, 3}, {3, 3}), 0);
  EXPECT_EQ(contractions_of({70, 8, 16}, {70, 16, 8}), 0);
  EXPECT_EQ(contractions_of({70, 8, 17}, {70, 17, 8}), 1);
  EXPECT_EQ(contractions_of({7, 40, 8}, {7, 8, 40}), 1);
  EXPECT_EQ(contractions_of({100, 3, 3}, {100, 3, 3}), 1) << "few elements";
}

TEST(ShortProducts, ResultsAreRoundedOnce) {
  GraphBuilder g;
  const Tensor a = g.input("a", {1100, 2, 3}, DataType::bf16), b = g.input("b", {1100, 3, 2}, DataType::bf16);
  const Tensor y = g.matmul(a, b, {.type = DataType::bf16});
  expect_fusions(g.finish({g.add(y, g.input("c", {1100, 2, 2}, DataType::bf16))}), 1);
}

TEST(ShortProducts, TermsAreAlignedWhereTheResultIsNot) {
  GraphBuilder g;
  const Tensor a = g.input("a", {1100, 2, 3}, DataType::f32), b = g.input("b", {1100, 3, 2}, DataType::f32);
  g.output(g.matmul(a, b), {.type = DataType::bf16, .alignment = 2});
  expect_fusions(g.finish(), 1);
}

TEST(ShortProducts, ScoresOfAttentionStayProducts) {
  GraphBuilder g;
  const Tensor q = g.input("q", {40, 16, 8}, DataType::f16), k = g.input("k", {40, 8, 16}, DataType::f16);
  const Tensor v = g.input("v", {40, 16, 8}, DataType::f16), e = g.exp(g.matmul(q, k));
  const Tensor p = g.div(e, g.reduce(e, ReductionMode::add, {2}));
  const Graph graph = g.finish({g.matmul(p, v)});
  EXPECT_EQ(contractions(graph), 2);
}

TEST(ShortProducts, NoMoreThanSomeHundredTermsAreWritten) {
  GraphBuilder g;
  std::vector<Tensor> results;
  for (int i = 0; i < 300; ++i) {
    const Tensor a = g.input("a" + std::to_string(i), {1100, 2, 3}, DataType::f32);
    results.push_back(g.matmul(a, g.input("b" + std::to_string(i), {1100, 3, 2}, DataType::f32)));
  }
  EXPECT_EQ(contractions(g.finish(results)), 300 - 512 / 3);
}

}  // namespace
}  // namespace fusor
