// Owns the choice of the order in which gathered values lie, where they are stored.
#pragma once

#include "core/graph.h"

namespace fusor {

/// Gives results of gathers the strides with which the view of them that pointwise ops read is row-major,
/// where its last axis would else be apart in memory. A bias of attention that is looked up in a table with
/// heads last, as T5 and Swin have it, is stored by heads then:
///
///     table [numbers, heads] -> gather [queries * keys, heads]
///                            -> reshape, transpose -> [heads, queries, keys]
///
/// Only virtual tensors change. Nothing is added.
void lay_out_gathered(Graph& graph);

}  // namespace fusor
