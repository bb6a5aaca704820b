// Owns the greedy partition: anchors absorb their pointwise neighbours, pointwise ops and reductions join
// each other.
#include <algorithm>
#include <numeric>

#include "backend/planner/planner.h"
#include "core/fail.h"

namespace fusor {

namespace {

// fp32 instructions for which computing a value again beside each use is cheaper than a launch, a write and
// reads.
constexpr int kCheapInstructions = 16;
// A special-function result costs about this many fp32 instructions (128 against 16 a clock and SM).
constexpr int kSpecialCost = 8;

void collect_producers(const Graph& graph, const FoldedGraph& folded, int tensor, std::vector<int>& out) {
  const int producer = graph.producer(tensor);
  if (producer < 0) return;
  if (!folded.folded[producer]) {
    out.push_back(producer);
    return;
  }
  for (const int input : graph.ops[producer].inputs) collect_producers(graph, folded, input, out);
}

int pointwise_cost(const Op& op) {
  const PointwiseInfo& row = info(std::get<Pointwise>(op.attributes).mode);
  return row.alu + kSpecialCost * row.sfu;
}

bool is_pointwise(const Op& op) { return std::holds_alternative<Pointwise>(op.attributes); }
bool is_reduction(const Op& op) { return std::holds_alternative<Reduction>(op.attributes); }

// The groups while they grow. A group is known by the index that its ops carry.
class Partitioner {
 public:
  Partitioner(const Graph& graph, const FoldedGraph& folded) : graph_(graph), folded_(folded) {
    group_.resize(graph.ops.size());
    std::iota(group_.begin(), group_.end(), 0);
    for (int i = 0; i < op_count(); ++i) dependencies_.push_back(dependencies(graph, folded, i));
  }

  std::vector<std::vector<int>> run() {
    for (int i = 0; i < op_count(); ++i) {
      if (folded_.folded[i]) continue;
      const Op& op = graph_.ops[i];
      if (is_contraction(op.attributes)) absorb_prologue(i);
      if (is_pointwise(op) || is_reduction(op)) join_producers(i);
    }
    for (int i = op_count() - 1; i >= 0; --i)
      if (!folded_.folded[i] && is_pointwise(graph_.ops[i])) absorb_small(i);
    std::vector<std::vector<int>> groups;
    for (int i = 0; i < op_count(); ++i)
      if (!folded_.folded[i] && !members(i).empty()) groups.push_back(members(i));
    return in_run_order(graph_, folded_, std::move(groups));
  }

 private:
  int op_count() const { return static_cast<int>(graph_.ops.size()); }
  const Dims& result_dims(int op) const { return graph_.tensors[graph_.ops[op].outputs[0]].dims; }
  bool is_virtual_result(int op) const { return graph_.tensors[graph_.ops[op].outputs[0]].is_virtual(); }

  std::vector<int> members(int group) const {
    std::vector<int> ops;
    for (int i = 0; i < op_count(); ++i)
      if (!folded_.folded[i] && group_[i] == group) ops.push_back(i);
    return ops;
  }

  // The op that writes `tensor` itself (not through a folded view), or -1.
  int direct_producer(int tensor) const {
    const int producer = graph_.producer(tensor);
    return producer < 0 || folded_.folded[producer] ? -1 : producer;
  }

  // One, or two siblings.
  std::vector<int> anchors_of(int group) const {
    std::vector<int> anchors = members(group);
    std::erase_if(anchors, [&](int op) { return !is_contraction(graph_.ops[op].attributes); });
    return anchors;
  }
  bool has_anchor(int group) const { return !anchors_of(group).empty(); }

  // The shape over which a group's after-site works; empty for ops that stay alone (copies of views).
  Dims domain_of(int group) const {
    if (const std::vector<int> anchors = anchors_of(group); !anchors.empty()) return result_dims(anchors[0]);
    Dims domain;
    for (const int op : members(group)) {
      if (is_view(graph_.ops[op].attributes)) return {};
      const Dims& dims = work_dims(op);
      if (domain.empty() || element_count(dims) > element_count(domain)) domain = dims;
    }
    return domain;
  }

  const Dims& work_dims(int op) const {
    return is_reduction(graph_.ops[op]) ? graph_.tensors[graph_.ops[op].inputs[0]].dims : result_dims(op);
  }

  // Whether making one group of these would have groups wait for each other: a way out of the set and back
  // into it.
  bool is_acyclic(const std::vector<int>& groups) const {
    const auto inside = [&](int op) { return std::ranges::find(groups, group_[op]) != groups.end(); };
    std::vector<bool> reached(graph_.ops.size(), false);
    // Append order is topological: one sweep over groups would miss edges back to earlier ops of a group, so
    // sweep until nothing changes (a few rounds at most).
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < op_count(); ++i) {
        if (folded_.folded[i] || reached[i]) continue;
        const bool waits =
            std::ranges::any_of(dependencies_[i], [&](int d) { return inside(d) ? !inside(i) : reached[d]; });
        const bool grouped_wait =
            !inside(i) && std::ranges::any_of(members(group_[i]), [&](int m) { return reached[m]; });
        if (!waits && !grouped_wait) continue;
        if (inside(i)) return false;
        reached[i] = true;
        changed = true;
      }
    }
    return true;
  }

  void merge(int from, int into) {
    for (int& group : group_)
      if (group == from) group = into;
  }

  // Pointwise ops that feed only operand values of `anchor` and are cheap to repeat for each use move before
  // it.
  void absorb_prologue(int anchor) {
    for (const int input : graph_.ops[anchor].inputs) {
      const int producer = direct_producer(input);
      if (producer < 0 || !is_pointwise(graph_.ops[producer]) || has_anchor(group_[producer])) continue;
      const std::vector<int> ops = members(group_[producer]);
      const Dims& dims = graph_.tensors[input].dims;
      int cost = 0;
      bool fits = true;
      for (const int op : ops) {
        fits = fits && is_pointwise(graph_.ops[op]) && is_virtual_result(op) && feeds_only(op, ops, anchor);
        fits = fits && element_count(result_dims(op)) <= element_count(dims);
        if (fits) cost += pointwise_cost(graph_.ops[op]);
      }
      if (fits && cost <= kCheapInstructions && is_acyclic({group_[producer], group_[anchor]}))
        merge(group_[producer], group_[anchor]);
    }
  }

  bool feeds_only(int op, const std::vector<int>& ops, int anchor) const {
    return std::ranges::all_of(graph_.consumers(graph_.ops[op].outputs[0]), [&](int consumer) {
      return consumer == anchor || std::ranges::find(ops, consumer) != ops.end();
    });
  }

  // Whether `op` can work over `group`'s domain, reading values that the group has at hand.
  bool can_join(int op, int group) const {
    const Dims domain = domain_of(group);
    if (domain.empty() || work_dims(op) != domain) return false;
    const std::vector<int> ops = members(group);
    for (const int input : graph_.ops[op].inputs) {
      const int producer = direct_producer(input);
      for (const int wait : waits_for(input)) {
        if (std::ranges::find(ops, wait) == ops.end()) continue;
        // A sum is complete only after the last element; a folded view of a value is read from memory.
        if (wait != producer || is_reduction(graph_.ops[wait])) return false;
        if (is_before_anchor(wait)) return false;
      }
    }
    return !is_reduction(graph_.ops[op]) || agrees_with_reductions(op, ops);
  }

  std::vector<int> waits_for(int tensor) const {
    std::vector<int> producers;
    collect_producers(graph_, folded_, tensor, producers);
    return producers;
  }

  // Whether `op` lies on the way to an anchor of its group.
  bool is_before_anchor(int op) const {
    return std::ranges::any_of(anchors_of(group_[op]),
                               [&](int anchor) { return op != anchor && reaches(op, anchor, group_[op]); });
  }

  // Grouped reductions split axes: one group holds at most one such shape. Plain masks may differ: engines
  // refuse and the planner cuts, which explain() then shows.
  bool agrees_with_reductions(int op, const std::vector<int>& ops) const {
    for (const int other : ops)
      if (is_reduction(graph_.ops[other]) && result_dims(other) != result_dims(op) &&
          (is_grouped(other) || is_grouped(op)))
        return false;
    return true;
  }

  bool is_grouped(int op) const { return is_grouped_reduction(graph_, graph_.ops[op]); }

  // Latest first: where two anchors meet, the later one takes the op, and reads the earlier's result unless
  // the two are siblings (a gated pair).
  void join_producers(int op) {
    std::vector<int> wanted;
    for (const int input : graph_.ops[op].inputs)
      if (const int producer = direct_producer(input); producer >= 0) wanted.push_back(group_[producer]);
    if (wanted.empty())
      for (const int input : graph_.ops[op].inputs) add_siblings(op, input, wanted);
    std::ranges::sort(wanted, std::greater{}, [&](int group) { return std::pair(anchors_of(group), group); });
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    for (const int group : wanted) {
      const int own = group_[op];
      if (group == own || !can_share_anchors(own, group)) continue;
      if (can_join(op, group) && can_merge(own, group) && is_acyclic({own, group})) merge(group, own);
    }
  }

  // One anchor between them, or two siblings of which neither waits for the other.
  bool can_share_anchors(int a, int b) const {
    std::vector<int> anchors = anchors_of(a);
    for (const int anchor : anchors_of(b)) anchors.push_back(anchor);
    if (anchors.size() < 2) return true;
    std::ranges::sort(anchors);
    return anchors.size() == 2 && are_siblings(graph_, anchors[0], anchors[1]) &&
           !reaches(anchors[0], anchors[1], a, b);
  }

  // Two groups that `op` ties together: every op of either must be at home in the other.
  bool can_merge(int a, int b) const {
    const Dims domain = domain_of(a);
    if (domain.empty() || domain != domain_of(b)) return false;
    return all_at_home(a, b) && all_at_home(b, a) && may_precede(a, b) && may_precede(b, a);
  }

  // Ops of `group` that the other's anchors wait for would be computed before their operands, once for each
  // use: they must be cheap and of no use to anybody else.
  bool may_precede(int group, int other) const {
    const std::vector<int> anchors = anchors_of(other);
    int cost = 0;
    for (const int op : members(group)) {
      if (std::ranges::none_of(anchors, [&](int anchor) { return reaches(op, anchor, group); })) continue;
      if (!is_pointwise(graph_.ops[op]) || !is_virtual_result(op)) return false;
      cost += pointwise_cost(graph_.ops[op]);
      for (const int consumer : graph_.consumers(graph_.ops[op].outputs[0]))
        if (folded_.folded[consumer] || (group_[consumer] != group && group_[consumer] != other))
          return false;
    }
    return cost <= kCheapInstructions;
  }

  // Whether `anchor` waits for `op`, directly or through ops of `group` (or of another one beside it).
  bool reaches(int op, int anchor, int group, int beside = -1) const {
    return std::ranges::any_of(dependencies_[anchor], [&](int wait) {
      const bool inside = group_[wait] == group || group_[wait] == beside;
      return wait == op || (inside && reaches(op, wait, group, beside));
    });
  }

  bool all_at_home(int group, int in) const {
    return std::ranges::all_of(members(group), [&](int op) {
      return is_contraction(graph_.ops[op].attributes) || is_before_anchor(op) || can_join(op, in);
    });
  }

  // Groups without an anchor that read the same tensor over the same domain: one pass serves both.
  void add_siblings(int op, int tensor, std::vector<int>& wanted) const {
    if (graph_.tensors[tensor].dims != work_dims(op)) return;
    for (const int consumer : graph_.consumers(tensor)) {
      if (consumer >= op) break;
      if (!folded_.folded[consumer] && !has_anchor(group_[consumer])) wanted.push_back(group_[consumer]);
    }
  }

  // A cheap op over a smaller shape (a scaled bias) is computed again at each use by the one group that reads
  // it.
  void absorb_small(int op) {
    if (!is_virtual_result(op) || members(group_[op]).size() != 1 ||
        pointwise_cost(graph_.ops[op]) > kCheapInstructions)
      return;
    int reader = -1;
    for (const int consumer : graph_.consumers(graph_.ops[op].outputs[0])) {
      if (folded_.folded[consumer] || !is_pointwise(graph_.ops[consumer])) return;
      if (reader >= 0 && group_[consumer] != reader) return;
      reader = group_[consumer];
      if (is_before_anchor(consumer)) return;
    }
    if (reader < 0) return;
    // A pair may be cut between its siblings: what both read must then be stored.
    if (anchors_of(reader).size() > 1 && graph_.consumers(graph_.ops[op].outputs[0]).size() > 1) return;
    const Dims domain = domain_of(reader);
    Dims joined;
    const bool fits = !domain.empty() && broadcast_dims(result_dims(op), domain, joined) &&
                      joined == domain && element_count(result_dims(op)) < element_count(domain);
    if (fits && has_no_grouped(reader) && is_acyclic({group_[op], reader})) merge(group_[op], reader);
  }

  bool has_no_grouped(int group) const {
    return std::ranges::none_of(members(group),
                                [&](int op) { return is_reduction(graph_.ops[op]) && is_grouped(op); });
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  std::vector<int> group_;                      // per op
  std::vector<std::vector<int>> dependencies_;  // per op
};

}  // namespace

std::vector<int> dependencies(const Graph& graph, const FoldedGraph& folded, int op) {
  std::vector<int> producers;
  for (const int input : graph.ops[op].inputs) collect_producers(graph, folded, input, producers);
  std::ranges::sort(producers);
  producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
  return producers;
}

std::vector<std::vector<int>> partition(const Graph& graph, const FoldedGraph& folded) {
  return Partitioner(graph, folded).run();
}

std::vector<std::vector<int>> in_run_order(const Graph& graph, const FoldedGraph& folded,
                                           std::vector<std::vector<int>> groups) {
  std::vector<int> group_of(graph.ops.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g)
    for (const int op : groups[g]) group_of[op] = static_cast<int>(g);
  std::vector<bool> done(groups.size(), false);
  std::vector<std::vector<int>> ordered;
  while (ordered.size() < groups.size()) {
    const size_t before = ordered.size();
    for (size_t g = 0; g < groups.size(); ++g) {
      if (done[g]) continue;
      const bool ready = std::ranges::all_of(groups[g], [&](int op) {
        return std::ranges::all_of(dependencies(graph, folded, op), [&](int wait) {
          return group_of[wait] == static_cast<int>(g) || (group_of[wait] >= 0 && done[group_of[wait]]);
        });
      });
      if (!ready) continue;
      done[g] = true;
      ordered.push_back(groups[g]);
    }
    if (ordered.size() == before) fail("the fusions of the plan wait for each other in a circle");
  }
  return ordered;
}

}  // namespace fusor
