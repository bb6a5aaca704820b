// Owns the steps of folding, for the pass that adds ops where they fail.
#pragma once

#include "backend/planner/planner.h"

namespace fusor {

/// Placements as the graph says, nothing folded; without index and dependencies.
FoldedGraph unfolded(const Graph& graph);

/// Every value that only moves on is placed where it moves to.
void fold_backward(const Graph& graph, FoldedGraph& folded);
/// The same for one view; whether it was possible.
bool fold_into_result(const Graph& graph, int op, FoldedGraph& folded);
/// One view of what lies before it is placed in its operand, where that is possible.
void fold_into_operand(const Graph& graph, int op, FoldedGraph& folded);

/// view_placement() the other way round: where the operand's elements lie once the result is placed at `y`.
/// Only for views that reach every element; false where no strides do.
bool inverse_view(const Graph& graph, const Op& view, const Placement& y, Placement& out);

}  // namespace fusor
