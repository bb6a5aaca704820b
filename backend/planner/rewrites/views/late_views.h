// Owns the move of views behind the pointwise ops that read them.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Computes pointwise ops that read a reshape or a transpose of a computed value where that value is, so that
/// they can be part of its fusion; the view comes behind them, and other operands are seen through its
/// inverse:
///
///     matmul [n h w, c] -> reshape [n, h, w, c] -> transpose [n, c, h, w] -> add x [n, c, h, w]
///
///     x [n, c, h, w] -> transpose [n, h, w, c] -> reshape [n h w, c]
///                                                      v
///     matmul [n h w, c] --------------------------> add -> reshape [n, h, w, c] -> transpose [n, c, h, w]
///
/// That is done for what becomes of a contraction's result, where pointwise ops make one value of the view;
/// for a reshape of what lies in memory, where pointwise ops take it to where they meet such a result in the
/// shape in front; and for a reshape that joins axes of any result, as that of a norm over groups of
/// channels, where one op reads it, be it an output of the graph or not. Totals of rows come along where
/// nobody else works on those rows behind them. An operand that no strides show in the other shape leaves all
/// as it is, and so does one that a contraction leads to in the view's shape. Tensors keep their indices.
/// Whether anything changed.
bool move_views_behind(Graph& graph, Additions& additions);

}  // namespace fusor
