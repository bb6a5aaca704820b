// Owns the choice of the order in which results lie, where views lead from them to who reads them.
#pragma once

#include "core/graph.h"

namespace fusor {

/// Gives virtual results the strides with which the last of the views behind them is row-major, where that
/// saves a copy: of a reshape that no strides would show, such as that which merges the heads of attention,
///
///     attention [n, h, s, d] -> transpose [n, s, h, d] -> reshape [n s, h d]
///
/// or of gathered values whose last axis pointwise ops would see apart in memory. A bias of attention that is
/// looked up in a table with heads last, as T5 and Swin have it, is stored by heads then:
///
///     table [numbers, heads] -> gather [queries * keys, heads]
///                            -> reshape, transpose -> [heads, queries, keys]
///
/// Only virtual tensors change. Nothing is added.
void lay_out_results(Graph& graph);

}  // namespace fusor
