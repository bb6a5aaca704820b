// Owns GroupOrder: a topological order of groups of ops that is kept while groups merge, and the question
// whether two of them may.
#pragma once

#include <vector>

#include "backend/planner/planner.h"

namespace fusor {

/// Groups of ops, each known by one number, in an order in which every group stands behind those that it
/// waits for. At first every op is a group of its own. A search for a way between two groups stays between
/// their places in the order, so that joining neighbours costs nothing.
class GroupOrder {
 public:
  explicit GroupOrder(const FoldedGraph& folded);

  int group_of(int op) const { return group_[static_cast<size_t>(op)]; }
  /// Ascending; empty for a group that was merged into another.
  const std::vector<int>& members(int group) const { return members_[static_cast<size_t>(group)]; }
  /// The ops that wait for `op`, directly or through folded ops.
  const std::vector<int>& dependents(int op) const { return dependents_[static_cast<size_t>(op)]; }

  /// Whether some group would wait for the merged one and be waited for by it.
  bool would_wait_for_itself(int a, int b);
  /// `from` becomes part of `into`; would_wait_for_itself(from, into) is false.
  void merge(int from, int into);

 private:
  enum class Way { forward, backward };
  /// Groups that `from` reaches (or that reach it) without leaving the places between `from` and `to`; `to`
  /// is not among them. Sets `returns` where one of them is tied to `to`.
  std::vector<int> between(int from, int to, Way way, bool& returns);

  const FoldedGraph& folded_;
  std::vector<int> group_;                    // per op
  std::vector<std::vector<int>> members_;     // per group
  std::vector<std::vector<int>> dependents_;  // per op
  std::vector<int> place_;                    // per group: in the order
  std::vector<int> seen_;                     // per group: the search that met it last
  int search_ = 0;
};

}  // namespace fusor
