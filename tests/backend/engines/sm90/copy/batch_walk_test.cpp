// Owns the tests of how entries of a batch lie in maps: which axes are one, and the device's arithmetic, run
// on the host.
#include "backend/engines/sm90/copy/batch_walk.h"

#include <gtest/gtest.h>

#include "tests/backend/engines/host_divisor.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/sm90/pipeline/map_entry.cuh"
}  // namespace device
#undef __device__

namespace fusor {
namespace {

using HostWalk = device::EntryWalk<int64_t, test::HostDivisor>;

HostWalk on_device(const BatchWalk& walk) {
  HostWalk to;
  for (int i = 0; i < BatchWalk::kMostAxes; ++i) to.shared[i] = to.extent[i] = {1, 0, 0};
  for (size_t i = 0; i < walk.axes.size(); ++i) {
    to.shared[BatchWalk::kMostAxes - 1 - i] = {walk.axes[i].shared, 0, 0};
    to.extent[BatchWalk::kMostAxes - 1 - i] = {walk.axes[i].extent, 0, 0};
  }
  return to;
}

int64_t element_of(const copy_rules::WalkedAxes& batch, int64_t entry) {
  int64_t element = 0;
  for (int axis = batch.extents.rank() - 1; axis >= 0; --axis) {
    element += entry % batch.extents[axis] * batch.strides[axis];
    entry /= batch.extents[axis];
  }
  return element;
}

void expect_walked(const copy_rules::WalkedAxes& batch, const BatchWalk& walk) {
  TensorMap map{.type = DataType::i8, .dims = {1, 1}, .stride_bytes = {1}, .box = {}};
  walk.append_to(map);
  ASSERT_EQ(map.dims.rank(), walk.is_plain() ? 3 : 5);
  const HostWalk device = on_device(walk);
  for (int64_t entry = 0; entry < element_count(batch.extents); ++entry) {
    const device::MapEntry<3> place = device.place(entry);
    int64_t element = 0;
    if (walk.is_plain())
      element = walk.axes.empty() ? 0 : entry * map.stride_bytes[1];
    else
      for (int i = 0; i < 3; ++i) {
        EXPECT_LT(place.at[2 - i], map.dims[2 + i]);
        element += place.at[2 - i] * map.stride_bytes[1 + i];
      }
    EXPECT_EQ(element, element_of(batch, entry)) << to_string(batch.strides) << " entry " << entry;
  }
}

std::string walk_of(const Dims& extents, const Strides& strides) {
  const copy_rules::WalkedAxes batch{extents, strides};
  const auto walk = batch_walk(batch);
  if (!walk) return "none";
  expect_walked(batch, *walk);
  return (walk->is_plain() ? "plain " : "") + to_string(*walk);
}

TEST(BatchWalk, AxesThatOneStrideWalksAreOne) {
  EXPECT_EQ(walk_of({}, {}), "plain []");
  EXPECT_EQ(walk_of({1, 1}, {7, 9}), "plain []");
  EXPECT_EQ(walk_of({4}, {10}), "plain [4]");
  EXPECT_EQ(walk_of({2, 3, 4}, {120, 40, 10}), "plain [24]");
  EXPECT_EQ(walk_of({2, 1, 4}, {40, 77, 10}), "plain [8]");
  EXPECT_EQ(walk_of({2, 3, 4}, {0, 0, 0}), "plain []");
}

TEST(BatchWalk, SharedAxesHaveNoPlaceInTheMap) {
  EXPECT_EQ(walk_of({2, 3}, {0, 10}), "[3]");
  EXPECT_EQ(walk_of({2, 3}, {10, 0}), "[2 x 3]");
  EXPECT_EQ(walk_of({2, 3, 4}, {10, 0, 0}), "[2 x 12]");
  EXPECT_EQ(walk_of({2, 3, 4}, {40, 0, 10}), "[2 x 3, 4]");
  EXPECT_EQ(walk_of({2, 3, 4}, {0, 10, 0}), "[3 x 4]");
  EXPECT_EQ(walk_of({2, 3, 2, 3, 2, 3}, {100, 0, 40, 0, 10, 0}), "[2 x 3, 2 x 3, 2 x 3]");
}

TEST(BatchWalk, OrdersOfTheirOwnTakeAnAxisEach) {
  EXPECT_EQ(walk_of({2, 3}, {10, 20}), "[2, 3]");
  EXPECT_EQ(walk_of({2, 3, 4}, {12, 4, 100}), "[6, 4]");
  EXPECT_EQ(walk_of({2, 3, 4}, {1, 20, 2}), "[2, 3, 4]");
  EXPECT_EQ(walk_of({5, 2, 3, 4}, {1000, 1, 20, 2}), "none");
  EXPECT_EQ(walk_of({5, 2, 3, 4}, {0, 1, 20, 2}), "[2, 3, 4]");
}

TEST(BatchWalk, AnotherTensorIsWalkedAlongTheSameAxes) {
  const BatchWalk first = batch_walk({{2, 3, 4}, {12, 4, 100}}).value();
  const copy_rules::WalkedAxes packed{{2, 3, 4}, {120, 40, 10}};
  const auto along = batch_walk_like(first, packed);
  ASSERT_TRUE(along);
  EXPECT_EQ(to_string(*along), "[6, 4]");
  expect_walked(packed, *along);
  EXPECT_FALSE(batch_walk_like(first, {{2, 3, 4}, {10, 20, 100}})) << "two of them are one axis there";
  EXPECT_FALSE(batch_walk_like(first, {{2, 3, 4}, {12, 4, 0}})) << "one of them is shared";
  EXPECT_TRUE(batch_walk_like(batch_walk({{4}, {8}}).value(), {{4}, {16}}));
}

TEST(BatchWalk, HasOwnEntriesWhereNoneIsShared) {
  EXPECT_TRUE(batch_walk({{2, 3}, {10, 20}})->has_own_entries());
  EXPECT_FALSE(batch_walk({{2, 3}, {0, 20}})->has_own_entries());
  EXPECT_FALSE(batch_walk({{2, 3}, {20, 0}})->has_own_entries());
  EXPECT_TRUE(batch_walk({{1, 1}, {0, 0}})->has_own_entries());
}

}  // namespace
}  // namespace fusor
