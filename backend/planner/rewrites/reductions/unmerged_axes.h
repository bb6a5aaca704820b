// Owns the return of axes that a graph merges for the sake of a reduction alone.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Reduces over axes one by one that a reshape merges and another parts again:
///
///     x [n, c, h, w] -> reshape [n, g, c/g h w] -> mean, sub, mul -> reshape [n, c, h, w] -> mul scale [c,
///     1, 1]
///
///     x -> reshape [n, g, c/g, h, w] -> mean, sub, mul -> reshape [n, c, h, w] -> mul scale [c, 1, 1]
///
/// A group norm is written so for want of a reduction over several axes. Merged axes have no strides where
/// channels lie last, and nothing to which a number of each channel broadcasts. Tensors keep their indices.
/// Whether anything changed.
bool unmerge_axes(Graph& graph, Additions& additions);

}  // namespace fusor
