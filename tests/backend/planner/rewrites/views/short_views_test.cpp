// Owns the tests that chains of views pass no shape that is a copy.
#include "backend/planner/rewrites/views/short_views.h"

#include <gtest/gtest.h>

#include "backend/build.h"
#include "core/infer.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;

// As PyTorch's attention layers split heads: sequences first, entries and heads joined on the way.
TEST(ShortViews, HeadsAreSplitWithoutACopy) {
  GraphBuilder g;
  const Tensor x = g.input("x", {5, 2, 12}, DataType::f32);
  const Tensor joined = g.reshape(x, {5, 6, 4});
  const Tensor heads = g.reshape(g.transpose(joined, {1, 0, 2}), {2, 3, 5, 4});
  expect_fusions(g.finish({g.mul(heads, g.input("scale", {1, 3, 1, 4}, DataType::f32))}), 1);
}

// Part of a wider tensor: its rows have gaps, and joining axes across them is a copy.
TEST(ShortViews, PartsOfAProductAreSplitWithoutACopy) {
  GraphBuilder g;
  const Tensor x = g.input("x", {10, 8}, DataType::f32), w = g.input("w", {8, 24}, DataType::f32);
  const Tensor qk = g.reshape(g.matmul(x, w), {5, 2, 24});
  const auto heads = [&](int64_t first) {
    const Tensor part = g.reshape(g.slice(qk, {0, 0, first}, {5, 2, first + 12}), {5, 6, 4});
    return g.reshape(g.transpose(part, {1, 0, 2}), {2, 3, 5, 4});
  };
  const Tensor q = heads(0), k = heads(12);
  expect_fusions(g.finish({g.matmul(q, g.transpose(k, {0, 1, 3, 2}))}), 2);
}

// Gradients of the layer above: what is computed may lie as the concatenation has it, if no shape on the way
// joins entries and heads.
TEST(ShortViews, HeadsAreWrittenSideBySideWithoutACopy) {
  GraphBuilder g;
  const auto part = [&](const char* name) {
    const Tensor heads = g.relu(g.input(name, {2, 3, 5, 4}, DataType::f32));
    const Tensor turned = g.transpose(g.reshape(heads, {6, 5, 4}), {1, 0, 2});
    return g.reshape(turned, {5, 2, 12});
  };
  expect_fusions(g.finish({g.concatenate({part("q"), part("k")}, 2)}), 1);
}

TEST(ShortViews, AShapeThatTheLastOneNeedsStays) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {2, 3, 4}, DataType::f32));
  const Graph graph = g.finish({g.exp(g.reshape(g.transpose(x, {1, 0, 2}), {6, 4}))});
  Graph same = graph;
  Additions additions(same);
  EXPECT_FALSE(shorten_views(same, additions));
  expect_right_on_cpu(graph);
}

// The shape that the chain began with: readers of its result read an op's result all the same.
TEST(ShortViews, AChainThatEndsAsItBeganIsOneReshape) {
  GraphBuilder g;
  const Tensor part = g.slice(g.input("x", {3, 4}, DataType::f32), {0, 0}, {2, 3});
  const Tensor turned = g.transpose(g.reshape(part, {1, 6}), {1, 0});
  const Tensor back = g.reshape(g.reshape(turned, {6}), {2, 3});
  const Graph graph = g.finish({g.relu(back), g.exp(g.reshape(part, {6}))});
  Graph shorter = graph;
  Additions additions(shorter);
  EXPECT_TRUE(shorten_views(shorter, additions));
  EXPECT_NO_THROW(validate(shorter));
  expect_right_on_cpu(graph);
}

TEST(ShortViews, AxesOfOneElementAndUnevenCuts) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {1, 4, 1, 6}, DataType::f32));
  const Tensor turned = g.transpose(g.reshape(x, {4, 6}), {1, 0});  // [6, 4]
  const Tensor joined = g.reshape(turned, {24});                    // a copy
  const Tensor back = g.transpose(g.reshape(joined, {1, 6, 4, 1}), {0, 2, 1, 3});
  const Tensor cut = g.reshape(joined, {8, 3});  // no whole parts of 6 and 4
  const Graph graph = g.finish({g.exp(back), g.exp(cut)});
  Graph shorter = graph;
  Additions additions(shorter);
  shorten_views(shorter, additions);
  EXPECT_NO_THROW(validate(shorter));
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
