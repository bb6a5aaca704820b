// Tests of core/dims: the arithmetic of extents and strides.
#include "core/dims.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace fusor {
namespace {

TEST(Dims, HoldsUpToEightValues) {
  const Dims dims{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(dims.rank(), 8);
  EXPECT_EQ(dims.back(), 8);
  EXPECT_THROW(Dims({1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
  Dims full = dims;
  EXPECT_THROW(full.push_back(9), Error);
  EXPECT_EQ(full, dims);
}

TEST(Dims, InsertAndEraseMoveTheRest) {
  Dims dims{2, 3, 5};
  dims.insert(1, 7);
  EXPECT_EQ(dims, (Dims{2, 7, 3, 5}));
  dims.erase(0);
  EXPECT_EQ(dims, (Dims{7, 3, 5}));
  dims.erase(2);
  EXPECT_EQ(dims, (Dims{7, 3}));
}

TEST(Dims, EqualityIgnoresErasedValues) {
  Dims dims{2, 3};
  dims.erase(1);
  EXPECT_EQ(dims, Dims{2});
  EXPECT_NE(dims, (Dims{2, 3}));
}

TEST(Dims, PrintAsAList) {
  EXPECT_EQ(to_string(Dims{2, 3, 4}), "[2, 3, 4]");
  EXPECT_EQ(to_string(Dims{}), "[]");
}

TEST(ElementCount, IsTheProduct) {
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({int64_t{1} << 40, 4}), int64_t{1} << 42);
}

TEST(ElementCount, RefusesWhatDoesNotFit) {
  EXPECT_THROW(element_count({int64_t{1} << 32, int64_t{1} << 31}), Error);
  EXPECT_EQ(element_count({int64_t{1} << 32, (int64_t{1} << 31) - 1}),
            std::numeric_limits<int64_t>::max() - 4294967295);
}

TEST(PackedStrides, RowMajorPutsTheLastAxisInside) {
  EXPECT_EQ(packed_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(packed_strides({5}), Strides{1});
}

TEST(PackedStrides, NhwcPutsTheSecondAxisInside) {
  EXPECT_EQ(packed_strides({2, 3, 4, 5}, Layout::nhwc), (Strides{60, 1, 15, 3}));
  EXPECT_EQ(packed_strides({2, 3, 4}, Layout::nhwc), (Strides{12, 1, 3}));
  EXPECT_EQ(packed_strides({2, 3, 4, 5, 6}, Layout::nhwc), (Strides{360, 1, 90, 18, 3}));
  EXPECT_EQ(packed_strides({2, 3}, Layout::nhwc), (Strides{3, 1}));
}

TEST(PackedStridesLike, FollowsTheMemoryOrder) {
  const Dims x{2, 3, 4, 5};
  EXPECT_EQ(packed_strides_like({2, 8, 4, 5}, x, packed_strides(x, Layout::nhwc)),
            packed_strides({2, 8, 4, 5}, Layout::nhwc));
  EXPECT_EQ(packed_strides_like({2, 8, 4, 5}, x, packed_strides(x)), packed_strides({2, 8, 4, 5}));
  EXPECT_EQ(packed_strides_like({2, 3}, {2, 3}, {1, 2}), (Strides{1, 2}));
}

TEST(PackedStridesLike, GapsInTheModelAreClosed) {
  EXPECT_EQ(packed_strides_like({2, 3}, {2, 3}, {100, 7}), (Strides{3, 1}));
  EXPECT_EQ(packed_strides_like({2, 3}, {2, 3}, {7, 100}), (Strides{1, 2}));
}

// Every nhwc or nchw tensor, whichever of its extents are 1, gives the same layout to a result of other
// extents.
TEST(PackedStridesLike, ExtentOneAxesDoNotHideTheLayout) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (int ones = 0; ones < 16; ++ones) {
      Dims x{2, 3, 4, 5};
      for (int axis = 0; axis < 4; ++axis)
        if ((ones >> axis & 1) != 0) x[axis] = 1;
      EXPECT_EQ(packed_strides_like(x, x, packed_strides(x, layout)), packed_strides(x, layout))
          << to_string(x) << " layout " << static_cast<int>(layout);
      if (x[1] == 1 && x[3] == 1) continue;  // C = W = 1: nhwc's strides of C and W are equal
      Dims y = x;
      y[1] = 7;
      EXPECT_EQ(packed_strides_like(y, x, packed_strides(x, layout)), packed_strides(y, layout))
          << to_string(x) << " layout " << static_cast<int>(layout);
    }
}

TEST(SpanElements, ReachesTheLastElement) {
  EXPECT_EQ(span_elements({2, 3}, {3, 1}), 6);
  EXPECT_EQ(span_elements({2, 3}, {10, 2}), 15);
  EXPECT_EQ(span_elements({4, 3}, {0, 1}), 3);
  EXPECT_EQ(span_elements({1}, {1000}), 1);
}

TEST(BroadcastDims, AlignsTrailingAxes) {
  Dims out;
  ASSERT_TRUE(broadcast_dims({2, 1, 4}, {3, 1}, out));
  EXPECT_EQ(out, (Dims{2, 3, 4}));
  ASSERT_TRUE(broadcast_dims({1}, {5, 6}, out));
  EXPECT_EQ(out, (Dims{5, 6}));
  ASSERT_TRUE(broadcast_dims({}, {}, out));
  EXPECT_TRUE(out.empty());
}

TEST(BroadcastDims, LeavesTheResultAloneWhereTheyDoNotFit) {
  Dims out{9};
  EXPECT_FALSE(broadcast_dims({2, 3}, {2}, out));
  EXPECT_EQ(out, Dims{9});
}

TEST(BroadcastDims, MayWriteToItsOperand) {
  Dims dims{2, 1};
  ASSERT_TRUE(broadcast_dims(dims, {3}, dims));
  EXPECT_EQ(dims, (Dims{2, 3}));
}

}  // namespace
}  // namespace fusor
