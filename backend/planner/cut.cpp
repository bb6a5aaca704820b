// Owns the cut of a set of ops, and the mending of parts that could not be fusions.
#include "backend/planner/cut.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "backend/planner/partition/reach.h"

namespace fusor {

namespace {

std::vector<int> contractions_in(const Graph& graph, std::vector<int> ops) {
  std::erase_if(ops, [&](int op) { return !is_contraction(graph.ops[op].attributes); });
  return ops;
}

// The ops that read a tensor, directly or through views that are folded, which are ops of no fusion; and
// these views.
std::vector<int> readers_through_views(const Graph& graph, const FoldedGraph& folded, int tensor) {
  std::vector<int> readers;
  std::vector<int> open{tensor};
  std::set<int> known;
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int reader : folded.index.consumers(at)) {
      if (!known.insert(reader).second) continue;
      readers.push_back(reader);
      if (folded.folded[reader]) open.push_back(graph.ops[reader].outputs[0]);
    }
  }
  return readers;
}

// What only contractions of the second part wait for is no part of the first: cut at one of two siblings,
// its operand goes with it. What becomes of a contraction of the first part stays there.
void keep_operands_with_anchors(const Graph& graph, const FoldedGraph& folded, Cut& cut) {
  auto& [first, second] = cut;
  const std::vector<int> anchors = contractions_in(graph, first);
  if (anchors.empty()) return;
  std::vector<int> all;
  std::ranges::merge(first, second, std::back_inserter(all));
  const std::vector<bool> before_first = upstream_of(folded, all, anchors);
  const std::vector<bool> before_second = upstream_of(folded, all, contractions_in(graph, second));
  std::vector<bool> behind_first(all.size(), false);
  for (const int anchor : anchors) {
    const std::vector<bool> behind = downstream_of(folded, all, anchor);
    for (size_t i = 0; i < all.size(); ++i) behind_first[i] = behind_first[i] || behind[i];
  }
  std::vector<int> kept;
  for (const int op : first) {
    const auto at = static_cast<size_t>(position_in(all, op));
    (before_second[at] && !before_first[at] && !behind_first[at] ? second : kept).push_back(op);
  }
  first = std::move(kept);
  std::ranges::sort(second);
}

// In a chain with a softmax, the last op before the second contraction is computed in front of its operand,
// as it would be if the two had never been one fusion. Without one, it is the first contraction's epilogue.
void give_operand_to_second(const Graph& graph, const FoldedGraph& folded, Cut& cut) {
  auto& [first, second] = cut;
  const std::vector<int> anchors = contractions_in(graph, second);
  if (anchors.size() != 1 || contractions_in(graph, first).empty()) return;
  const auto is_reduction = [&](int op) {
    return std::holds_alternative<Reduction>(graph.ops[op].attributes);
  };
  if (std::ranges::none_of(first, is_reduction)) return;
  const int producer = folded.index.producer(graph.ops[anchors[0]].inputs[0]);
  if (producer < 0 || position_in(first, producer) < 0 ||
      !std::holds_alternative<Pointwise>(graph.ops[producer].attributes))
    return;
  const int result = graph.ops[producer].outputs[0];
  if (!graph.tensors[result].is_virtual() || folded.index.consumers(result).size() != 1) return;
  std::erase(first, producer);
  second.insert(std::ranges::lower_bound(second, producer), producer);
}

// A value of another shape than the largest is not stored by the fusion that computes it along the way: it
// moves to its reader.
void keep_other_shapes_with_readers(const Graph& graph, const FoldedGraph& folded, Cut& cut) {
  std::vector<int>& first = cut.first;
  std::vector<int>& second = cut.second;
  const auto dims = [&](int op) -> const Dims& { return graph.tensors[graph.ops[op].outputs[0]].dims; };
  Dims largest;
  for (const int op : first)
    if (largest.empty() || element_count(dims(op)) > element_count(largest)) largest = dims(op);
  std::vector<int> kept, moved;  // both descending
  const auto is_elementwise = [&](int op) {
    const Attributes& attributes = graph.ops[op].attributes;
    return std::holds_alternative<Pointwise>(attributes) || std::holds_alternative<Gather>(attributes);
  };
  const auto is_moved = [&](int op) {
    return std::ranges::binary_search(moved, op, std::greater{}) || position_in(second, op) >= 0;
  };
  for (auto op = first.rbegin(); op != first.rend(); ++op) {
    const bool moves = is_elementwise(*op) && dims(*op) != largest &&
                       std::ranges::any_of(folded.index.consumers(graph.ops[*op].outputs[0]), is_moved);
    (moves ? moved : kept).push_back(*op);
  }
  first.assign(kept.rbegin(), kept.rend());
  second.insert(second.end(), moved.begin(), moved.end());
  std::ranges::sort(second);
}

// Moves pointwise ops of the first part, whose results it alone would store for the second, to that one, with
// all that leads to them alone. `is_at_hand(op, moves)`: whether the second part has all that the op is
// computed from, where the ops that `moves` names go along.
template <class IsAtHand>
void give_to_readers(const Graph& graph, const FoldedGraph& folded, Cut& cut, const IsAtHand& is_at_hand) {
  std::vector<int>& first = cut.first;
  std::vector<int>& second = cut.second;
  const auto readers_of = [&](int op) { return folded.index.consumers(graph.ops[op].outputs[0]); };
  const auto may_move = [&](int op) {
    return std::holds_alternative<Pointwise>(graph.ops[op].attributes) &&
           graph.tensors[graph.ops[op].outputs[0]].is_virtual() && !readers_of(op).empty();
  };
  std::vector<int> given, before;
  std::ranges::copy_if(first, std::back_inserter(given), may_move);
  do {
    before = given;
    const auto moves = [&](int op) { return position_in(before, op) >= 0; };
    const auto is_there = [&](int reader) { return position_in(second, reader) >= 0 || moves(reader); };
    std::erase_if(given, [&](int op) {
      return !std::ranges::all_of(readers_of(op), is_there) || !is_at_hand(op, moves);
    });
  } while (given.size() < before.size());
  std::erase_if(first, [&](int op) { return position_in(given, op) >= 0; });
  second.insert(second.end(), given.begin(), given.end());
  std::ranges::sort(second);
}

// A value behind a contraction need not be stored where the second part alone reads it, and reads or finds in
// memory all that it is made of: it is computed there. The square of a result whose statistics are taken is
// such a value, and the product of a gradient and what a norm made in the forward pass.
void give_values_to_readers(const Graph& graph, const FoldedGraph& folded, Cut& cut) {
  if (contractions_in(graph, cut.first).empty() || !contractions_in(graph, cut.second).empty()) return;
  const auto is_read_there = [&](int reader) { return position_in(cut.second, reader) >= 0; };
  give_to_readers(graph, folded, cut, [&](int op, const auto& moves) {
    return std::ranges::all_of(graph.ops[op].inputs, [&](int tensor) {
      const int producer = folded.index.producer(tensor);
      return producer < 0 || position_in(cut.first, producer) < 0 || moves(producer) ||
             !graph.tensors[tensor].is_virtual() ||
             std::ranges::any_of(folded.index.consumers(tensor), is_read_there);
    });
  });
}

// Values that the second part alone reads are computed there, where what they are made of lies in memory, or
// is little: a number for each row.
void give_chains_to_readers(const Graph& graph, const FoldedGraph& folded, Cut& cut) {
  constexpr int64_t kLittle = 16;  // elements for each of another value
  const auto elements = [&](int op) { return element_count(graph.tensors[graph.ops[op].outputs[0]].dims); };
  give_to_readers(graph, folded, cut, [&](int op, const auto& moves) {
    return std::ranges::all_of(folded.dependencies[op], [&](int producer) {
      return position_in(cut.first, producer) < 0 || moves(producer) ||
             elements(producer) * kLittle <= elements(op);
    });
  });
}

// Cut in front of all contractions, what becomes of no operand of theirs stays behind: a mask of scores, say.
void keep_operands_only(const Graph& graph, const FoldedGraph& folded, Cut& cut) {
  auto& [first, second] = cut;
  if (!contractions_in(graph, first).empty()) return;
  std::vector<int> operands, others;  // both descending
  const auto becomes_operand = [&](int reader) {
    return is_contraction(graph.ops[reader].attributes) ||
           std::ranges::binary_search(operands, reader, std::greater{});
  };
  const auto leads_to_operand = [&](int op) {
    return std::ranges::any_of(readers_through_views(graph, folded, graph.ops[op].outputs[0]),
                               becomes_operand);
  };
  for (auto op = first.rbegin(); op != first.rend(); ++op)
    (leads_to_operand(*op) ? operands : others).push_back(*op);
  if (operands.empty()) return;
  first.assign(operands.rbegin(), operands.rend());
  second.insert(second.end(), others.begin(), others.end());
  std::ranges::sort(second);
}

// Whether the op's result lies in memory however the set is cut, or one does that pointwise ops of the set
// make of it: another type of it, say.
bool leaves(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops, int op) {
  std::vector<int> made{op};  // the op, and pointwise ops that read it
  for (size_t next = 0; next < made.size(); ++next) {
    const int result = graph.ops[made[next]].outputs[0];
    if (!graph.tensors[result].is_virtual()) return true;
    for (const int reader : readers_through_views(graph, folded, result)) {
      const bool is_view = folded.folded[reader];
      if (is_view ? !graph.tensors[graph.ops[reader].outputs[0]].is_virtual() : position_in(ops, reader) < 0)
        return true;
      if (!is_view && std::holds_alternative<Pointwise>(graph.ops[reader].attributes) &&
          std::ranges::find(made, reader) == made.end())
        made.push_back(reader);
    }
  }
  return false;
}

bool first_waits(const FoldedGraph& folded, const Cut& cut) {
  const auto in_second = [&](int wait) { return position_in(cut.second, wait) >= 0; };
  return std::ranges::any_of(cut.first,
                             [&](int op) { return std::ranges::any_of(folded.dependencies[op], in_second); });
}

Cut cut_by(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops,
           const std::vector<bool>& is_second) {
  Cut cut;
  for (size_t i = 0; i < ops.size(); ++i) (is_second[i] ? cut.second : cut.first).push_back(ops[i]);
  keep_operands_with_anchors(graph, folded, cut);
  keep_operands_only(graph, folded, cut);
  give_operand_to_second(graph, folded, cut);
  give_values_to_readers(graph, folded, cut);
  keep_other_shapes_with_readers(graph, folded, cut);
  return first_waits(folded, cut) ? Cut{} : cut;
}

}  // namespace

Cut cut_at(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops, int at) {
  const std::vector<int> anchors = contractions_in(graph, ops);
  std::vector<bool> is_second = downstream_of(folded, ops, at);
  if (!anchors.empty() && anchors[0] != at && is_second[static_cast<size_t>(position_in(ops, anchors[0]))]) {
    is_second = upstream_of(folded, ops, {&at, 1});
    is_second.flip();
    is_second[static_cast<size_t>(position_in(ops, at))] = false;
  }
  return cut_by(graph, folded, ops, is_second);
}

Cut cut_at_reductions(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops, int at) {
  const auto is_reduction = [&](int op) {
    return std::holds_alternative<Reduction>(graph.ops[op].attributes);
  };
  const std::vector<int> anchors = contractions_in(graph, ops);
  if (!is_reduction(at) || anchors.size() > 1) return {};
  const bool is_behind = anchors.size() == 1;
  if (is_behind && std::ranges::count_if(ops, is_reduction) < 2) return {};
  std::vector<bool> is_second(ops.size(), false);
  for (const int op : ops) {
    if (!is_reduction(op)) continue;
    const std::vector<bool> behind = downstream_of(folded, ops, op);
    if (!is_behind && std::ranges::count(behind, true) > 1) continue;
    for (size_t i = 0; i < ops.size(); ++i) is_second[i] = is_second[i] || behind[i];
  }
  if (is_behind) {
    if (is_second[static_cast<size_t>(position_in(ops, anchors[0]))]) return {};
    return cut_by(graph, folded, ops, is_second);
  }
  if (!is_second[static_cast<size_t>(position_in(ops, at))]) return {};
  Cut cut;
  for (size_t i = 0; i < ops.size(); ++i) (is_second[i] ? cut.second : cut.first).push_back(ops[i]);
  give_chains_to_readers(graph, folded, cut);
  return cut;
}

Cut cut_behind_operands(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops) {
  const std::vector<int> anchors = contractions_in(graph, ops);
  if (anchors.size() < 2) return {};
  std::vector<bool> is_behind(ops.size(), false);
  for (const int anchor : anchors) {
    const std::vector<bool> behind = downstream_of(folded, ops, anchor);
    for (size_t i = 0; i < ops.size(); ++i) is_behind[i] = is_behind[i] || behind[i];
  }
  Cut cut;
  for (size_t i = 0; i < ops.size(); ++i) (is_behind[i] ? cut.second : cut.first).push_back(ops[i]);
  keep_operands_only(graph, folded, cut);
  return first_waits(folded, cut) ? Cut{} : cut;
}

Cut cut_behind_stored(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops) {
  // Sets of fewer contractions leave a pair at most, which engines' refusals cut.
  constexpr size_t kFewest = 4;
  const std::vector<int> anchors = contractions_in(graph, ops);
  if (anchors.size() < kFewest) return {};
  std::vector<bool> is_second(ops.size(), false);
  for (const int anchor : anchors) {
    const int producer = folded.index.producer(graph.ops[anchor].inputs[0]);
    if (producer < 0 || position_in(ops, producer) < 0 ||
        !std::holds_alternative<Pointwise>(graph.ops[producer].attributes) ||
        !leaves(graph, folded, ops, producer))
      continue;
    const std::vector<bool> behind = downstream_of(folded, ops, anchor);
    for (size_t i = 0; i < ops.size(); ++i) is_second[i] = is_second[i] || behind[i];
  }
  return cut_by(graph, folded, ops, is_second);
}

Cut cut_in_half(const Graph& graph, const FoldedGraph& folded, const std::vector<int>& ops) {
  const auto middle = ops.begin() + static_cast<std::ptrdiff_t>(ops.size() / 2);
  const Cut plain{{ops.begin(), middle}, {middle, ops.end()}};
  Cut cut = plain;
  keep_other_shapes_with_readers(graph, folded, cut);
  return cut.first.empty() || first_waits(folded, cut) ? plain : cut;
}

}  // namespace fusor
