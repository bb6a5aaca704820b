// Owns the question which group computes a value that another group alone reads.
#pragma once

#include <vector>

#include "backend/planner/planner.h"

namespace fusor {

/// Moves cheap pointwise ops to the group that alone reads their results, where what it must read for that is
/// fewer bytes than the results, written and read. `groups` are ascending lists of ops; none that reads waits
/// for more than before.
void give_values_to_readers(const Graph& graph, const FoldedGraph& folded,
                            std::vector<std::vector<int>>& groups);

}  // namespace fusor
