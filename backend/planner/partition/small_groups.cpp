// Owns the search for small groups that their one reader computes itself - inner gathers, cheap ops, counted
// numbers - and for those that share a launch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "backend/planner/partition/groups.h"

namespace fusor {

namespace {

// Places of a window, at most, of which each is counted again beside each use.
constexpr int64_t kMostPlaces = 64;
// Elements that are read and written while a kernel is launched, and ops of groups that share a launch.
constexpr int64_t kFewElements = int64_t{1} << 20;
constexpr size_t kMostJoined = 64;
constexpr std::ptrdiff_t kMostAsked = 16;  // of groups of a shape, those that took one last
constexpr int64_t kManyRows = 256;         // of products that share a launch

class SmallGroups {
 public:
  SmallGroups(Groups& groups, const Graph& graph, const FoldedGraph& folded)
      : groups_(groups), graph_(graph), folded_(folded), counted_(graph.ops.size(), false) {}

  void run() {
    for (int i = groups_.op_count() - 1; i >= 0; --i)
      if (!folded_.folded[i] && is_gather(graph_.ops[i])) absorb_inner_gather(i);
    for (int i = groups_.op_count() - 1; i >= 0; --i)
      if (!folded_.folded[i] && is_pointwise(graph_.ops[i])) absorb_small(i);
    find_counted();
    for (int i = groups_.op_count() - 1; i >= 0; --i)
      if (counted_[i] && groups_.members(groups_.group_of(i)).back() == i)
        absorb_counting(groups_.group_of(i));
    join_neighbours();
    join_products();
  }

 private:
  // A gather that only gathers of one group go through has no value of its own.
  void absorb_inner_gather(int op) {
    if (!groups_.is_virtual_result(op) || groups_.size_of(groups_.group_of(op)) != 1 ||
        groups_.consumers(op).empty())
      return;
    const int y = graph_.ops[op].outputs[0];
    const int into = groups_.group_of(groups_.consumers(op)[0]);
    for (const int consumer : groups_.consumers(op)) {
      const Op& reader = graph_.ops[consumer];
      if (folded_.folded[consumer] || groups_.group_of(consumer) != into || !is_gather(reader) ||
          reader.inputs[1] == y || !is_gather_of_gather(graph_, folded_.index, reader))
        return;
    }
    if (into == groups_.group_of(op) || groups_.takes_from(op, into) ||
        !groups_.fits_one_fusion(groups_.group_of(op), into) ||
        groups_.would_wait_for_itself(groups_.group_of(op), into))
      return;
    const int widest = groups_.facts(into).widest;
    groups_.merge(groups_.group_of(op), into);
    groups_.set_widest(into, widest);
  }

  // Numbers that are only counted, and say where windows lie, are counted again by the one group that takes
  // elements through them. It takes none from them: those would have to lie in memory.
  void absorb_counting(int group) {
    int reader = -1;
    for (const int op : groups_.members(group)) {
      if (!counted_[op]) return;
      for (const int consumer : groups_.consumers(op)) {
        if (folded_.folded[consumer]) return;
        const int other = groups_.group_of(consumer);
        if (other == group) continue;
        if (reader >= 0 && other != reader) return;
        reader = other;
      }
    }
    if (reader < 0 || !gathers_windows(reader) || !groups_.fits_one_fusion(group, reader)) return;
    if (std::ranges::any_of(groups_.members(reader), [&](int op) {
          return is_gather(graph_.ops[op]) && groups_.takes_from(op, group);
        }))
      return;
    Dims joined;
    const Dims domain = groups_.domain_of(reader), own = groups_.domain_of(group);
    if (broadcast_dims(own, domain, joined) && joined == domain &&
        !groups_.would_wait_for_itself(group, reader))
      groups_.merge(group, reader);
  }

  // Numbers made of coordinates and constants. A coordinate reads the dims of its input, no element.
  void find_counted() {
    const auto is_known = [&](int input) {
      const int producer = groups_.direct_producer(input);
      return graph_.tensors[input].memory == Memory::constant || (producer >= 0 && counted_[producer]);
    };
    for (int op = 0; op < groups_.op_count(); ++op)
      counted_[op] = !folded_.folded[op] && is_pointwise(graph_.ops[op]) && groups_.is_virtual_result(op) &&
                     (groups_.is_gen_index(op) || std::ranges::all_of(graph_.ops[op].inputs, is_known));
  }

  bool gathers_windows(int group) const {
    const GroupFacts& facts = groups_.facts(group);
    return facts.anchors.empty() && facts.has_gather && !facts.has_grouped && !facts.reductions.empty() &&
           std::ranges::all_of(facts.reductions, [&](int reduction) {
             return groups_.row_elements(reduction) > 1 && groups_.row_elements(reduction) <= kMostPlaces;
           });
  }

  // A cheap value of a smaller shape (a scaled bias, which rows exist) is computed again at each use by the
  // one group that reads it.
  void absorb_small(int op) {
    if (!is_cheap_value(op)) return;
    int reader = -1;
    for (const int consumer : groups_.consumers(op)) {
      if (folded_.folded[consumer] || !is_pointwise(graph_.ops[consumer]) ||
          groups_.group_of(consumer) == groups_.group_of(op))
        return;
      if (reader >= 0 && groups_.group_of(consumer) != reader) return;
      reader = groups_.group_of(consumer);
      if (groups_.is_before_anchor(consumer)) return;
    }
    if (reader < 0) return;
    // A pair may be cut between its siblings: what both read must then be stored.
    if (groups_.anchors_of(reader).size() > 1 && groups_.consumers(op).size() > 1) return;
    const Dims domain = groups_.domain_of(reader);
    Dims joined;
    const bool fits = !domain.empty() && broadcast_dims(groups_.result_dims(op), domain, joined) &&
                      joined == domain && element_count(groups_.result_dims(op)) < element_count(domain);
    if (fits && !groups_.facts(reader).has_grouped && groups_.fits_one_fusion(groups_.group_of(op), reader) &&
        !groups_.would_wait_for_itself(groups_.group_of(op), reader))
      groups_.merge(groups_.group_of(op), reader);
  }

  // True where the op's group computes its result and nothing else, in a few instructions.
  bool is_cheap_value(int op) const {
    const int group = groups_.group_of(op);
    int cost = 0;
    return groups_.size_of(group) <= kCheapInstructions &&
           std::ranges::all_of(groups_.members(group), [&](int each) {
             cost +=
                 is_pointwise(graph_.ops[each]) ? pointwise_cost(graph_.ops[each]) : kCheapInstructions + 1;
             return cost <= kCheapInstructions && groups_.is_virtual_result(each) &&
                    (each == op || std::ranges::all_of(groups_.consumers(each), [&](int consumer) {
                       return !folded_.folded[consumer] && groups_.group_of(consumer) == group;
                     }));
           });
  }

  // ---- Groups that share a launch ----

  // Small groups of one shape that do not wait for each other are one: the updates of a network's biases,
  // say.
  void join_neighbours() {
    std::map<std::vector<int64_t>, std::vector<int>> known;  // by shape
    for (int i = 0; i < groups_.op_count(); ++i) {
      if (folded_.folded[i] || groups_.members(groups_.group_of(i)).front() != i) continue;
      const int group = groups_.group_of(i);
      if (!is_launched_in_vain(group)) continue;
      const Dims dims = groups_.domain_of(group);
      std::vector<int>& others = known[{dims.begin(), dims.end()}];
      const auto joins = [&](int other) {
        return groups_.fits_one_fusion(group, other) &&
               groups_.size_of(group) + groups_.size_of(other) <= kMostJoined &&
               !gathers_from(group, other) && !gathers_from(other, group) &&
               !groups_.would_wait_for_itself(group, other);
      };
      const auto last = others.end();
      const auto other = std::find_if(last - std::min(last - others.begin(), kMostAsked), last, joins);
      if (other == last) {
        others.push_back(group);
        continue;
      }
      groups_.merge(group, *other);
      std::rotate(other, other + 1, last);
    }
  }

  // What a gather takes from lies in memory, and is none of its group's values.
  bool gathers_from(int group, int other) const {
    return groups_.facts(group).has_gather && std::ranges::any_of(groups_.members(group), [&](int op) {
             return is_gather(graph_.ops[op]) && groups_.takes_from(op, other);
           });
  }

  // Whether the launch of a group of pointwise ops and gathers takes longer than its elements.
  bool is_launched_in_vain(int group) const {
    const Dims dims = groups_.domain_of(group);
    return !dims.empty() && element_count(dims) <= kFewElements &&
           std::ranges::all_of(groups_.members(group), [&](int op) {
             return (is_pointwise(graph_.ops[op]) || is_gather(graph_.ops[op])) &&
                    !is_packed(graph_.tensors[graph_.ops[op].outputs[0]].type);
           });
  }

  // Products of one operand are siblings, if their results are as many: the keys and the values of a layer.
  // Pricing cuts the pair again where its products are cheaper alone.
  void join_products() {
    for (int i = 0; i < groups_.op_count(); ++i) {
      if (!is_lone_product(i)) continue;
      for (const int other : folded_.index.consumers(graph_.ops[i].inputs[0])) {
        if (other <= i || !is_lone_product(other) || !are_siblings(graph_, i, other)) continue;
        const int group = groups_.group_of(i), joined = groups_.group_of(other);
        const bool waits = groups_.any_before({&other, 1}, {group, joined}, [&](int op) { return op == i; });
        if (waits || !groups_.fits_one_fusion(group, joined) || groups_.would_wait_for_itself(group, joined))
          continue;
        groups_.merge(joined, group);
        break;
      }
    }
  }
  // Whether the op is a matmul of many rows, and the one contraction of its group. Products of few rows are
  // split along k, which siblings are not: a layer that decodes 8 sequences took 168 us with keys and values
  // as a pair, 165 without (H200, 2026-11).
  bool is_lone_product(int op) const {
    if (folded_.folded[op] || !is_matmul(graph_.ops[op])) return false;
    const Dims& result = groups_.result_dims(op);
    return element_count(result) >= kManyRows * result[result.rank() - 1] &&
           groups_.anchors_of(groups_.group_of(op)).size() == 1;
  }

  Groups& groups_;
  const Graph& graph_;
  const FoldedGraph& folded_;
  std::vector<bool> counted_;  // per op: made of coordinates and constants alone
};

}  // namespace

void absorb_small_groups(Groups& groups, const Graph& graph, const FoldedGraph& folded) {
  SmallGroups(groups, graph, folded).run();
}

}  // namespace fusor
