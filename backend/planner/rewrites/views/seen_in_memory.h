// Owns the question where views show what lies in memory.
#pragma once

#include <optional>
#include <span>

#include "backend/planner/planner.h"
#include "core/graph_index.h"

namespace fusor {

/// Whether the value is a tensor in memory, or views of one alone. `ops` are those that the index speaks of,
/// which a rewrite may have taken out of the graph by now.
bool is_seen_in_memory(const Graph& graph, std::span<const Op> ops, const GraphIndex& index, int value);

/// Where the elements of such a value lie in the tensor that the views show; nothing where no strides say it,
/// or where the value does not lie in memory.
std::optional<Placement> seen_in_memory(const Graph& graph, std::span<const Op> ops, const GraphIndex& index,
                                        int value);

}  // namespace fusor
