// Owns the tests of which ops of softmax, norms and their like become one fusion.
#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "core/fusion.h"
#include "tests/backend/engines/rows/cases.h"

namespace fusor {
namespace {

using namespace rows_cases;
using testing::SizeIs;

std::vector<std::vector<int>> groups_of(const Graph& graph) {
  const Graph expanded = expand(graph);
  return partition(expanded, fold_views(expanded));
}

void expect_one_fusion(const Graph& graph, int phase_count) {
  const Graph expanded = expand(graph);
  const FoldedGraph folded = fold_views(expanded);
  const auto groups = partition(expanded, folded);
  ASSERT_THAT(groups, SizeIs(1)) << graph.name;
  const Fusion fusion = make_fusion(expanded, folded, groups[0]);
  EXPECT_EQ(form_of(fusion), Form::rows);
  int last = 0;
  for (const int level : phases(fusion.sites.back().expr)) last = std::max(last, level);
  EXPECT_EQ(last, phase_count) << graph.name;
}

TEST(RowsPartition, SoftmaxIsOneFusion) { expect_one_fusion(softmax(DataType::bf16, {64, 512}, 1), 2); }

TEST(RowsPartition, SoftmaxOverAMiddleAxisIsOneFusion) {
  expect_one_fusion(softmax(DataType::bf16, {8, 64, 512}, 1), 2);
}

TEST(RowsPartition, LayerNormIsOneFusion) { expect_one_fusion(layer_norm(DataType::bf16, {64, 512}), 2); }

TEST(RowsPartition, BackwardNormsAreOneFusionWithTheirColumns) {
  expect_one_fusion(rms_norm_bwd(DataType::bf16, {64, 512}), 1);
  expect_one_fusion(layer_norm_bwd(DataType::bf16, {64, 512}), 1);
}

TEST(RowsPartition, ResidualNormAndQuantisationAreOneFusion) {
  expect_one_fusion(residual_norm_quantize(DataType::bf16, {64, 512}), 2);
}

TEST(RowsPartition, CrossEntropyIsOneFusion) { expect_one_fusion(cross_entropy(DataType::bf16, 64, 512), 2); }

TEST(RowsPartition, GroupNormIsOneFusion) {
  expect_one_fusion(group_norm(DataType::bf16, {2, 4, 8, 64}, true), 2);
  expect_one_fusion(group_norm(DataType::bf16, {2, 4, 8, 64}, false), 2);
}

TEST(RowsPartition, BatchNormIsOneFusion) {
  expect_one_fusion(batch_norm(DataType::bf16, {128, 64, 12544}, true), 2);
  expect_one_fusion(batch_norm_bwd(DataType::bf16, {8, 64, 100}, true), 1);
}

TEST(RowsPartition, LoadThatTwoPhasesReadIsOneLoad) {
  const Fusion fusion = whole(softmax(DataType::bf16, {64, 512}, 1));
  int loads = 0;
  for (const Node& node : fusion.sites.back().expr.nodes) loads += node.kind == Node::Kind::load;
  EXPECT_EQ(loads, 1);
}

TEST(RowsPartition, RowsOfAnotherShapeStayApart) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 512}, DataType::f32);
  const Tensor first = softmax_of(g, x, 1);
  EXPECT_THAT(groups_of(g.finish({softmax_of(g, first, 0)})), SizeIs(2));
}

TEST(RowsPartition, VeryLongRowsAreReducedApart) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 1 << 27}, DataType::f32);
  EXPECT_THAT(groups_of(g.finish({g.sub(x, g.reduce(x, ReductionMode::max, {1}))})), SizeIs(2));
}

TEST(RowsPartition, SoftmaxBehindAMatmulIsItsOwnFusion) {
  GraphBuilder g;
  const Tensor q = g.input("q", {64, 32}, DataType::bf16), k = g.input("k", {32, 128}, DataType::bf16);
  const Tensor scores = g.mul(g.matmul(q, k), g.constant(0.125, DataType::f32));
  EXPECT_THAT(groups_of(g.finish({softmax_of(g, scores, 1)})), SizeIs(2));
}

TEST(RowsPartition, SquaresOfANormBehindAMatmulAreNotStored) {
  GraphBuilder g;
  const Tensor a = g.input("a", {64, 32}, DataType::bf16), b = g.input("b", {32, 128}, DataType::bf16);
  const Tensor h = g.matmul(a, b);
  const Tensor square = g.reduce(g.mul(h, h), ReductionMode::avg, {1});
  const auto groups = groups_of(g.finish({g.mul(h, g.rsqrt(square))}));
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_THAT(groups[0], SizeIs(1));
}

}  // namespace
}  // namespace fusor
