// Owns the move of views in front of the pointwise ops that make a contraction's operand.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Sees what lies in memory as a contraction reads it, where cheap pointwise ops and views stand between the
/// two: the ops then have the contraction's operand as their result, and its kernel may compute them as it
/// loads:
///
///     w [n, k] in 8 bits -> mul scale [n, 1] -> transpose [k, n] -> matmul
///
///     w -> transpose [k, n] -> mul (scale -> transpose [1, n]) -> matmul
///
/// Quantised weights and caches of keys are read so. That is done where nobody else reads the values, and
/// where strides show all that the ops read in the other shape. Tensors keep their indices. Whether anything
/// changed.
bool move_views_in_front(Graph& graph, Additions& additions);

}  // namespace fusor
