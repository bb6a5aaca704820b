// Owns FusedOps: the ops of one fusion, the anchors among them, and the values that leave it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/planner/partition/reach.h"
#include "backend/planner/planner.h"

namespace fusor {

/// Ops (ascending) that become one fusion, and what its builders ask of them. Refers to the graphs and the
/// list of ops. Throws Error{bad_input} where their anchors cannot be those of one fusion.
class FusedOps {
 public:
  FusedOps(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops);

  const Graph& graph() const { return graph_; }
  const FoldedGraph& folded() const { return folded_; }
  std::span<const int> ops() const { return ops_; }
  bool contains(int op) const { return position_in(ops_, op) >= 0; }
  /// Place of an op of the set.
  size_t position(int op) const { return static_cast<size_t>(position_in(ops_, op)); }
  /// Throws Error{bad_input} that names all ops of the set.
  [[noreturn]] void refuse(const std::string& why) const;

  // ---- Anchors ----

  /// The contractions and recurrences of the set, ascending.
  const std::vector<int>& anchors() const { return anchors_; }
  /// Whether some anchors stand behind others, whose results they read as their first operands.
  bool is_chain() const { return is_chain_; }
  /// The anchors of a chain that wait for no others, and those that do.
  const std::vector<int>& fronts() const { return fronts_; }
  const std::vector<int>& backs() const { return backs_; }
  /// Place among the anchors; their number for any other op.
  int sibling_of(int op) const;
  bool is_anchor(int op) const { return sibling_of(op) < static_cast<int>(anchors_.size()); }
  /// Whether the anchors wait for an op of the set, which then belongs before their operands; not asked of a
  /// chain.
  bool is_upstream(int op) const { return upstream_[position(op)]; }

  // ---- Values ----

  /// A tensor behind folded transposes: axis i of what was asked for is axis axes[i] of it, or all are in
  /// order.
  struct Seen {
    int tensor = -1;
    Dims axes = {};
  };
  Seen seen_through_transposes(int tensor) const;
  /// The value in front of ops of the set that hand it on as it is.
  int unconverted(int tensor) const;
  /// Whether an op of the set computes the tensor, or what it is a view of.
  bool is_computed(int tensor) const;
  /// Whether an op outside of the set reads the tensor, directly or through a folded view.
  bool leaves(int tensor) const;

  /// A folded reshape that joins blocks of a value that is computed here.
  bool is_of_blocks(int op) const;

 private:
  bool is_pair() const;
  bool find_chain();
  void mark_upstream();
  bool is_seen_within(int op) const;
  bool is_port(int op) const;

  const Graph& graph_;
  const FoldedGraph& folded_;
  std::span<const int> ops_;
  std::vector<int> anchors_;
  bool is_chain_ = false;
  std::vector<int> fronts_, backs_;  // the anchors of a chain, by whether they wait for others
  std::vector<bool> upstream_;       // by position in ops_; empty for a chain
};

}  // namespace fusor
