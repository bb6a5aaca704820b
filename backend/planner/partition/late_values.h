// Owns the question which groups compute a value that others read.
#pragma once

#include <vector>

#include "backend/planner/planner.h"

namespace fusor {

/// Moves cheap pointwise ops to the group that alone reads their results, where what it must read for that is
/// fewer bytes than the results, written and read. `groups` are ascending lists of ops; none that reads waits
/// for more than before.
void give_values_to_readers(const Graph& graph, const FoldedGraph& folded,
                            std::vector<std::vector<int>>& groups);

/// A value that a group which only reads it had better compute for itself.
struct RepeatedValue {
  std::vector<int> ops;      ///< to be repeated, ascending; the last one gives the value
  std::vector<int> readers;  ///< the group's ops that read it
};

/// Values, stored by one group for others, that all of these compute again of what lies in memory anyway,
/// where that moves fewer bytes: the normalized values of a norm, say, which its forward pass scales and its
/// backward pass needs as well.
std::vector<RepeatedValue> values_to_repeat(const Graph& graph, const FoldedGraph& folded,
                                            std::vector<std::vector<int>> groups);

}  // namespace fusor
