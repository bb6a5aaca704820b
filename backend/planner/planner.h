// Owns partitioning: which ops are carried out together, and the Fusion that says so to the engines.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/fusion.h"
#include "core/graph.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

/// The same graph in the form in which it is planned: composite ops are written in simpler ones, views come
/// behind pointwise ops where that saves a pass, concatenated tensors that cannot be written in place, and
/// reshapes that no strides express, get an identity op in front. The user's inputs and outputs stay as they
/// are; expanding an expanded graph adds nothing. `stays_whole`: composite ops that an engine carries out
/// whole.
Graph expand(const Graph& graph, const StaysWhole& stays_whole = {});
/// As expand(), but every tensor between the user's ops is made, too, as the graph says: what the oracle
/// evaluates.
Graph expand_as_written(const Graph& graph);

/// Where a tensor's elements live once views and concatenations are folded: a place inside another tensor's
/// buffer (its own where nothing was folded).
struct Placement {
  int buffer = -1;     ///< index into Graph::tensors
  int64_t offset = 0;  ///< elements
  Strides strides;     ///< over the tensor's own dims
};

/// Placements of all tensors, which ops need no work because their placement says it all, and what is looked
/// up again and again in a graph in this form.
struct FoldedGraph {
  std::vector<Placement> placements;
  std::vector<bool> folded;  ///< per op
  GraphIndex index = {};
  /// Per op: the producers that it waits for, directly or through folded ops; none folded, ascending. Empty
  /// for folded ops.
  std::vector<std::vector<int>> dependencies = {};
};
FoldedGraph fold_views(const Graph& graph);

/// How coordinates of a view's result reach the elements of its operand, itself placed at `x`; false where no
/// strides do (a reshape of elements that do not lie in row-major order).
bool view_placement(const Graph& graph, const Op& op, const Placement& x, Placement& out);

/// The axis of a view's result that each axis of its operand is, -1 for one of one element; false where axes
/// split, merge or lose elements.
bool axes_of_operand(const Graph& graph, const Op& view, Dims& axes);
/// Whether a reshape joins blocks and the places in them, two axes in order, into one: [k / g, g, n] as [k,
/// n]. `axis`: the one of the result.
bool joins_blocks(const Graph& graph, const Op& view, int& axis);

/// Whether two contractions can be the siblings of one fusion: alike, and with one first operand.
bool are_siblings(const Graph& graph, int first, int second);
/// The Fusion of these ops (ascending, none folded, at most one contraction or two siblings). Values that
/// leave the set, or are outputs, become stores. Throws Error{bad_input} that names the ops where they do not
/// form one domain.
Fusion make_fusion(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops);
/// The Fusion of one op on its own, nothing folded: views are copies, and a concatenation has one Expr in
/// `after` for each input. The oracle evaluates graphs with it.
Fusion make_single(const Graph& graph, int op);
/// The same for many ops of a graph: with what unfolded_with_index() made of it.
Fusion make_single(const Graph& graph, const FoldedGraph& unfolded, int op);
FoldedGraph unfolded_with_index(const Graph& graph);

/// The graph of a fusion's ops alone, for measuring it: what they read of other fusions is an input, what
/// others read of theirs an output. Where a concatenation ties it to its neighbours it may plan as more than
/// one fusion.
Graph standalone(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops);

/// Whether the op's domain is its first operand's shape (reductions, scatters), not its result's.
bool works_over_operand(const Op& op);
/// Whether a reduction keeps groups of an axis: an extent that is neither 1 nor the operand's.
bool is_grouped_reduction(const Graph& graph, const Op& op);

/// Whether a gather's own operand is the result of a gather that it can go through: one load with an index
/// more. Both then work over the outer one's domain.
bool is_gather_of_gather(const Graph& graph, const GraphIndex& index, const Op& op);
/// Whether only gathers of `ops` that go through it read the gather's result, which then is no value of its
/// own.
bool is_passed_through(const Graph& graph, const GraphIndex& index, std::span<const int> ops, int gather);

/// Ops of one fusion at most: its kernel's text and what is asked of it grow with them.
inline constexpr size_t kMaxFusionOps = 256;

/// Greedy absorption around anchors, then among pointwise neighbours; groups in an order in which they can
/// run.
std::vector<std::vector<int>> partition(const Graph& graph, const FoldedGraph& folded);
/// The groups in an order in which they can run. Throws Error{bad_input} where they wait for each other.
std::vector<std::vector<int>> in_run_order(const FoldedGraph& folded, std::vector<std::vector<int>> groups);
/// Groups in an order in which they can run, with those moved to the front that do not wait for the ones they
/// then stand beside, as far as `may_move` lets them: their launches overlap.
std::vector<std::vector<int>> side_by_side(const FoldedGraph& folded, std::vector<std::vector<int>> groups,
                                           const std::function<bool(const std::vector<int>&)>& may_move);

}  // namespace fusor
