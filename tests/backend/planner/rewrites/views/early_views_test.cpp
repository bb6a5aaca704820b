// Owns the tests that contractions compute what views show of cheap ops on memory.
#include "backend/planner/rewrites/views/early_views.h"

#include <gtest/gtest.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

// Weights in 8 bits, [n, k], whose rows have a scale each.
TEST(EarlyViews, TransposedWeightsAreDequantisedInTheProduct) {
  for (const int64_t n : {6, 5}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {3, 6}, DataType::f32), w = g.input("w", {n, 6}, DataType::i8);
    const Tensor wide = g.identity(w, {.type = DataType::f32});
    const Tensor scaled = g.mul(wide, g.input("scale", {n, 1}, DataType::f32));
    expect_fusions(g.finish({g.matmul(x, g.transpose(scaled, {1, 0}))}), 1);
  }
}

// A cache of keys, [batch, keys, heads, head], with a scale for each head and key.
TEST(EarlyViews, CachesAreDequantisedInTheProduct) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 3, 1, 4}, DataType::f32), k = g.input("k", {2, 7, 3, 4}, DataType::i8);
  const Tensor scale = g.input("scale", {2, 7, 3, 1}, DataType::f32);
  const Tensor keys = g.mul(g.identity(k, {.type = DataType::f32}), scale);
  expect_fusions(g.finish({g.matmul(q, g.transpose(keys, {0, 2, 3, 1}))}), 1);
}

TEST(EarlyViews, ReshapesAndTransposesComeFirst) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 24}, DataType::f32), w = g.input("w", {5, 2, 12}, DataType::f16);
  const Tensor scaled = g.mul(w, g.input("scale", {5, 1, 1}, DataType::f16));
  expect_fusions(g.finish({g.matmul(x, g.transpose(g.reshape(scaled, {5, 24}), {1, 0}))}), 1);
}

// A squared ReLU in front of a linear layer.
TEST(EarlyViews, AValueThatAnOpReadsTwiceIsMadeOnce) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {4, 9, 6}, DataType::f32));
  const Tensor squared = g.reshape(g.mul(x, x), {36, 6});
  expect_fusions(g.finish({g.matmul(squared, g.input("w", {6, 5}, DataType::f32))}), 1);
}

// No strides show two axes that lie apart as one.
TEST(EarlyViews, ViewsThatNoStridesShowStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 24}, DataType::f32), w = g.input("w", {2, 5, 12}, DataType::f16);
  const Tensor scaled = g.mul(w, g.input("scale", {2, 1, 1}, DataType::f16));
  const Tensor whole = g.reshape(g.transpose(scaled, {1, 0, 2}), {5, 24});
  expect_fusions(g.finish({g.matmul(x, g.transpose(whole, {1, 0}))}), 2);
}

TEST(EarlyViews, ValuesThatOthersReadStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 6}, DataType::f32), w = g.input("w", {5, 6}, DataType::f32);
  const Tensor scaled = g.mul(w, g.constant(2));
  const Tensor y = g.matmul(x, g.transpose(scaled, {1, 0}));
  const Graph graph = g.finish({y, g.exp(scaled)});
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

// What a product gives is made behind it, and not as another loads it.
TEST(EarlyViews, ValuesOfProductsStay) {
  GraphBuilder g;
  const Tensor a = g.input("a", {4, 6}, DataType::f32), b = g.input("b", {6, 5}, DataType::f32);
  const Tensor x = g.input("x", {3, 5}, DataType::f32);
  const Tensor hidden = g.relu(g.matmul(a, b));
  expect_fusions(g.finish({g.matmul(x, g.transpose(hidden, {1, 0}))}), 2);
}

}  // namespace
}  // namespace fusor
