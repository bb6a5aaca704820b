// Owns the move of gathers in front of the pointwise ops whose values they take.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"
#include "core/graph_index.h"

namespace fusor {

/// A gather takes elements from memory. Where it takes some of the elements that pointwise ops compute out of
/// what lies in memory, it comes in front of these, which then work on the elements that are taken:
///
///     x [m, n], total [m, 1] -> sub [m, n] -> gather(index [m, k]) [m, k]
///
///     x -> gather(index) [m, k] -> sub total -> select(index is inside, ., 0) [m, k]
///
/// A loss by labels is written so (log-probabilities, of which one a row is read), and a table that is
/// converted in front of a look-up. That is done where the value is stored for the gather alone, and fewer
/// elements are taken than there are. Tensors keep their indices. Whether anything changed.
bool move_gathers_in_front(Graph& graph, Additions& additions);

/// Whether a pointwise op makes the tensor, and nobody but gathers needs it in memory.
bool is_stored_for_gathers(const Graph& graph, const GraphIndex& index, int tensor);

}  // namespace fusor
