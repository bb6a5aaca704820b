// Owns the order in which products have their rows.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies rows in the order in which they lie in memory, and transposes the product, where a matmul by
/// one matrix reads two axes of rows in turned order: which row comes first is of no matter to it, and
/// sequences first are what PyTorch's attention layers want:
///
///     x [b, s, k] -> transpose [s, b, k] -> matmul w [k, n]
///
///     x [b, s, k] -> matmul w [k, n] -> transpose [s, b, n]
///
/// A joined axis of rows [s b, k] is taken apart. That is done where the product is virtual, and no pointwise
/// ops alone lead to an output. Tensors keep their indices. Whether anything changed.
bool order_rows(Graph& graph, Additions& additions);

}  // namespace fusor
