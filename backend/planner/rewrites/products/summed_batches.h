// Owns the sum over batch entries as part of the sum that a matmul is.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Sums over batch entries inside the product, where a reduction does so behind it:
///
///     x [b, t, k] -> transpose [b, k, t] --.
///     dy [b, t, n] ------------------------ matmul [b, k, n] -> sum over b [1, k, n]
///
///     x -> [k, b t], dy -> [b t, n] -> matmul [k, n] -> reshape [1, k, n]
///
/// Gradients of weights that a batch shares are written so. That is done for products in fp32 that nobody
/// else reads, where strides walk entries and steps as one in both operands. Tensors keep their indices.
/// Whether anything changed.
bool sum_batches_inside(Graph& graph, Additions& additions);

}  // namespace fusor
