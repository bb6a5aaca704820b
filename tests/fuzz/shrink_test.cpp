// Tests shrinking against failures that are planted.
#include "tools/fuzz/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/infer.h"
#include "frontend/graph_builder.h"
#include "tools/fuzz/random_graph.h"

namespace fusor::fuzz {
namespace {

bool has_mode(const Graph& graph, PointwiseMode mode) {
  return std::ranges::any_of(graph.ops, [&](const Op& op) {
    const auto* pointwise = std::get_if<Pointwise>(&op.attributes);
    return pointwise != nullptr && pointwise->mode == mode;
  });
}

Graph long_graph() {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 40}, DataType::f16, {.strides = Strides{1, 30}, .alignment = 2});
  const Tensor w = g.input("w", {40, 17}, DataType::f16);
  const Tensor product = g.matmul(g.abs(x), w);
  const Tensor curved = g.tanh(g.add(product, product));
  g.output(g.reduce(curved, ReductionMode::add, {0}));
  return g.finish({g.reshape(curved, {17, 24})});
}

TEST(Shrink, APlantedFailureIsReducedToItsCore) {
  const Graph least =
      shrink(long_graph(), [](const Graph& graph) { return has_mode(graph, PointwiseMode::tanh); });
  ASSERT_EQ(least.ops.size(), 1u);
  EXPECT_TRUE(has_mode(least, PointwiseMode::tanh));
  for (const Tensor& tensor : least.tensors) {
    EXPECT_EQ(element_count(tensor.dims), 1);
    EXPECT_EQ(tensor.type, DataType::f32);
  }
}

TEST(Shrink, WhatTheFailureNeedsStays) {
  const auto fails = [](const Graph& graph) {
    return std::ranges::any_of(graph.ops, [&](const Op& op) {
      const Tensor& a = graph.tensors[static_cast<size_t>(op.inputs[0])];
      return std::holds_alternative<Matmul>(op.attributes) && a.dims.back() >= 5 && a.type == DataType::f16;
    });
  };
  GraphBuilder g;
  const Tensor a = g.input("a", {24, 40}, DataType::f16);
  const Tensor b = g.input("b", {40, 17}, DataType::f16);
  const Graph least = shrink(g.finish({g.relu(g.matmul(a, b))}), fails);
  ASSERT_EQ(least.ops.size(), 1u);
  EXPECT_EQ(least.tensors[static_cast<size_t>(least.ops[0].inputs[0])].dims, (Dims{1, 5}));
  EXPECT_EQ(least.tensors[static_cast<size_t>(least.ops[0].inputs[0])].type, DataType::f16);
}

TEST(Shrink, AsksOnlyAboutValidWellConditionedGraphs) {
  for (int64_t index = 0; index < 30; ++index)
    shrink(random_graph(5, index), [](const Graph& graph) {
      EXPECT_NO_THROW(validate(graph));
      EXPECT_TRUE(is_well_conditioned(graph));
      return graph.ops.size() > 1;
    });
}

}  // namespace
}  // namespace fusor::fuzz
