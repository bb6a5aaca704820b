// Owns the shortening of chains of views.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Writes reshapes and transposes that follow each other as one reshape, one transpose and one reshape where
/// a shape on the way joins axes, and the last shape does not: nobody needs such joined axes, and where the
/// tensor lies otherwise, as a part of a wider one does, they are a copy. PyTorch's attention writes
///
///     qkv [s, b, h d] -> reshape [s, b h, d] -> transpose [b h, s, d] -> reshape [b, h, s, d]
///
///     qkv [s, b, h d] -> reshape [s, b, h, d] -> transpose [b, h, s, d]
///
/// Tensors keep their indices. Whether anything changed.
bool shorten_views(Graph& graph, Additions& additions);

}  // namespace fusor
