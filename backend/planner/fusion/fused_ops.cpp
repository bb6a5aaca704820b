// Owns the walks over the ops of one fusion that tell its anchors apart and find the values that leave.
#include "backend/planner/fusion/fused_ops.h"

#include <algorithm>
#include <set>

#include "core/fail.h"

namespace fusor {

FusedOps::FusedOps(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops)
    : graph_(graph), folded_(folded), ops_(ops) {
  for (const int op : ops) {
    const Attributes& attributes = graph.ops[op].attributes;
    if (is_contraction(attributes) || nature(attributes) == Nature::composite) anchors_.push_back(op);
  }
  is_chain_ = anchors_.size() >= 2 && find_chain();
  if (anchors_.size() > 1 && !is_chain_ && !is_pair()) refuse("have two contractions");
  if (!is_chain_) mark_upstream();
}

void FusedOps::refuse(const std::string& why) const {
  std::vector<std::string> names;
  for (const int op : ops_) names.push_back(graph_.ops[op].name);
  fail("ops {} {} and cannot be one fusion", fmt::join(names, ", "), why);
}

bool FusedOps::is_pair() const {
  return anchors_.size() == 2 && are_siblings(graph_, anchors_[0], anchors_[1]) &&
         !downstream_of(folded_, ops_, anchors_[0])[position(anchors_[1])];
}

// Anchors behind others: their first operands come of these results, the other ones do not, and nothing
// comes of their own.
bool FusedOps::find_chain() {
  std::vector<bool> is_made(ops_.size(), false);
  for (const int anchor : anchors_) {
    const std::vector<bool> behind = downstream_of(folded_, ops_, anchor);
    for (size_t i = 0; i < ops_.size(); ++i) is_made[i] = is_made[i] || (behind[i] && ops_[i] != anchor);
  }
  for (const int anchor : anchors_) (is_made[position(anchor)] ? backs_ : fronts_).push_back(anchor);
  const auto is_made_of_fronts = [&](int tensor) {
    const int producer = folded_.index.producer(tensor);
    return producer >= 0 && contains(producer) &&
           (is_made[position(producer)] || std::ranges::find(fronts_, producer) != fronts_.end());
  };
  const auto dims = [&](int anchor) -> const Dims& {
    return graph_.tensors[graph_.ops[anchor].outputs[0]].dims;
  };
  return !backs_.empty() &&
         std::ranges::all_of(fronts_, [&](int anchor) { return dims(anchor) == dims(fronts_[0]); }) &&
         std::ranges::all_of(backs_, [&](int anchor) {
           const std::vector<int>& inputs = graph_.ops[anchor].inputs;
           return is_made_of_fronts(seen_through_transposes(inputs[0]).tensor) &&
                  !is_made_of_fronts(seen_through_transposes(inputs[1]).tensor);
         });
}

// Ops of the set that the anchors wait for: they belong before their operands.
void FusedOps::mark_upstream() {
  upstream_.assign(ops_.size(), false);
  std::vector<int> waiting;
  for (const int anchor : anchors_)
    waiting.insert(waiting.end(), graph_.ops[anchor].inputs.begin(), graph_.ops[anchor].inputs.end());
  while (!waiting.empty()) {
    const int producer = folded_.index.producer(waiting.back());
    waiting.pop_back();
    if (is_of_blocks(producer)) waiting.push_back(graph_.ops[producer].inputs[0]);
    if (producer < 0 || !contains(producer) || upstream_[position(producer)]) continue;
    upstream_[position(producer)] = true;
    waiting.insert(waiting.end(), graph_.ops[producer].inputs.begin(), graph_.ops[producer].inputs.end());
  }
}

int FusedOps::sibling_of(int op) const {
  return static_cast<int>(std::ranges::find(anchors_, op) - anchors_.begin());
}

FusedOps::Seen FusedOps::seen_through_transposes(int tensor) const {
  Seen seen{tensor, {}};
  for (;;) {
    const int producer = folded_.index.producer(seen.tensor);
    if (producer < 0 || !folded_.folded[producer]) return seen;
    const auto* const transpose = std::get_if<Transpose>(&graph_.ops[producer].attributes);
    if (transpose == nullptr) return seen;
    Dims axes = transpose->permutation;
    for (int i = 0; i < seen.axes.rank(); ++i)
      axes[i] = transpose->permutation[static_cast<int>(seen.axes[i])];
    seen = {graph_.ops[producer].inputs[0], axes};
  }
}

int FusedOps::unconverted(int tensor) const {
  for (;;) {
    const int producer = folded_.index.producer(tensor);
    if (producer < 0 || !contains(producer)) return tensor;
    const auto* const pointwise = std::get_if<Pointwise>(&graph_.ops[producer].attributes);
    const int from = graph_.ops[producer].inputs[0];
    if (pointwise == nullptr || pointwise->mode != PointwiseMode::identity ||
        graph_.tensors[from].type != graph_.tensors[tensor].type || !is_computed(from))
      return tensor;
    tensor = from;
  }
}

bool FusedOps::is_computed(int tensor) const {
  std::vector<int> open{tensor};
  std::set<int> known{tensor};
  while (!open.empty()) {
    const int producer = folded_.index.producer(open.back());
    open.pop_back();
    if (producer < 0) continue;
    if (contains(producer)) return true;
    if (!folded_.folded[producer]) continue;
    for (const int part : graph_.ops[producer].inputs)
      if (part >= 0 && known.insert(part).second) open.push_back(part);
  }
  return false;
}

bool FusedOps::leaves(int tensor) const {
  if (!graph_.tensors[tensor].is_virtual()) return true;
  return std::ranges::any_of(folded_.index.consumers(tensor),
                             [&](int op) { return !contains(op) && !is_port(op) && !is_seen_within(op); });
}

// A folded view through which only ops of the set look at a value in front of anchors.
bool FusedOps::is_seen_within(int op) const {
  const Op& view = graph_.ops[op];
  Dims axes;
  const bool is_seen =
      is_chain_ ? folded_.folded[op] && axes_of_operand(graph_, view, axes) : is_of_blocks(op);
  return is_seen && !leaves(view.outputs[0]);
}

bool FusedOps::is_of_blocks(int op) const {
  int axis = 0;
  return op >= 0 && folded_.folded[op] && joins_blocks(graph_, graph_.ops[op], axis) &&
         is_computed(graph_.ops[op].outputs[0]);
}

// A transpose that only anchors behind others read, as their first operand, or other such transposes.
bool FusedOps::is_port(int op) const {
  std::vector<int> open{op};
  while (!open.empty()) {
    const Op& view = graph_.ops[open.back()];
    const bool may_be = folded_.folded[open.back()] && std::holds_alternative<Transpose>(view.attributes) &&
                        graph_.tensors[view.outputs[0]].is_virtual();
    if (!may_be) return false;
    open.pop_back();
    const int tensor = view.outputs[0];
    for (const int reader : folded_.index.consumers(tensor)) {
      const std::vector<int>& inputs = graph_.ops[reader].inputs;
      const bool is_back =
          std::ranges::find(backs_, reader) != backs_.end() && inputs[0] == tensor && inputs[1] != tensor;
      if (!is_back) open.push_back(reader);
    }
  }
  return true;
}

}  // namespace fusor
