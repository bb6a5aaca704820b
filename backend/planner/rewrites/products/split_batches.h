// Owns the split of batches that a graph merges for the sake of a matmul alone.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies in the batch axes that the values have around a matmul, where reshapes merge them for it:
///
///     q [n, h, s, d] -> reshape [n h, s, d] --.
///     k [n, h, d, s] -> reshape [n h, d, s] -> matmul [n h, s, s] -> scale -> reshape [n, h, s, s]
///                                                                                 -> add mask
///
///     q, k -> matmul [n, h, s, s] -> scale -> add mask
///
/// Attention is written so with batched matmuls of three axes; a mask with one plane a batch entry has no
/// shape in merged axes. Tensors keep their indices. Whether anything changed.
bool split_batches(Graph& graph, Additions& additions);

}  // namespace fusor
