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

/// A cut in front of reductions, which may share a pass then, where `at` is one of them: of all where they
/// are several behind a contraction; without a contraction, of those that no other op of the set waits for,
/// and pointwise ops that they alone read are computed in their pass. Empty otherwise.
Cut cut_at_reductions(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops, int at);

/// Cuts between the ops that make operands of several contractions and all others: for sets that no engine
/// takes whole.
Cut cut_behind_operands(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops);

/// Cuts in front of contractions whose operand is stored for others in any case, in sets of many: the
/// gradient of queries is a product of gradients of scores, which lie in memory where a bias's gradient is
/// made of them.
Cut cut_behind_stored(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops);

/// The first and the second half, in append order: for sets that are too large, or that nobody takes.
Cut cut_in_half(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops);

}  // namespace fusor
