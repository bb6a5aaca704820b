// Owns the look-up in the shape in which its rows are used.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Takes the rows of a table in the shape that a reshape gives them, so that what reads them may take them
/// itself:
///
///     table [v, d] -> gather(index [b s, 1], axis 0) [b s, d] -> reshape [b, s, d] -> sum over s
///
///     table -> reshape [1, v, d] -> gather(index -> reshape [b, s, 1], axis 1) [b, s, d] -> sum over s
///
/// Tensors keep their indices. Whether anything changed.
bool reshape_gathers(Graph& graph, Additions& additions);

}  // namespace fusor
