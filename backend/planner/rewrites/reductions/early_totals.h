// Owns the move of totals in front of the views that their operand is read through.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Takes totals of a computed value in the axes that it was computed in:
///
///     add [n, s, c] -> reshape [n s, c] -> sum over rows [1, c]
///                                     '--> matmul
///
///     add [n, s, c] -> sum over n and s [1, 1, c] -> reshape [1, c]
///            '-------> reshape [n s, c] -> matmul
///
/// The gradient of a linear layer's bias is such a total, of a value that a norm's backward pass makes: its
/// rows give the total in the same pass over memory. That is done for what pointwise ops make of totals and
/// somebody else reads, where each of its axes is added up as a whole or stays, and no element needs the
/// total again. Tensors keep their indices. Whether anything changed.
bool move_totals_in_front(Graph& graph, Additions& additions);

}  // namespace fusor
