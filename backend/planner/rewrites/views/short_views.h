// Owns the shortening of chains of views.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Writes reshapes and transposes that follow each other as one reshape, one transpose and one reshape where
/// a shape on the way joins axes that are no neighbours in memory, and the last shape does not: such joined
/// axes are a copy, and nobody needs them. A value that is computed need not lie with any axes as neighbours.
/// PyTorch's attention writes
///
///     qkv [s, b, h d] -> reshape [s, b h, d] -> transpose [b h, s, d] -> reshape [b, h, s, d]
///
///     qkv [s, b, h d] -> reshape [s, b, h, d] -> transpose [b, h, s, d]
///
/// Tensors keep their indices. Whether anything changed.
bool shorten_views(Graph& graph, Additions& additions);

}  // namespace fusor
