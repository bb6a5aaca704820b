// Owns the tests of an Expr's domain: merging, dropping and reordering axes.
#include "core/expr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"

namespace fusor {
namespace {

Node load(int operand, const Strides& strides) {
  Node node;
  node.kind = Node::Kind::load;
  node.access.operand = operand;
  node.access.strides = strides;
  return node;
}

Store store(int node, const Strides& strides) {
  Store result;
  result.node = node;
  result.access.strides = strides;
  return result;
}

Expr copy(const Dims& domain, const Strides& from, const Strides& to) {
  Expr expr;
  expr.domain = domain;
  expr.nodes = {load(0, from)};
  expr.stores = {store(0, to)};
  return expr;
}

// Stores the copy's totals instead.
void reduce_over(Expr& expr, uint32_t over) {
  Node total;
  total.kind = Node::Kind::reduce;
  total.over = over;
  total.args[0] = 0;
  expr.nodes.push_back(total);
  expr.stores[0].node = 1;
}

TEST(MergeAxes, PackedTensorBecomesOneAxis) {
  const Expr merged = merge_axes(copy({2, 3, 4}, {12, 4, 1}, {12, 4, 1}));
  EXPECT_EQ(merged.domain, (Dims{24}));
  EXPECT_EQ(merged.nodes[0].access.strides, (Strides{1}));
  EXPECT_EQ(merged.stores[0].access.strides, (Strides{1}));
}

TEST(MergeAxes, AxesTakeTheMemoryOrderOfTheStore) {
  // Both are NHWC in memory under logical NCHW.
  const Expr merged = merge_axes(copy({2, 3, 4, 5}, {60, 1, 15, 3}, {60, 1, 15, 3}));
  EXPECT_EQ(merged.domain, (Dims{120}));
}

TEST(MergeAxes, TransposedOperandKeepsTwoAxes) {
  const Expr merged = merge_axes(copy({2, 3, 4, 5}, {60, 20, 5, 1}, {60, 1, 15, 3}));
  EXPECT_EQ(merged.domain, (Dims{2, 20, 3}));
  EXPECT_EQ(merged.nodes[0].access.strides, (Strides{60, 1, 20}));
  EXPECT_EQ(merged.stores[0].access.strides, (Strides{60, 3, 1}));
}

TEST(MergeAxes, BroadcastAxisStaysApart) {
  const Expr merged = merge_axes(copy({8, 4, 2}, {0, 2, 1}, {8, 2, 1}));
  EXPECT_EQ(merged.domain, (Dims{8, 8}));
  EXPECT_EQ(merged.nodes[0].access.strides, (Strides{0, 1}));
}

TEST(MergeAxes, ExtentOneAxesGoWhateverTheirStrides) {
  const Expr merged = merge_axes(copy({1, 5, 1}, {77, 1, 9}, {3, 1, 1000}));
  EXPECT_EQ(merged.domain, (Dims{5}));
}

TEST(MergeAxes, OneAxisIsAlwaysLeft) {
  EXPECT_EQ(merge_axes(copy({1, 1}, {1, 1}, {1, 1})).domain, (Dims{1}));
  EXPECT_EQ(merge_axes(copy({}, {}, {})).domain, (Dims{1}));
}

TEST(MergeAxes, ReducedAxesDoNotMergeWithKeptOnes) {
  Expr expr = copy({4, 5, 6}, {30, 6, 1}, {1, 0, 0});
  reduce_over(expr, 0b110);
  const Expr merged = merge_axes(expr);
  EXPECT_EQ(merged.domain, (Dims{4, 30}));
  EXPECT_EQ(merged.nodes[1].over, 0b10u);
}

TEST(MergeAxes, MaskFollowsReorderedAxes) {
  Expr expr = copy({4, 5, 6}, {1, 24, 4}, {0, 1, 5});
  reduce_over(expr, 0b001);
  const Expr merged = merge_axes(expr);
  EXPECT_EQ(merged.domain, (Dims{5, 6, 4}));
  EXPECT_EQ(merged.nodes[1].over, 0b100u);
  EXPECT_EQ(merged.stores[0].access.strides, (Strides{1, 5, 0}));
}

Node index_along(int axis, const Strides& strides) {
  Node index;
  index.kind = Node::Kind::index;
  index.axis = axis;
  index.access.strides = strides;
  return index;
}

TEST(MergeAxes, IndexNodesKeepTheirAxis) {
  Expr expr = copy({2, 3, 4}, {12, 4, 1}, {12, 4, 1});
  expr.nodes.push_back(index_along(1, {0, 1, 0}));
  const Expr merged = merge_axes(expr);
  EXPECT_EQ(merged.domain, (Dims{2, 3, 4}));
  EXPECT_EQ(merged.nodes[1].axis, 1);
}

TEST(MergeAxes, IndexNodeFollowsWhenOuterAxesMerge) {
  Expr expr = copy({2, 3, 4}, {12, 4, 1}, {12, 4, 1});
  expr.nodes.push_back(index_along(2, {0, 0, 1}));
  const Expr merged = merge_axes(expr);
  EXPECT_EQ(merged.domain, (Dims{6, 4}));
  EXPECT_EQ(merged.nodes[1].axis, 1);
  EXPECT_EQ(merged.nodes[1].access.strides, (Strides{0, 1}));
}

TEST(SplitAxis, BlocksTakeThePlaceOfAnAxis) {
  Expr expr = copy({2, 6, 4}, {24, 4, 1}, {1, 2, 12});
  expr.nodes.push_back(index_along(2, {0, 0, 1}));
  const auto split = split_axis(expr, 1, 3);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->domain, (Dims{2, 2, 3, 4}));
  EXPECT_EQ(split->nodes[0].access.strides, (Strides{24, 12, 4, 1}));
  EXPECT_EQ(split->stores[0].access.strides, (Strides{1, 6, 2, 12}));
  EXPECT_EQ(split->nodes[1].axis, 3);
}

TEST(SplitAxis, ReductionsBehindTheAxisMoveOn) {
  Expr expr = copy({2, 6, 4}, {24, 4, 1}, {6, 1, 0});
  reduce_over(expr, 0b101);
  const auto split = split_axis(expr, 1, 3);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->nodes[1].over, 0b1001u);
}

TEST(SplitAxis, NothingWhereBlocksDoNotDivideOrTheAxisIsNamed) {
  EXPECT_FALSE(split_axis(copy({2, 6}, {6, 1}, {6, 1}), 1, 4));
  Expr reduced = copy({2, 6}, {6, 1}, {1, 0});
  reduce_over(reduced, 0b10);
  EXPECT_FALSE(split_axis(reduced, 1, 3));
  Expr indexed = copy({2, 6}, {6, 1}, {6, 1});
  indexed.nodes.push_back(index_along(1, {0, 1}));
  EXPECT_FALSE(split_axis(indexed, 1, 3));
}

TEST(MergeAxes, KeptAxesStay) {
  const Expr expr = copy({2, 3, 4}, {12, 4, 1}, {12, 4, 1});
  EXPECT_EQ(merge_axes(expr, 0b001).domain, (Dims{2, 12}));
  EXPECT_EQ(merge_axes(expr, 0b100).domain, (Dims{6, 4}));
}

TEST(MergeAxes, WithoutAStoreTheWidestLoadGivesTheOrder) {
  Expr expr;
  expr.domain = {3, 4};
  expr.nodes = {load(0, {1, 0}), load(1, {1, 3})};
  expr.yields = {1};
  const Expr merged = merge_axes(expr);
  EXPECT_EQ(merged.domain, (Dims{4, 3}));
  EXPECT_EQ(merged.nodes[1].access.strides, (Strides{3, 1}));
}

TEST(SelectAxes, PermutesEverythingThatNamesAnAxis) {
  Expr expr = copy({2, 3}, {3, 1}, {1, 0});
  reduce_over(expr, 0b10);
  const Expr selected = select_axes(expr, {1, 0});
  EXPECT_EQ(selected.domain, (Dims{3, 2}));
  EXPECT_EQ(selected.nodes[0].access.strides, (Strides{1, 3}));
  EXPECT_EQ(selected.nodes[1].over, 0b01u);
}

TEST(DefaultParameters, AnyChangedParameterCounts) {
  Pointwise relu;
  relu.mode = PointwiseMode::relu;
  relu.axis = 3;
  EXPECT_TRUE(has_default_parameters(relu));
  relu.lower_clip_slope = 0.1;
  EXPECT_FALSE(has_default_parameters(relu));
}

// [image][channel][row][column] -> [pixel][channel]
const std::array<Dims, 2> kPixelsAndChannels{Dims{0, 2, 3}, Dims{1}};

TEST(GroupAxes, WalksEveryGroupByOneStride) {
  const auto grouped = group_axes(copy({2, 3, 4, 5}, {60, 1, 15, 3}, {0, 7, 0, 0}), kPixelsAndChannels);
  ASSERT_TRUE(grouped);
  EXPECT_EQ(grouped->domain, (Dims{40, 3}));
  EXPECT_EQ(grouped->nodes[0].access.strides, (Strides{3, 1}));
  EXPECT_EQ(grouped->stores[0].access.strides, (Strides{0, 7}));
}

TEST(GroupAxes, RefusesAnAccessThatNeedsMoreStrides) {
  EXPECT_FALSE(group_axes(copy({2, 3, 4, 5}, {60, 20, 5, 1}, {60, 1, 15, 3}), kPixelsAndChannels));
  EXPECT_FALSE(group_axes(copy({2, 3, 4, 5}, {3, 1, 0, 0}, {60, 1, 15, 3}), kPixelsAndChannels))
      << "one value an image";
  EXPECT_TRUE(group_axes(copy({1, 3, 4, 5}, {60, 20, 5, 1}, {60, 20, 5, 1}), kPixelsAndChannels))
      << "one image: any stride will do";
}

TEST(GroupAxes, IndicesKeepAnAxisOfTheirOwn) {
  Node index;
  index.kind = Node::Kind::index;
  for (const int axis : {0, 1, 3}) {
    index.axis = axis;
    index.access.strides = Strides{0, 0, 0, 0};
    index.access.strides[axis] = 1;
    Expr expr = copy({2, 3, 1, 5}, {15, 1, 15, 3}, {15, 1, 15, 3});
    expr.nodes.push_back(index);
    const auto grouped = group_axes(expr, kPixelsAndChannels);
    EXPECT_EQ(grouped.has_value(), axis == 1);
    if (axis == 1) {
      EXPECT_EQ(grouped->nodes[1].axis, 1);
    }
    const std::array<Dims, 3> images_apart{Dims{0}, Dims{1}, Dims{2, 3}};
    const auto apart = group_axes(expr, images_apart);
    ASSERT_TRUE(apart);
    EXPECT_EQ(apart->nodes[1].axis, std::min(axis, 2));
    EXPECT_EQ(apart->nodes[1].access.strides[std::min(axis, 2)], 1);
  }
}

TEST(GroupAxes, GroupsAreReducedWholeOrNotAtAll) {
  Expr expr = copy({2, 3, 4, 5}, {60, 1, 15, 3}, {0, 1, 0, 0});
  reduce_over(expr, 0b1101);
  const auto grouped = group_axes(expr, kPixelsAndChannels);
  ASSERT_TRUE(grouped);
  EXPECT_EQ(grouped->nodes[1].over, 0b01u);
  expr.nodes[1].over = 0b1100;
  EXPECT_FALSE(group_axes(expr, kPixelsAndChannels));
}

// x -> sum over the columns -> x / sum, and the sum of that over the rows.
Expr two_phases() {
  Expr expr = copy({4, 6}, {6, 1}, {6, 1});
  reduce_over(expr, 0b10);
  Node divide;
  divide.kind = Node::Kind::pointwise;
  divide.pointwise.mode = PointwiseMode::div;
  divide.args = {0, 1, -1};
  expr.nodes.push_back(divide);
  Node columns = expr.nodes[1];
  columns.over = 0b01;
  columns.args[0] = 2;
  expr.nodes.push_back(columns);
  expr.stores = {store(2, {6, 1}), store(3, {0, 1})};
  return expr;
}

TEST(Phases, AReductionIsKnownOnePhaseAfterItsArgument) {
  EXPECT_EQ(phases(two_phases()), (std::vector<int>{0, 1, 1, 2}));
}

TEST(Phases, OnlyATotalThatIsNeededAgainFeedsBack) {
  EXPECT_TRUE(feeds_back(two_phases()));
  Expr stored = copy({4, 6}, {6, 1}, {1, 0});
  reduce_over(stored, 0b10);
  EXPECT_FALSE(feeds_back(stored));
  stored.yields = {1};
  EXPECT_TRUE(feeds_back(stored));
}

TEST(VaryingAxes, ATotalIsTheSameAlongWhatItRanOver) {
  EXPECT_EQ(varying_axes(two_phases()), (std::vector<uint32_t>{0b11, 0b01, 0b11, 0b10}));
  EXPECT_EQ(varying_axes(copy({1, 6}, {6, 1}, {6, 1})), (std::vector<uint32_t>{0b10}));
}

TEST(DeadNodes, WhatReachesNothingGoes) {
  Expr expr = two_phases();
  expr.stores.pop_back();
  const Expr left = without_dead_nodes(expr);
  EXPECT_EQ(left.nodes.size(), 3u);
  expr.stores = {store(1, {1, 0})};
  EXPECT_EQ(without_dead_nodes(expr).nodes.size(), 2u);
}

TEST(ValidateExpr, FindsWhatIsBroken) {
  EXPECT_NO_THROW(validate(two_phases()));
  Expr later = two_phases();
  later.nodes[2].args[1] = 3;
  EXPECT_THROW(validate(later), Error) << "an argument after its user";
  Expr outside = two_phases();
  outside.nodes[1].over = 0b100;
  EXPECT_THROW(validate(outside), Error) << "an axis outside of the domain";
  Expr narrow = two_phases();
  narrow.stores[0].access.strides = {1, 0};
  EXPECT_THROW(validate(narrow), Error) << "a store that many values share";
}

}  // namespace
}  // namespace fusor
