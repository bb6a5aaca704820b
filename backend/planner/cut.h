// Owns the places at which a set of ops is cut in two.
#pragma once

#include <utility>
#include <vector>

#include "backend/planner/planner.h"

namespace fusor {

/// Two sets of ops, ascending; the second waits for the first, never the other way round.
using Cut = std::pair<std::vector<int>, std::vector<int>>;

/// The cut that an engine's refusal of op `at` asks for: an op after the anchor goes with all that waits for
/// it, an op before the anchor with all that it waits for. A part is empty where that is no cut.
Cut cut_at(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops, int at);

/// The first and the second half, in append order: for sets that are too large, or that nobody takes.
Cut cut_in_half(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops);

}  // namespace fusor
