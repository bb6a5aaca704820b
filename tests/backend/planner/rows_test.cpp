// Owns the tests of which ops of softmax, norms and their like become one fusion.
#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "core/fusion.h"
#include "tests/backend/cpu_run.h"
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

// The op splits channels into groups: results are rounded in that shape, and stored through the way back.
TEST(RowsPartition, GroupNormOfTheOpIsOneFusionWithItsStatistics) {
  for (const Layout layout : {Layout::row_major, Layout::nhwc}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {2, 64, 16, 16}, DataType::bf16, layout),
                 scale = g.input("scale", {1, 64, 1, 1}, DataType::f32),
                 bias = g.input("bias", {1, 64, 1, 1}, DataType::f32);
    const NormResults made =
        g.norm_fwd(x, {.norm = NormMode::group_norm, .groups = 8, .scale = scale, .bias = bias});
    expect_one_fusion(g.finish({made.y, made.mean, made.inv_std}), 2);
  }
}

// The reshape that joins groups again waits for what is computed of the result, with tensors seen in groups.
TEST(RowsPartition, OpsBehindAGroupNormAreInItsFusion) {
  GraphBuilder g;
  const Dims dims{2, 64, 16, 16};
  const Tensor y =
      g.norm_fwd(g.input("x", dims, DataType::bf16), {.norm = NormMode::group_norm, .groups = 8}).y;
  const Tensor weighted = g.mul(g.swish(y), g.input("weight", {1, 64, 1, 1}, DataType::bf16));
  const Graph graph = g.finish({g.add(weighted, g.input("residual", dims, DataType::bf16))});
  expect_one_fusion(graph, 2);
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
}

TEST(RowsPartition, BackwardNormsAreOneFusionWithTheirColumns) {
  expect_one_fusion(rms_norm_bwd(DataType::bf16, {64, 512}), 1);
  expect_one_fusion(layer_norm_bwd(DataType::bf16, {64, 512}), 1);
}

// The op's totals are written by their reductions, not by copies that would be launches of their own.
TEST(RowsPartition, BackwardNormsOfTheOpAreOneFusionWithTheirTotals) {
  const auto gradients = [](NormMode norm, const Dims& dims, const Dims& scale) {
    GraphBuilder g;
    const Tensor dy = g.input("dy", dims, DataType::bf16), x = g.input("x", dims, DataType::bf16);
    const NormGradients made =
        g.norm_bwd(dy, x, {.norm = norm, .scale = g.input("scale", scale, DataType::f32)});
    return norm == NormMode::rms_norm ? g.finish({made.dx, made.dscale})
                                      : g.finish({made.dx, made.dscale, made.dbias});
  };
  EXPECT_THAT(groups_of(gradients(NormMode::rms_norm, {64, 512}, {1, 512})), SizeIs(1));
  EXPECT_THAT(groups_of(gradients(NormMode::layer_norm, {64, 512}, {1, 512})), SizeIs(1));
  EXPECT_THAT(groups_of(gradients(NormMode::layer_norm, {64, 512}, {512})), SizeIs(1));
  EXPECT_THAT(groups_of(gradients(NormMode::batch_norm, {8, 16, 6, 6}, {1, 16, 1, 1})), SizeIs(1));
}

TEST(RowsPartition, StatisticsOfTheOpAreOneFusion) {
  GraphBuilder g;
  const GenStatsResults made = g.gen_stats(g.input("x", {8, 16, 6, 6}, DataType::bf16, Layout::nhwc));
  EXPECT_THAT(groups_of(g.finish({made.sum, made.sq_sum})), SizeIs(1));
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
