// Owns the search for what leads to operands, and away from results, through indices.
#include "backend/planner/partition/gathered.h"

#include <algorithm>

namespace fusor {

std::vector<int> Gathered::ops_of(int operand) const {
  bool gathers = false;
  const std::vector<int> ops = ops_in_front(operand, gathers);
  return gathers ? ops : std::vector<int>();
}

std::vector<int> Gathered::ops_in_front(int operand, bool& gathers) const {
  constexpr size_t kMostOps = 32;
  std::vector<int> ops, waiting{operand};
  while (!waiting.empty()) {
    const int tensor = waiting.back();
    const int producer = folded_.index.producer(tensor);
    waiting.pop_back();
    if (producer < 0 || groups_.is_view_of_input(tensor) || std::ranges::find(ops, producer) != ops.end())
      continue;
    const Op& op = graph_.ops[producer];
    if (folded_.folded[producer]) {
      if (Dims axes; !graph_.tensors[tensor].is_virtual() || !axes_of_operand(graph_, op, axes)) return {};
      waiting.push_back(op.inputs[0]);
      continue;
    }
    if (groups_.size_of(groups_.group_of(producer)) != 1 || !groups_.is_virtual_result(producer) ||
        ops.size() == kMostOps || (!is_pointwise(op) && !is_gather(op)) ||
        (is_gather(op) && !groups_.is_view_of_input(op.inputs[0])))
      return {};
    gathers = gathers || is_gather(op);
    ops.push_back(producer);
    for (const int input : op.inputs)
      if (!is_row_beside(op, input)) waiting.push_back(input);
  }
  return ops;
}

bool Gathered::is_row_beside(const Op& select, int tensor) const {
  constexpr int64_t kFewOf = 16;
  const auto* const pointwise = std::get_if<Pointwise>(&select.attributes);
  return pointwise != nullptr && pointwise->mode == PointwiseMode::binary_select &&
         is_real(graph_.tensors[tensor].type) &&
         element_count(graph_.tensors[tensor].dims) * kFewOf <=
             element_count(graph_.tensors[select.outputs[0]].dims);
}

bool Gathered::is_masked_input(int tensor) const {
  const int producer = folded_.index.producer(tensor);
  if (producer < 0) return false;
  if (folded_.folded[producer]) return is_masked_input(graph_.ops[producer].inputs[0]);
  const auto* const select = std::get_if<Pointwise>(&graph_.ops[producer].attributes);
  return select != nullptr && select->mode == PointwiseMode::binary_select &&
         groups_.is_view_of_input(graph_.ops[producer].inputs[0]);
}

void Gathered::absorb_ragged_operand(int tensor, int op) {
  bool gathers = false;
  const std::vector<int> ops = ops_in_front(tensor, gathers);
  if (!gathers && !is_masked_input(tensor)) return;
  const int group = groups_.group_of(op);
  const auto is_within = [&](int reader) {
    return groups_.group_of(reader) == group || std::ranges::find(ops, reader) != ops.end();
  };
  const auto may_join = [&](int each) {
    return (!is_gather(graph_.ops[each]) || is_flat(graph_.ops[each].inputs[0])) &&
           groups_.all_readers(graph_.ops[each].outputs[0], is_within);
  };
  if (std::ranges::all_of(ops, may_join)) merge_all(ops, op);
}

void Gathered::absorb_ragged_results(int made, int op) {
  for (const int scatter : groups_.consumers(made)) {
    if (!is_scatter(graph_.ops[scatter]) || !is_flat(graph_.ops[scatter].outputs[0]) ||
        graph_.ops[scatter].inputs[0] != graph_.ops[made].outputs[0])
      continue;
    std::vector<int> ops{scatter};
    const auto is_within = [&](int reader) { return std::ranges::find(ops, reader) != ops.end(); };
    const auto comes_from_elsewhere = [&](int tensor) {
      const int producer = groups_.direct_producer(tensor);
      return producer >= 0 && producer != made && !is_within(producer);
    };
    bool is_computed = true;
    for (size_t next = 0; next < ops.size() && is_computed; ++next)
      for (const int tensor : graph_.ops[ops[next]].inputs) {
        // A tensor that several of these ops read joins when the last of its readers has.
        if (!comes_from_elsewhere(tensor) || !groups_.all_readers(tensor, is_within)) continue;
        const int producer = groups_.direct_producer(tensor);
        is_computed = is_computed && is_pointwise(graph_.ops[producer]) && !groups_.is_unpacking(producer);
        ops.push_back(producer);
      }
    const bool is_whole = std::ranges::none_of(
        ops, [&](int each) { return std::ranges::any_of(graph_.ops[each].inputs, comes_from_elsewhere); });
    if (is_computed && is_whole) merge_all(ops, op);
  }
}

// Elements along one axis.
bool Gathered::is_flat(int tensor) const {
  const Dims& dims = graph_.tensors[tensor].dims;
  return std::ranges::count_if(dims, [](int64_t extent) { return extent != 1; }) == 1;
}

void Gathered::merge_all(std::vector<int> ops, int op) {
  if (ops.size() + groups_.size_of(groups_.group_of(op)) > kMaxFusionOps) return;
  std::ranges::sort(ops);
  for (auto each = ops.rbegin(); each != ops.rend(); ++each)
    if (groups_.group_of(*each) != groups_.group_of(op) &&
        !groups_.would_wait_for_itself(groups_.group_of(*each), groups_.group_of(op)))
      groups_.merge(groups_.group_of(*each), groups_.group_of(op));
}

}  // namespace fusor
