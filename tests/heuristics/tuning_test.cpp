// Owns the tests of the tuning database: which fusions are one, and which measurement is preferred.
#include "heuristics/tuning.h"

#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::ElementsAre;

struct Shape {
  std::string prefix = {};
  int64_t rows = 32;
  DataType type = DataType::bf16;
  bool transposed = false;
  int64_t alignment = 16;
  Precision precision = Precision::exact;
};

std::string key_of(const Shape& shape) {
  GraphBuilder g(shape.prefix + "g", shape.precision);
  TensorOptions options;
  options.alignment = shape.alignment;
  if (shape.transposed) options.strides = Strides{1, shape.rows};
  const Tensor a = g.input(shape.prefix + "a", {shape.rows, 16}, shape.type, options);
  const Tensor b = g.input(shape.prefix + "b", {16, 24}, shape.type);
  const Graph graph = g.finish({g.relu(g.matmul(a, b))});
  const FoldedGraph folded = fold_views(graph);
  return fusion_key(make_fusion(graph, folded, partition(graph, folded).front()));
}

TEST(Tuning, NamesAreNoPartOfTheKey) { EXPECT_EQ(key_of({}), key_of({.prefix = "other "})); }

TEST(Tuning, ExtentsTypesStridesAndAlignmentsAre) {
  const std::string key = key_of({});
  EXPECT_NE(key, key_of({.rows = 33}));
  EXPECT_NE(key, key_of({.type = DataType::f16}));
  EXPECT_NE(key, key_of({.transposed = true}));
  EXPECT_NE(key, key_of({.alignment = 4}));
  EXPECT_NE(key, key_of({.precision = Precision::allow_tf32}));
}

// A forward convolution and the gradient of its input may have the same extents everywhere.
TEST(Tuning, PassesOfAConvolutionAre) {
  const auto key = [](ConvPass pass) {
    GraphBuilder g;
    const Tensor a = g.input("a", {2, 16, 8, 8}, DataType::bf16),
                 b = g.input("b", {16, 16, 3, 3}, DataType::bf16);
    const Graph graph = g.finish({pass == ConvPass::fprop ? g.conv_fprop(a, b, {.padding = {1, 1}})
                                                          : g.conv_dgrad(a, b, a.dims, {.padding = {1, 1}})});
    const FoldedGraph folded = fold_views(graph);
    return fusion_key(make_fusion(graph, folded, partition(graph, folded).front()));
  };
  EXPECT_NE(key(ConvPass::fprop), key(ConvPass::dgrad));
}

MeasuredConfig measured(const std::string& engine, double low, double median, double high) {
  return {{engine, 1, {}}, median, low, high};
}

std::vector<std::string> names(const std::vector<MeasuredConfig>& list) {
  std::vector<std::string> names;
  names.reserve(list.size());
  for (const MeasuredConfig& each : list) names.push_back(each.config.engine);
  return names;
}

TEST(Tuning, TheFastestGoesFirst) {
  EXPECT_THAT(
      names(ranked({measured("slow", 9, 10, 11), measured("fast", 4, 5, 6), measured("middle", 6.5, 7, 8)})),
      ElementsAre("fast", "middle", "slow"));
}

TEST(Tuning, WhatCannotBeToldApartStaysInTheModelsOrder) {
  EXPECT_THAT(names(ranked({measured("model's first", 4.9, 5.1, 5.4), measured("lucky", 4.8, 5, 5.2),
                            measured("slow", 9, 10, 11)})),
              ElementsAre("model's first", "lucky", "slow"));
}

TEST(Tuning, ATableKeepsTheLastMeasurementOfAFusion) {
  TuningTable table;
  table.put({"H200", "k", "", {measured("old", 1, 2, 3)}});
  table.put({"H200", "k", "", {measured("new", 1, 2, 3)}});
  table.put({"A100", "k", "", {measured("other device", 1, 2, 3)}});
  EXPECT_EQ(table.size(), 2u);
  EXPECT_THAT(names(table.find("H200", "k")->configs), ElementsAre("new"));
  EXPECT_EQ(table.find("H200", "l"), nullptr);
}

}  // namespace
}  // namespace fusor
