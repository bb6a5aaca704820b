// Owns the computation of rows that a column is concatenated to, beside that column.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Computes on a concatenation of rows and columns by computing on each alone: totals of a row take the
/// columns' elements in, and what others read of the result is a part of it. Attention's sinks are written
/// so, as one more score of each row whose probability nobody reads:
///
///     scores [m, n], sink [m, 1] -> concatenate [m, n + 1] -> max, sub, exp, sum, div -> slice [m, n]
///
///     scores -> max -> max (sink) -> sub -> exp -> sum -> add (exp(sink - max)) -> div
///
/// One part has rows, all others have one element along the axis. Whatever is made of the concatenation along
/// it is virtual, and ends in totals and in slices of one part. Tensors keep their indices. Whether anything
/// changed.
bool separate_columns(Graph& graph, Additions& additions);

}  // namespace fusor
