// Owns the search for views that may come in front of a contraction's prologue.
#include "backend/planner/rewrites/views/early_views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/fold_views.h"
#include "backend/planner/kinds.h"
#include "backend/planner/partition/groups.h"
#include "backend/planner/planner.h"
#include "backend/planner/rewrites/views/reshaped.h"
#include "backend/planner/rewrites/views/seen_in_memory.h"
#include "core/dims.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

class EarlyViews {
 public:
  EarlyViews(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), given_(std::move(graph.ops)) {}

  // Whether anything was moved.
  bool run() {
    for (const Op& op : given_) {
      std::set<int> made;
      if (!may_come_first(op, made)) {
        ops_.push_back(op);
        continue;
      }
      seen_through(op.inputs[0], op, op.outputs[0]);
      passed_.insert(made.begin(), made.end());
    }
    std::erase_if(ops_, [&](const Op& op) { return passed_.contains(op.outputs[0]); });
    for (const int value : passed_) leave_empty(graph_.tensors[static_cast<size_t>(value)]);
    graph_.ops = std::move(ops_);
    return !passed_.empty();
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op* producer(int at) const {
    const int op = index_.producer(at);
    return op < 0 ? nullptr : &given_[static_cast<size_t>(op)];
  }

  // ---- What may move ----

  // Whether the op is a view of values that pointwise ops make of what lies in memory, for contractions
  // alone; `made` are these values.
  bool may_come_first(const Op& view, std::set<int>& made) const {
    if ((!is_reshape(view) && !is_transpose(view)) || !leads_to_contractions(view.outputs[0])) return false;
    int cost = 0;
    return is_made_of_memory(view.inputs[0], view, made, cost) && !made.empty();
  }

  bool leads_to_contractions(int value) const {
    const auto readers = index_.consumers(value);
    return tensor(value).is_virtual() && !readers.empty() && std::ranges::all_of(readers, [&](int reader) {
             const Op& op = given_[static_cast<size_t>(reader)];
             if (is_reshape(op) || is_transpose(op)) return leads_to_contractions(op.outputs[0]);
             return is_contraction(op.attributes);
           });
  }

  // Whether cheap pointwise ops that nobody else reads make the value of what strides show behind the view.
  bool is_made_of_memory(int value, const Op& view, std::set<int>& made, int& cost) const {
    if (tensor(value).is_scalar()) return dims(value).rank() <= dims(view.outputs[0]).rank();
    if (is_packed(tensor(value).type) || !behind(dims(value), view)) return false;
    if (lies_in_memory(value)) return is_seen_behind(value, view);
    const Op* const op = producer(value);
    const auto* const pointwise = op == nullptr ? nullptr : std::get_if<Pointwise>(&op->attributes);
    if (pointwise == nullptr || pointwise->mode == PointwiseMode::gen_index || !tensor(value).is_virtual() ||
        index_.consumers(value).size() != 1)
      return false;
    made.insert(value);
    cost += pointwise_cost(*op);
    return cost <= kCheapInstructions && std::ranges::all_of(op->inputs, [&](int input) {
             return is_made_of_memory(input, view, made, cost);
           });
  }

  bool lies_in_memory(int value) const { return is_seen_in_memory(graph_, given_, index_, value); }

  // Dims that broadcast to those of the view's operand, as ones that broadcast to those of its result.
  std::optional<Dims> behind(const Dims& given, const Op& view) const {
    const Dims& before = dims(view.inputs[0]);
    if (is_reshape(view)) return reshaped(given, before, dims(view.outputs[0]));
    const Dims whole = of_rank(given, before.rank());
    Dims found = whole;
    const Dims& permutation = std::get<Transpose>(view.attributes).permutation;
    for (int i = 0; i < whole.rank(); ++i) found[i] = whole[static_cast<int>(permutation[i])];
    return found;
  }

  static Dims of_rank(Dims dims, int rank) {
    while (dims.rank() < rank) dims.insert(0, 1);
    return dims;
  }

  bool is_seen_behind(int value, const Op& view) const {
    if (is_transpose(view)) return true;
    const auto seen = seen_in_memory(graph_, given_, index_, value);
    Strides ignored;
    return seen && reshape_strides(dims(value), seen->strides, *behind(dims(value), view), ignored);
  }

  // ---- Moves ----

  // The value as the view shows it, written to tensor `into` or to a new one.
  int seen_through(int value, const Op& view, int into = -1) {
    if (tensor(value).is_scalar()) return value;
    if (lies_in_memory(value)) return added_views(value, view);
    Op made = *producer(value);
    std::map<int, int> seen;  // by operand, which an op may read twice
    for (int& input : made.inputs) {
      const auto known = seen.find(input);
      const int shown = known != seen.end() ? known->second : seen_through(input, view);
      seen.emplace(input, shown);
      input = shown;
    }
    if (into < 0) into = additions_.tensor(Tensor(tensor(value)), *behind(dims(value), view), made.name);
    made.outputs = {into};
    ops_.push_back(std::move(made));
    return into;
  }

  int added_views(int value, const Op& view) {
    const Dims shape = *behind(dims(value), view);
    if (is_reshape(view)) return added(Reshape{}, value, shape, view.name);
    const Dims whole = of_rank(dims(value), shape.rank());
    const int padded = added(Reshape{}, value, whole, view.name);
    return element_count(whole) == 1 ? padded : added(view.attributes, padded, shape, view.name);
  }

  int added(const Attributes& attributes, int value, const Dims& shape, const std::string& name) {
    if (std::holds_alternative<Reshape>(attributes) && dims(value) == shape) return value;
    ops_.push_back(additions_.view(attributes, value, shape, name + ".in"));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  std::set<int> passed_;  // values that are not made any more
};

}  // namespace

bool move_views_in_front(Graph& graph, Additions& additions) {
  const auto is_view_that_moves = [](const Op& op) { return is_reshape(op) || is_transpose(op); };
  const auto reads = [](const Op& op) { return is_contraction(op.attributes); };
  return std::ranges::any_of(graph.ops, is_view_that_moves) && std::ranges::any_of(graph.ops, reads) &&
         EarlyViews(graph, additions).run();
}

}  // namespace fusor
