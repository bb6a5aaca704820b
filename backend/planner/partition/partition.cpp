// Owns the greedy partition: anchors absorb their pointwise neighbours, pointwise ops and reductions join
// each other.
#include <algorithm>
#include <tuple>

#include "backend/planner/partition/groups.h"
#include "backend/planner/partition/late_values.h"

namespace fusor {

namespace {

// Elements of a row whose totals feed back within one fusion, at most.
constexpr int64_t kMostRowElements = int64_t{1} << 26;
// Rows up to here are left to a fusion of their own; totals of longer ones are made behind the anchor.
constexpr int64_t kShortRowElements = int64_t{1} << 16;
// Reductions of one fusion whose totals feed back.
constexpr int kMostFedBack = 6;

class Neighbours {
 public:
  Neighbours(Groups& groups, const Graph& graph, const FoldedGraph& folded)
      : groups_(groups),
        graph_(graph),
        folded_(folded),
        rows_own_(graph.ops.size(), false),
        readers_seen_(graph.tensors.size(), 0),
        reader_groups_(graph.tensors.size()) {
    find_rows_own();
  }

  void join() {
    for (int i = 0; i < groups_.op_count(); ++i) {
      if (folded_.folded[i]) continue;
      const Op& op = graph_.ops[i];
      if (is_contraction(op.attributes)) {
        absorb_prologue(i);
        absorb_blocks(i);
      }
      const bool joins = is_pointwise(op) || is_reduction(op) || is_gather(op) || is_scatter(op);
      if (joins && !groups_.is_before_anchor(i)) join_producers(i);
    }
  }

 private:
  // Pointwise ops that feed only operand values of `anchor` and are cheap to repeat for each use move before
  // it.
  void absorb_prologue(int anchor) {
    for (const int input : graph_.ops[anchor].inputs) {
      const int producer = groups_.direct_producer(input);
      if (producer < 0 || !is_pointwise(graph_.ops[producer]) ||
          groups_.has_anchor(groups_.group_of(producer)))
        continue;
      absorb_conditions(producer);
      const int group = groups_.group_of(producer);
      if (groups_.fits_one_fusion(group, groups_.group_of(anchor)) &&
          is_prologue(group, anchor, graph_.tensors[input].dims) &&
          !groups_.would_wait_for_itself(group, groups_.group_of(anchor)))
        groups_.merge(group, groups_.group_of(anchor));
    }
  }

  // The same of weights that are stored in a byte or less: ops in front of a reshape that joins blocks along
  // k, each of which has a scale, see their values over the operand's axes.
  void absorb_blocks(int anchor) {
    const Op& op = graph_.ops[anchor];
    if (op.inputs.size() < 2 || !groups_.is_matmul(anchor)) return;
    std::vector<int> waiting{op.inputs[1]};
    while (!waiting.empty()) {
      const int tensor = waiting.back(), maker = folded_.index.producer(tensor);
      waiting.pop_back();
      if (maker < 0) continue;
      const std::vector<int>& inputs = graph_.ops[maker].inputs;
      if (int axis = 0; folded_.folded[maker] && joins_blocks(graph_, graph_.ops[maker], axis))
        absorb_block(inputs[0], anchor);
      else if (!folded_.folded[maker] && groups_.group_of(maker) == groups_.group_of(anchor))
        waiting.insert(waiting.end(), inputs.begin(), inputs.end());
    }
  }
  void absorb_block(int tensor, int anchor) {
    const int producer = groups_.direct_producer(tensor);
    if (producer < 0 || !is_pointwise(graph_.ops[producer])) return;
    const int group = groups_.group_of(producer), own = groups_.group_of(anchor);
    const bool is_free = group != own && !groups_.has_anchor(group);
    if (is_free && groups_.fits_one_fusion(group, own) && is_dequantisation(group, own) &&
        !groups_.would_wait_for_itself(group, own))
      groups_.merge(group, own);
  }
  // Cheap ops that read weights of a byte or less, for ops of these groups alone.
  bool is_dequantisation(int group, int own) const {
    int cost = 0;
    bool reads_weights = false;
    for (const int op : groups_.members(group)) {
      const int y = graph_.ops[op].outputs[0];
      const bool is_read_here = groups_.all_readers(y, [&](int reader) {
        return groups_.group_of(reader) == group || groups_.group_of(reader) == own;
      });
      if (!is_pointwise(graph_.ops[op]) || groups_.is_gen_index(op) || !is_read_here) return false;
      for (const int input : graph_.ops[op].inputs) {
        const Tensor& x = graph_.tensors[input];
        reads_weights = reads_weights || (info(x.type).bits <= 8 && groups_.is_view_of_input(input) &&
                                          element_count(x.dims) == element_count(graph_.tensors[y].dims));
      }
      cost += pointwise_cost(graph_.ops[op]);
    }
    return reads_weights && cost <= kCheapInstructions;
  }

  // Moves conditions on coordinates that only `op` reads beside it, whatever smaller shape they have: whether
  // a row exists, say.
  void absorb_conditions(int op, int depth = 4) {
    for (const int input : graph_.ops[op].inputs) {
      const int producer = groups_.direct_producer(input);
      if (producer < 0 || !is_pointwise(graph_.ops[producer]) ||
          groups_.group_of(producer) == groups_.group_of(op))
        continue;
      if (depth > 0) absorb_conditions(producer, depth - 1);
      const int group = groups_.group_of(producer), own = groups_.group_of(op);
      if (is_condition(group, op) && groups_.fits_one_fusion(group, own) &&
          !groups_.would_wait_for_itself(group, own))
        groups_.merge(group, own);
    }
  }

  bool is_condition(int group, int op) const {
    const Dims& dims = groups_.work_dims(op);
    return !groups_.facts(group).indices.empty() &&
           std::ranges::all_of(groups_.members(group), [&](int each) {
             Dims joined;
             return is_pointwise(graph_.ops[each]) && groups_.is_virtual_result(each) &&
                    feeds_only(each, group, op) &&
                    !is_real(graph_.tensors[graph_.ops[each].outputs[0]].type) &&
                    broadcast_dims(groups_.result_dims(each), dims, joined) && joined == dims;
           });
  }

  bool is_prologue(int group, int anchor, const Dims& dims) const {
    int cost = 0;
    for (const int op : groups_.members(group)) {
      if (!is_pointwise(graph_.ops[op]) || !groups_.is_virtual_result(op) || !feeds_only(op, group, anchor) ||
          element_count(groups_.result_dims(op)) > element_count(dims))
        return false;
      cost += pointwise_cost(graph_.ops[op]);
      if (cost > kCheapInstructions) return false;
    }
    return true;
  }

  bool feeds_only(int op, int group, int anchor) const {
    return std::ranges::all_of(groups_.consumers(op), [&](int consumer) {
      return consumer == anchor || groups_.group_of(consumer) == group;
    });
  }

  // Whether `op` can work over `group`'s domain, reading values that the group has at hand.
  bool can_join(int op, int group) const {
    const Dims domain = groups_.domain_of(group);
    return !domain.empty() && (groups_.work_dims(op) == domain || is_of_rows(op, group)) &&
           reads_what_is_at_hand(op, group) && agrees_with(groups_.facts(group), op);
  }

  // A folded view of a value, and what a gather takes from, are read from memory.
  bool reads_what_is_at_hand(int op, int group) const {
    bool at_hand = !is_gather(graph_.ops[op]) || !groups_.takes_from(op, group), reads_any = false;
    for (const int wait : folded_.dependencies[op]) {
      if (groups_.group_of(wait) != group) continue;
      reads_any = true;
      at_hand = at_hand && !groups_.is_before_anchor(wait) &&
                (!is_reduction(graph_.ops[wait]) || may_feed_back(wait, op, group));
    }
    return !reads_any || (at_hand && !groups_.reads_through_a_view(op, group));
  }

  // ---- Totals that are needed again ----

  // A total is complete only after the last element: what reads it in the same fusion works in a phase of its
  // own, along the same rows as all others, and not behind an anchor.
  bool may_feed_back(int reduction, int reader, int group) const {
    const GroupFacts &facts = groups_.facts(group), &own = groups_.facts(groups_.group_of(reader));
    const auto agrees = [&](const GroupFacts& some) {
      return some.anchors.empty() &&
             (some.row_dims.empty() || some.row_dims == groups_.result_dims(reduction));
    };
    return agrees(facts) && agrees(own) && facts.fed_back + own.fed_back < kMostFedBack &&
           !groups_.is_grouped(reduction) && groups_.row_elements(reduction) <= kMostRowElements;
  }

  // Whether a pointwise op works on one value a row of the group, and reads such a value there.
  bool is_of_rows(int op, int group) const {
    if (!is_pointwise(graph_.ops[op]) || groups_.is_gen_index(op)) return false;
    return std::ranges::any_of(folded_.dependencies[op], [&](int wait) {
      return groups_.group_of(wait) == group && groups_.result_dims(wait) == groups_.result_dims(op);
    });
  }

  // Whether ops over the values of a reduction's elements need its total again.
  bool feeds_back(int reduction) const {
    std::vector<int> waiting = {reduction};
    for (size_t next = 0; next < waiting.size() && next < 16; ++next)
      for (const int reader : groups_.consumers(waiting[next])) {
        if (folded_.folded[reader] || !is_pointwise(graph_.ops[reader])) continue;
        if (groups_.result_dims(reader) == groups_.work_dims(reduction)) return true;
        waiting.push_back(reader);
      }
    return false;
  }

  // Ops that rows need and nobody else - totals that feed back, and what only they read - are no part of what
  // an anchor is followed by.
  void find_rows_own() {
    for (int op = groups_.op_count() - 1; op >= 0; --op) {
      if (folded_.folded[op]) continue;
      if (is_reduction(graph_.ops[op])) {
        rows_own_[op] =
            groups_.row_elements(op) <= kShortRowElements && !groups_.is_grouped(op) && feeds_back(op);
      } else if (is_pointwise(graph_.ops[op]) && groups_.is_virtual_result(op)) {
        const std::span<const int> readers = groups_.consumers(op);
        rows_own_[op] =
            !readers.empty() && std::ranges::all_of(readers, [&](int reader) { return rows_own_[reader]; });
      }
    }
  }

  // Grouped reductions split axes: one group holds at most one such shape, and no index along a split axis.
  // Plain masks may differ: engines refuse and the planner cuts, which explain() then shows.
  bool agrees_with(const GroupFacts& facts, int op) const {
    if (groups_.is_gen_index(op))
      return !facts.has_grouped ||
             std::ranges::none_of(facts.reductions, [&](int other) { return splits_index(other, op); });
    if (!is_reduction(graph_.ops[op])) return true;
    if (groups_.is_grouped(op) &&
        std::ranges::any_of(facts.indices, [&](int index) { return splits_index(op, index); }))
      return false;
    if (!groups_.is_grouped(op) && !facts.has_grouped) return true;
    return std::ranges::all_of(facts.reductions, [&](int other) {
      return groups_.result_dims(other) == groups_.result_dims(op) ||
             (!groups_.is_grouped(other) && !groups_.is_grouped(op));
    });
  }

  bool splits_index(int reduction, int index) const {
    const Dims& dims = groups_.work_dims(reduction);
    if (groups_.result_dims(index) != dims) return false;
    const auto axis = static_cast<int>(std::get<Pointwise>(graph_.ops[index].attributes).axis);
    const int64_t kept = groups_.result_dims(reduction)[axis];
    return kept != 1 && kept != dims[axis];
  }

  void join_producers(int op) {
    std::vector<int> wanted;
    for (const int input : graph_.ops[op].inputs)
      if (const int producer = groups_.direct_producer(input); producer >= 0)
        wanted.push_back(groups_.group_of(producer));
    join_first(op, std::move(wanted));
    if (groups_.has_anchor(groups_.group_of(op))) return;
    std::vector<int> siblings;
    for (const int input : graph_.ops[op].inputs) add_siblings(op, input, siblings);
    join_first(op, std::move(siblings));
  }

  // Latest first: where two anchors meet, the later one takes the op, and reads the earlier's result unless
  // the two are siblings (a gated pair).
  void join_first(int op, std::vector<int> wanted) {
    std::ranges::sort(wanted, [&](int a, int b) {
      return std::tie(groups_.anchors_of(a), a) > std::tie(groups_.anchors_of(b), b);
    });
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    for (const int group : wanted) {
      const int own = groups_.group_of(op);
      if (group == own || !groups_.fits_one_fusion(own, group) || !can_share_anchors(own, group)) continue;
      if (groups_.has_anchor(group) && rows_own_[op]) continue;
      if (groups_.facts(group).is_chain && ends_in_reductions(op)) continue;
      if (can_join(op, group) && can_merge(own, group) && !groups_.would_wait_for_itself(own, group))
        groups_.merge(group, own);
    }
  }

  // The values behind the op are reduced before anybody stores them: behind a chain, whose results are
  // elementwise, it is a fusion of its own.
  bool ends_in_reductions(int op, int depth = 4) const {
    if (is_reduction(graph_.ops[op])) return true;
    const auto readers = groups_.consumers(op);
    return depth > 0 && is_pointwise(graph_.ops[op]) && groups_.is_virtual_result(op) && !readers.empty() &&
           std::ranges::all_of(readers, [&](int reader) {
             return !folded_.folded[reader] && ends_in_reductions(reader, depth - 1);
           });
  }

  // One anchor between them, or two siblings of which neither waits for the other.
  bool can_share_anchors(int a, int b) {
    std::vector<int> anchors = groups_.anchors_of(a);
    anchors.insert(anchors.end(), groups_.anchors_of(b).begin(), groups_.anchors_of(b).end());
    if (anchors.size() < 2) return true;
    // A chain is complete: it takes ops without an anchor, and no other anchor.
    if (std::max(groups_.anchors_of(a).size(), groups_.anchors_of(b).size()) == anchors.size()) return true;
    std::ranges::sort(anchors);
    if (anchors.size() > 2 || !are_siblings(graph_, anchors[0], anchors[1])) return false;
    return !groups_.any_before({&anchors[1], 1}, {a, b}, [&](int op) { return op == anchors[0]; });
  }

  // Two groups that an op ties together: every op of either must be at home in the other.
  bool can_merge(int a, int b) {
    const Dims first = groups_.domain_of(a), second = groups_.domain_of(b);
    if (first.empty() || second.empty()) return false;
    if (first != second && !are_of_rows(a, b)) return false;
    const Dims &rows = groups_.facts(a).row_dims, &others = groups_.facts(b).row_dims;
    if (!rows.empty() && !others.empty() && rows != others) return false;
    return all_at_home(a, b) && all_at_home(b, a) && may_precede(a, b) && may_precede(b, a);
  }

  // Whether one op works on the values of the other group's rows.
  bool are_of_rows(int a, int b) const {
    return (groups_.size_of(a) == 1 && is_of_rows(groups_.members(a).front(), b)) ||
           (groups_.size_of(b) == 1 && is_of_rows(groups_.members(b).front(), a));
  }

  // All ops behind a group's anchors work over its domain, which is the other's too.
  bool all_at_home(int group, int in) const {
    // A gathered value does not reach an anchor's kernel, and scattered ones do not leave from one, nor from
    // one that reduces; but for a chain's result that goes to places along one axis.
    const GroupFacts& facts = groups_.facts(group);
    const bool leaves_chain = facts.has_scatter && groups_.facts(in).is_chain && scatters_to_one_axis(group);
    if ((facts.has_gather || (facts.has_scatter && !leaves_chain)) && groups_.has_anchor(in)) return false;
    if (facts.has_scatter && !leaves_chain && !groups_.facts(in).reductions.empty()) return false;
    const auto is_at_home = [&](int op) {
      return is_contraction(graph_.ops[op].attributes) || groups_.is_before_anchor(op) ||
             reads_what_is_at_hand(op, in);
    };
    const auto agrees = [&](int op) {
      return groups_.is_before_anchor(op) || agrees_with(groups_.facts(in), op);
    };
    if (!std::ranges::all_of(groups_.facts(group).reductions, agrees) ||
        !std::ranges::all_of(groups_.facts(group).indices, agrees))
      return false;
    if (groups_.size_of(group) <= groups_.size_of(in))
      return std::ranges::all_of(groups_.members(group), is_at_home);
    return std::ranges::all_of(groups_.members(in), [&](int read) {
      return std::ranges::all_of(groups_.dependents(read), [&](int reader) {
        return groups_.group_of(reader) != group || is_at_home(reader);
      });
    });
  }

  bool scatters_to_one_axis(int group) const {
    return std::ranges::all_of(groups_.members(group), [&](int op) {
      return !is_scatter(graph_.ops[op]) || groups_.result_dims(op).rank() == 1;
    });
  }

  // Ops of `group` that the other's anchors wait for would be computed before their operands, once for each
  // use: they must be cheap and of no use to anybody else.
  bool may_precede(int group, int other) {
    int cost = 0;
    return !groups_.any_before(groups_.anchors_of(other), {group, group}, [&](int op) {
      if (!is_pointwise(graph_.ops[op]) || !groups_.is_virtual_result(op)) return true;
      cost += pointwise_cost(graph_.ops[op]);
      return cost > kCheapInstructions || std::ranges::any_of(groups_.consumers(op), [&](int consumer) {
               return folded_.folded[consumer] ||
                      (groups_.group_of(consumer) != group && groups_.group_of(consumer) != other);
             });
    });
  }

  // Groups without an anchor that read the same tensor over the same domain: one pass serves both.
  void add_siblings(int op, int tensor, std::vector<int>& wanted) {
    if (graph_.tensors[tensor].dims != groups_.work_dims(op)) return;
    const std::span<const int> all = folded_.index.consumers(tensor);
    size_t& seen = readers_seen_[tensor];
    std::vector<int>& readers = reader_groups_[tensor];
    for (; seen < all.size() && all[seen] < op; ++seen)
      if (!folded_.folded[all[seen]]) readers.push_back(all[seen]);
    // One reader stands for all that have joined it since.
    const int walk = groups_.begin_walk();
    std::erase_if(readers, [&](int reader) { return !groups_.meets(groups_.group_of(reader), walk); });
    for (const int reader : readers)
      if (!groups_.has_anchor(groups_.group_of(reader))) wanted.push_back(groups_.group_of(reader));
  }

  Groups& groups_;
  const Graph& graph_;
  const FoldedGraph& folded_;
  std::vector<bool> rows_own_;  // per op: rows need it and nobody else
  // Per tensor, of the readers looked at so far: how many, and one of each group.
  std::vector<size_t> readers_seen_;
  std::vector<std::vector<int>> reader_groups_;
};

}  // namespace

std::vector<std::vector<int>> partition(const Graph& graph, const FoldedGraph& folded) {
  Groups groups(graph, folded);
  Neighbours neighbours(groups, graph, folded);
  join_chains(groups, graph, folded);
  join_gradients(groups, graph, folded);
  neighbours.join();
  absorb_small_groups(groups, graph, folded);
  std::vector<std::vector<int>> found;
  for (int i = 0; i < groups.op_count(); ++i)
    if (!folded.folded[i] && !groups.members(i).empty()) found.push_back(groups.members(i));
  give_values_to_readers(graph, folded, found);
  return in_run_order(folded, std::move(found));
}

}  // namespace fusor
