// Owns what groups of contractions absorb of operands that come through indices, and of results that go
// through them.
#pragma once

#include <vector>

#include "backend/planner/partition/groups.h"

namespace fusor {

/// Operands and results whose places are computed, or lie in memory.
class Gathered {
 public:
  Gathered(Groups& groups, const Graph& graph, const FoldedGraph& folded)
      : groups_(groups), graph_(graph), folded_(folded) {}

  /// Gathers, and pointwise ops, that an operand is made of, perhaps behind views that leave its axes whole;
  /// none where others are, or where no gather is.
  std::vector<int> ops_of(int operand) const;
  /// An operand whose batch entries lie one behind the other, at places that are known on the device, or
  /// whose rows a mask hides, joins the group of `op` where nobody else reads it: kernels may read it where
  /// it lies.
  void absorb_ragged_operand(int tensor, int op);
  /// Takes scatters of the result of `made`, an op of the group, into the group.
  void absorb_ragged_results(int made, int op);

 private:
  /// As ops_of(), with or without a gather among them, which `gathers` tells.
  std::vector<int> ops_in_front(int operand, bool& gathers) const;
  /// Whether the select chooses between rows and a few others, which are stored: a row that is appended.
  bool is_row_beside(const Op& select, int tensor) const;
  /// Whether a select takes its elements from a tensor in memory.
  bool is_masked_input(int tensor) const;
  bool is_flat(int tensor) const;
  void merge_all(std::vector<int> ops, int op);

  Groups& groups_;
  const Graph& graph_;
  const FoldedGraph& folded_;
};

}  // namespace fusor
