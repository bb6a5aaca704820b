// Owns the reading of rows behind a cache, where decoding appends them, from where they lie.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Lets attention of a few queries read a cache and the row that is appended to it, each in its place, where
/// the graph concatenates them first:
///
///     cache [s, d], row [1, d] -> concatenate [s + 1, d] -> product with a few queries
///
///     select(coordinate < s, gather(cache, coordinate), row) -> product
///
/// Both keys and values of a softmax's products are rewritten, each for these products alone: other readers
/// have the concatenation. One that is a result is read as it is. Kernels choose between two addresses for
/// each row, so that nothing is copied. Tensors keep their indices. Whether anything changed.
bool read_appended_rows(Graph& graph, Additions& additions);

}  // namespace fusor
