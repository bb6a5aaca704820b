// Owns the tests of the order in which groups of ops run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/planner/planner.h"

namespace fusor {
namespace {

using testing::ElementsAre;

// Ops of which each waits for those that are named.
FoldedGraph waiting_for(std::vector<std::vector<int>> dependencies) {
  FoldedGraph folded;
  folded.folded.assign(dependencies.size(), false);
  folded.dependencies = std::move(dependencies);
  return folded;
}

std::vector<std::vector<int>> groups_of(int count) {
  std::vector<std::vector<int>> groups;
  groups.reserve(static_cast<size_t>(count));
  for (int op = 0; op < count; ++op) groups.push_back({op});
  return groups;
}

std::vector<int> order_of(const FoldedGraph& folded, const std::function<bool(int)>& may_move) {
  std::vector<int> order;
  for (const std::vector<int>& group :
       side_by_side(folded, groups_of(static_cast<int>(folded.folded.size())),
                    [&](const std::vector<int>& ops) { return may_move(ops.front()); }))
    order.push_back(group.front());
  return order;
}

// Branches of two steps each: 1 and 2, 3 and 4.
const std::vector<std::vector<int>> kBranches = {{}, {0}, {1}, {0}, {3}, {2, 4}};

TEST(SideBySideOrder, BranchesMoveBesideEachOther) {
  EXPECT_THAT(order_of(waiting_for(kBranches), [](int) { return true; }), ElementsAre(0, 1, 3, 2, 4, 5));
}

TEST(SideBySideOrder, WhatMayNotMoveStays) {
  EXPECT_THAT(order_of(waiting_for(kBranches), [](int op) { return op != 3; }),
              ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(SideBySideOrder, AStageHasEightGroupsAtMost) {
  std::vector<std::vector<int>> all = {{}};
  for (int branch = 0; branch < 10; ++branch) {
    all.push_back({0});
    all.push_back({2 * branch + 1});
  }
  EXPECT_THAT(order_of(waiting_for(all), [](int) { return true; }),
              ElementsAre(0, 1, 3, 5, 7, 9, 11, 13, 15, 2, 4, 6, 8, 10, 12, 14, 16, 17, 19, 18, 20));
}

}  // namespace
}  // namespace fusor
