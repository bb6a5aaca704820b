// Owns the writing of matmuls whose sums have few terms as pointwise ops.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies and adds element by element where a matmul has so few steps, or its matrices are so small, that
/// tiles of it would be empty for the most part:
///
///     a [n, 3, 2], b [n, 2, 3] -> matmul [n, 3, 3]
///
///     a's column 0 [n, 3, 1] x b's row 0 [n, 1, 3] ─ mul ─┐
///     a's column 1 [n, 3, 1] x b's row 1 [n, 1, 3] ─ mul ─ add [n, 3, 3]
///
/// That is done for results of 4096 elements or more. Rotations of points are such products, and outer
/// products, whose one step is a multiplication. Each sum has its terms in the order of the steps. Tensors
/// keep their indices. Whether anything changed.
bool write_short_products(Graph& graph, Additions& additions);

}  // namespace fusor
