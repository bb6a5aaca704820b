// Owns the split of rows that a graph merges for the sake of a matmul alone.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies in the axes that rows have behind a matmul, where what they meet there broadcasts along some of
/// these axes and so has no shape beside merged rows:
///
///     x [8 197, k] -> matmul w [k, n] -> add bias -> reshape [8, 197, n] -> add positions [197, n]
///
///     x -> reshape [8, 197, k] -> matmul w [k, n] -> add bias -> add positions [197, n]
///
/// The product is then one fusion with these ops; engines walk its rows as before. Tensors keep their
/// indices. Whether anything changed.
bool split_rows(Graph& graph, Additions& additions);

}  // namespace fusor
