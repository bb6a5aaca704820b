// Owns Groups: the fusions while they grow, and what is asked of them again and again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/partition/group_order.h"
#include "backend/planner/planner.h"

namespace fusor {

/// fp32 instructions of a pointwise op, a special function counted as several.
int pointwise_cost(const Op& op);
/// fp32 instructions for which computing a value again beside each use is cheaper than a launch, a write and
/// reads.
inline constexpr int kCheapInstructions = 16;

/// Elements that a product sums over, and that it gives a row, at most, for two of them to be a chain without
/// a softmax. Longer rows are those of layers with weights, whose hidden rows are no scores.
inline constexpr int64_t kMostHeadElements = 256;

/// Facts of a group that searches ask for again and again; kept up to date as groups merge.
struct GroupFacts {
  std::vector<int> anchors;     // ascending: none, one, or two siblings
  std::vector<int> reductions;  // ascending
  std::vector<int> indices;     // gen_index ops, ascending
  bool has_view = false;
  bool has_grouped = false;  // a reduction that keeps groups of an axis
  bool has_gather = false;
  bool has_scatter = false;
  bool is_chain = false;   // a matmul, ops on its result, a matmul
  bool is_closed = false;  // complete: it takes no more ops
  int widest = -1;         // the first op that works over the most elements
  int fed_back = 0;        // reductions whose totals ops of the group read
  Dims row_dims = {};      // the shape of their totals; empty without any
};

/// Ops in groups, each known by the index that its ops carry. At first every op that is not folded is a group
/// of its own; the searches of this folder merge them.
class Groups {
 public:
  Groups(const Graph& graph, const FoldedGraph& folded);

  // ---- Ops ----

  int op_count() const { return static_cast<int>(graph_.ops.size()); }
  bool is_matmul(int op) const { return std::holds_alternative<Matmul>(graph_.ops[op].attributes); }
  bool is_gen_index(int op) const;
  bool is_grouped(int op) const { return is_grouped_reduction(graph_, graph_.ops[op]); }
  const Dims& result_dims(int op) const { return graph_.tensors[graph_.ops[op].outputs[0]].dims; }
  /// The shape that the op works over.
  const Dims& work_dims(int op) const;
  /// Elements of which each total of a reduction is made.
  int64_t row_elements(int reduction) const;
  bool is_virtual_result(int op) const { return graph_.tensors[graph_.ops[op].outputs[0]].is_virtual(); }
  std::span<const int> consumers(int op) const { return folded_.index.consumers(graph_.ops[op].outputs[0]); }
  /// The ops that wait for `op`, directly or through folded ops.
  const std::vector<int>& dependents(int op) const { return order_.dependents(op); }
  /// The op that writes `tensor` itself (not through a folded view), or -1.
  int direct_producer(int tensor) const;
  /// Whether no op but folded views lies between what the graph is given and the tensor.
  bool is_view_of_input(int tensor) const;
  /// Whether the op gives packed elements that the graph is given a byte each.
  bool is_unpacking(int op) const;
  /// Whether `holds` of all ops that read the tensor, itself or through folded views.
  template <class Holds>
  bool all_readers(int tensor, Holds&& holds) const {
    return graph_.tensors[tensor].is_virtual() &&
           std::ranges::all_of(folded_.index.consumers(tensor), [&](int reader) {
             return folded_.folded[reader] ? all_readers(graph_.ops[reader].outputs[0], holds)
                                           : holds(reader);
           });
  }

  // ---- Groups ----

  int group_of(int op) const { return order_.group_of(op); }
  const std::vector<int>& members(int group) const { return order_.members(group); }
  size_t size_of(int group) const { return members(group).size(); }
  const GroupFacts& facts(int group) const { return facts_[group]; }
  /// One, or two siblings.
  const std::vector<int>& anchors_of(int group) const { return facts_[group].anchors; }
  bool has_anchor(int group) const { return !anchors_of(group).empty(); }
  /// Whether the op lies on the way to an anchor of its group.
  bool is_before_anchor(int op) const { return before_anchor_[op]; }
  /// The shape over which a group's after-site works; empty for ops that stay alone (copies of views).
  Dims domain_of(int group) const;
  bool fits_one_fusion(int a, int b) const;
  /// Whether an op of the group reads the group's values through a folded view.
  bool reads_through_a_view(int op, int group) const;
  /// Whether a gather takes from a value of the group.
  bool takes_from(int gather, int group) const;
  /// Whether some group would wait for the merged one and be waited for by it.
  bool would_wait_for_itself(int a, int b) { return order_.would_wait_for_itself(a, b); }

  /// `from` becomes part of `into`.
  void merge(int from, int into);
  /// The group is a matmul, ops on its result and a matmul.
  void mark_chain(int group) { facts_[group].is_chain = true; }
  /// The group is complete.
  void close(int group) { facts_[group].is_closed = true; }
  /// Ops that unpack what these ops read stay fusions of their own.
  void close_unpacking_for(std::span<const int> ops);
  /// The op whose shape the group works over, where that is not the widest one.
  void set_widest(int group, int op) { facts_[group].widest = op; }

  /// Whether `asked` holds of an op of the two groups that `ops` wait for, directly or through ops of these
  /// groups; each is asked once, until the first yes.
  template <class Asked>
  bool any_before(std::span<const int> ops, std::pair<int, int> groups, Asked asked) {
    const int walk = begin_walk();
    std::vector<int> waiting(ops.begin(), ops.end());
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      for (const int wait : folded_.dependencies[op]) {
        const bool is_inside = group_of(wait) == groups.first || group_of(wait) == groups.second;
        if (!is_inside || !meets(wait, walk)) continue;
        if (asked(wait)) return true;
        waiting.push_back(wait);
      }
    }
    return false;
  }

  /// A walk over ops or groups: meets() is true of each once.
  int begin_walk() { return ++walk_; }
  bool meets(int which, int walk) { return std::exchange(met_in_[which], walk) != walk; }

 private:
  GroupFacts facts_of(int op) const;
  void count_fed_back(int group);
  bool is_read_within(int op, int group) const;
  void mark_before_anchors(int group);
  bool reads_through_a_view(std::span<const int> inputs_read, int group) const;

  const Graph& graph_;
  const FoldedGraph& folded_;
  GroupOrder order_;
  std::vector<GroupFacts> facts_;    // per group
  std::vector<bool> before_anchor_;  // per op
  std::vector<int> met_in_;          // per op or group: the walk that met it last
  int walk_ = 0;
};

/// The searches that let groups grow, in the order in which partition() runs them.

/// Chains: a matmul, a softmax or other ops on its result's elements, a matmul of that.
void join_chains(Groups& groups, const Graph& graph, const FoldedGraph& folded);
/// Two matmuls, what becomes of both results, and the matmuls of that: the gradients of attention.
void join_gradients(Groups& groups, const Graph& graph, const FoldedGraph& folded);
/// Gathers, cheap ops of smaller shapes and counted numbers, which their one reader computes itself.
void absorb_small_groups(Groups& groups, const Graph& graph, const FoldedGraph& folded);

}  // namespace fusor
