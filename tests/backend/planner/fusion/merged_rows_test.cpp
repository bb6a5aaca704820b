// Owns the tests that batch entries which share their weights are rows of one product.
#include "backend/planner/fusion/merged_rows.h"

#include <gmock/gmock.h>

#include "backend/engines/contraction/product.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor {
namespace {

using testing::ElementsAre;

// Batch entries, rows, columns, steps.
std::vector<int64_t> extents(const Graph& graph) {
  expect_right_on_cpu(graph);
  const Contraction view = contraction_of(test::fusion_of(graph)).value();
  return {view.entries, view.m, view.n, view.k};
}

TEST(MergedRows, EntriesThatShareWeightsAreRows) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 8}, DataType::f32), w = g.input("w", {8, 5}, DataType::f32);
  const Tensor y = g.add(g.matmul(x, w), g.input("bias", {5}, DataType::f32));
  EXPECT_THAT(extents(g.finish({g.relu(y)})), ElementsAre(1, 6, 5, 8));
}

TEST(MergedRows, SeveralBatchAxesAreRows) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 4, 8}, DataType::f32), w = g.input("w", {1, 8, 5}, DataType::f32);
  const Tensor y = g.add(g.matmul(x, w), g.input("residual", {2, 3, 4, 5}, DataType::f32));
  EXPECT_THAT(extents(g.finish({y})), ElementsAre(1, 24, 5, 8));
}

// A matrix for each of two entries, which three share.
TEST(MergedRows, AxesWithWeightsOfTheirOwnStayEntries) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 4, 8}, DataType::f32), w = g.input("w", {2, 1, 8, 5}, DataType::f32);
  EXPECT_THAT(extents(g.finish({g.matmul(x, w)})), ElementsAre(2, 12, 5, 8));
}

// A query of each image meets a matrix of each head, which images share.
TEST(MergedRows, OuterAxesAreRowsWhereAStrideWalksThem) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 2, 1, 8}, DataType::f32), w = g.input("w", {2, 8, 5}, DataType::f32);
  EXPECT_THAT(extents(g.finish({g.matmul(x, w)})), ElementsAre(2, 6, 5, 8));
  GraphBuilder h;
  const Tensor rows = h.input("x", {6, 2, 3, 8}, DataType::f32), v = h.input("w", {2, 8, 5}, DataType::f32);
  EXPECT_THAT(extents(h.finish({h.matmul(rows, v)})), ElementsAre(12, 3, 5, 8));
}

TEST(MergedRows, SiblingsAreMergedTogether) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 8}, DataType::f32);
  const Tensor gate = g.matmul(x, g.input("a", {8, 5}, DataType::f32));
  const Tensor value = g.matmul(x, g.input("b", {8, 5}, DataType::f32));
  EXPECT_THAT(extents(g.finish({g.mul(g.swish(gate), value)})), ElementsAre(1, 6, 5, 8));
}

// Weights of 8 bits, with a scale for each block of 32 steps and column.
TEST(MergedRows, RowsMeetWeightsInBlocks) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 64}, DataType::bf16), w = g.input("w", {64, 8}, DataType::i8);
  const Tensor blocks = g.reshape(g.identity(w, {.type = DataType::bf16}), {2, 32, 8});
  const Tensor scaled = g.mul(blocks, g.input("s", {2, 1, 8}, DataType::bf16), {.type = DataType::bf16});
  const Graph graph = g.finish({g.matmul(x, g.reshape(scaled, {64, 8}))});
  const Fusion fusion = test::fusion_of(graph);
  EXPECT_EQ(fusion.anchors.at(0).operands.at(1).whole, (Dims{64, 8}));
  EXPECT_EQ(operand_site(fusion, 0, 0).domain, (Dims{6, 64}));
  EXPECT_EQ(result_site(fusion).domain, (Dims{6, 8}));
  expect_right_on_cpu(graph);
}

TEST(MergedRows, TotalsOfAllRowsAreMerged) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 8}, DataType::f32), w = g.input("w", {8, 5}, DataType::f32);
  const Tensor total = g.reduce(g.matmul(x, w), ReductionMode::add, {0, 1});
  EXPECT_THAT(extents(g.finish({total})), ElementsAre(1, 6, 5, 8));
}

// One gate an entry; rows that lie apart; totals of an entry; coordinates of a row.
TEST(MergedRows, WhatNoStrideWalksStays) {
  const auto extents_of = [](auto finish, const Strides& strides = {}) {
    GraphBuilder g;
    const Tensor x = strides.empty() ? g.input("x", {2, 3, 8}, DataType::f32)
                                     : g.input("x", {2, 3, 8}, DataType::f32, {.strides = strides});
    const Tensor y = g.matmul(x, g.input("w", {8, 5}, DataType::f32));
    return extents(g.finish({finish(g, y)}));
  };
  const auto gated = [](GraphBuilder& g, const Tensor& y) {
    return g.mul(y, g.input("gate", {2, 1, 5}, DataType::f32));
  };
  const auto total = [](GraphBuilder& g, const Tensor& y) { return g.reduce(y, ReductionMode::add, {1}); };
  const auto counted = [](GraphBuilder& g, const Tensor& y) { return g.mul(y, g.gen_index(y, 1)); };
  const auto plain = [](GraphBuilder& g, const Tensor& y) { return g.relu(y); };
  EXPECT_THAT(extents_of(gated), ElementsAre(2, 3, 5, 8));
  EXPECT_THAT(extents_of(total), ElementsAre(2, 3, 5, 8));
  EXPECT_THAT(extents_of(counted), ElementsAre(2, 3, 5, 8));
  EXPECT_THAT(extents_of(plain, {32, 8, 1}), ElementsAre(2, 3, 5, 8));
}

}  // namespace
}  // namespace fusor
