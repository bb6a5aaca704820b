// Owns the writing of gathers that take one computed element of each row as totals of these rows.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// A gather takes elements from memory; a total is made while the row is computed. Where one element of each
/// row is taken from a computed value that nobody stores, the gather becomes the total of the row with all
/// other elements replaced by zeros:
///
///     sub [m, n] -> gather(index [m, 1]) [m, 1]
///
///     sub [m, n] -> select(index == coordinate, sub, 0) -> sum [m, 1]
///
/// A loss by labels is written so: log-probabilities, of which one a row is read. An index outside of the row
/// gives 0 either way. Tensors keep their indices. Whether anything changed.
bool write_gathers_as_totals(Graph& graph, Additions& additions);

}  // namespace fusor
