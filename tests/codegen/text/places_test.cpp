// Owns the tests of which places are those of neighbours.
#include "codegen/text/places.h"

#include <gtest/gtest.h>

#include <array>

namespace fusor {
namespace {

// Rows of 16 elements at offsets of their own, below a bound.
class Places : public ::testing::Test {
 protected:
  Places() { expr_.domain = {4, 16}; }

  int add(Node node) {
    expr_.nodes.push_back(node);
    return static_cast<int>(expr_.nodes.size()) - 1;
  }
  int coordinate(int axis, int64_t stride = 1) {
    Node node;
    node.kind = Node::Kind::index;
    node.type = DataType::i32;
    node.axis = axis;
    node.access.strides = {1, 1};
    node.access.strides[axis] = stride;
    return add(node);
  }
  int load(const Strides& strides) {
    Node node;
    node.type = DataType::i64;
    node.access.strides = strides;
    return add(node);
  }
  int pointwise(PointwiseMode mode, std::array<int, 3> args, DataType type = DataType::i64) {
    Node node;
    node.kind = Node::Kind::pointwise;
    node.type = type;
    node.pointwise.mode = mode;
    node.pointwise.compute = DataType::i64;
    node.args = args;
    return add(node);
  }
  int sum(int a, int b) { return pointwise(PointwiseMode::add, {a, b, -1}); }
  int none() {
    Node node;
    node.kind = Node::Kind::scalar;
    node.type = DataType::i64;
    return add(node);
  }
  int below(int place, int bound, PointwiseMode compare = PointwiseMode::cmp_lt) {
    const int condition = pointwise(compare, {place, bound, -1}, DataType::i32);
    return pointwise(PointwiseMode::binary_select, {place, none(), condition});
  }

  Expr expr_;
};

TEST_F(Places, CountAlongAnAxis) {
  const int offset = load({1, 0}), place = sum(offset, coordinate(1));
  EXPECT_TRUE(counts_along(expr_, place, 1));
  EXPECT_TRUE(counts_along(expr_, below(place, load({1, 0})), 1));
  EXPECT_TRUE(counts_along(expr_, below(place, load({1, 0}), PointwiseMode::cmp_le), 1));
  EXPECT_TRUE(counts_along(expr_, pointwise(PointwiseMode::identity, {place, -1, -1}), 1));
}

TEST_F(Places, AreACountItsBoundAndAnother) {
  const int place = sum(load({1, 0}), coordinate(1)), bound = load({1, 0});
  const auto parts = counted_place(expr_, below(place, bound), 1);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->count, place);
  EXPECT_EQ(parts->compared, place);
  EXPECT_EQ(parts->bound, bound);
  EXPECT_EQ(expr_.node(parts->other).kind, Node::Kind::scalar);
  EXPECT_FALSE(parts->takes_bound);
  EXPECT_TRUE(counted_place(expr_, below(place, bound, PointwiseMode::cmp_le), 1)->takes_bound);
  EXPECT_EQ(counted_place(expr_, place, 1)->bound, -1);
  EXPECT_FALSE(counted_place(expr_, place, 0));
}

TEST_F(Places, BelowABoundThatIsNoIntegerAreFoundLaneByLane) {
  const int place = sum(load({1, 0}), coordinate(1)), bound = load({1, 0});
  expr_.nodes[static_cast<size_t>(bound)].type = DataType::f32;
  const int chosen = below(place, bound);
  EXPECT_TRUE(counts_along(expr_, chosen, 1));
  EXPECT_FALSE(counted_place(expr_, chosen, 1));
}

TEST_F(Places, OfOthersDoNotCount) {
  const int offset = load({1, 0}), place = sum(offset, coordinate(1));
  EXPECT_FALSE(counts_along(expr_, place, 0)) << "offsets of rows";
  EXPECT_FALSE(counts_along(expr_, sum(offset, coordinate(1, 2)), 1)) << "every second element";
  EXPECT_FALSE(counts_along(expr_, sum(load({1, 1}), coordinate(1)), 1)) << "an offset of each element";
  EXPECT_FALSE(counts_along(expr_, sum(place, coordinate(1)), 1)) << "twice";
  EXPECT_FALSE(counts_along(expr_, pointwise(PointwiseMode::mul, {place, offset, -1}), 1));
  EXPECT_FALSE(counts_along(expr_, pointwise(PointwiseMode::identity, {place, -1, -1}, DataType::i8), 1));
  // Some of the lanes in the middle may be elsewhere.
  EXPECT_FALSE(counts_along(expr_, below(place, load({1, 1})), 1));
  EXPECT_FALSE(counts_along(expr_, below(place, load({1, 0}), PointwiseMode::cmp_ge), 1));
  EXPECT_FALSE(counts_along(expr_, below(below(place, load({1, 0})), load({1, 0})), 1));
}

}  // namespace
}  // namespace fusor
