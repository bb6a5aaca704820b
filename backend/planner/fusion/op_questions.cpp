// Owns the questions about single ops on which it depends whether they share a domain with others.
#include <algorithm>

#include "backend/planner/partition/reach.h"
#include "backend/planner/planner.h"

namespace fusor {

bool works_over_operand(const Op& op) {
  return std::holds_alternative<Reduction>(op.attributes) || std::holds_alternative<Scatter>(op.attributes);
}

bool axes_of_operand(const Graph& graph, const Op& view, Dims& axes) {
  const Dims &x = graph.tensors[view.inputs[0]].dims, &y = graph.tensors[view.outputs[0]].dims;
  axes = Dims::filled(x.rank(), -1);
  if (const auto* const transpose = std::get_if<Transpose>(&view.attributes)) {
    for (int i = 0; i < y.rank(); ++i) axes[static_cast<int>(transpose->permutation[i])] = i;
    return true;
  }
  if (!std::holds_alternative<Reshape>(view.attributes)) return false;
  // The same axes in order, among others of one element.
  int at = 0;
  const auto skip = [&] {
    while (at < y.rank() && y[at] == 1) ++at;
  };
  for (int i = 0; i < x.rank(); ++i) {
    if (x[i] == 1) continue;
    skip();
    if (at == y.rank() || y[at] != x[i]) return false;
    axes[i] = at++;
  }
  skip();
  return at == y.rank();
}

bool joins_blocks(const Graph& graph, const Op& view, int& axis) {
  if (!std::holds_alternative<Reshape>(view.attributes)) return false;
  const Dims &x = graph.tensors[view.inputs[0]].dims, &y = graph.tensors[view.outputs[0]].dims;
  if (x.rank() != y.rank() + 1) return false;
  axis = 0;
  while (axis < y.rank() && x[axis] == y[axis]) ++axis;
  if (axis == y.rank() || x[axis] == 1 || x[axis + 1] == 1 || x[axis] * x[axis + 1] != y[axis]) return false;
  for (int i = axis + 1; i < y.rank(); ++i)
    if (x[i + 1] != y[i]) return false;
  return true;
}

bool is_grouped_reduction(const Graph& graph, const Op& op) {
  const Dims& x = graph.tensors[op.inputs[0]].dims;
  const Dims& y = graph.tensors[op.outputs[0]].dims;
  for (int i = 0; i < x.rank(); ++i)
    if (y[i] != 1 && y[i] != x[i]) return true;
  return false;
}

bool is_gather_of_gather(const Graph& graph, const GraphIndex& index, const Op& op) {
  const auto gather_behind = [&](const Op& each) -> const Op* {
    const int producer = index.producer(each.inputs[0]);
    return producer >= 0 && std::holds_alternative<Gather>(graph.ops[producer].attributes)
               ? &graph.ops[producer]
               : nullptr;
  };
  if (!std::holds_alternative<Gather>(op.attributes) || gather_behind(op) == nullptr) return false;
  const auto axis = static_cast<int>(std::get<Gather>(op.attributes).axis);
  const DataType type = graph.tensors[op.inputs[0]].type;
  size_t depth = 1;
  for (const Op* inner = gather_behind(op); inner != nullptr; inner = gather_behind(*inner)) {
    // A load has so many indices: what a further gather reads lies in memory.
    if (++depth > Access{}.indexed.size()) return false;
    if (std::get<Gather>(inner->attributes).axis == axis || graph.tensors[inner->inputs[0]].type != type ||
        graph.tensors[inner->inputs[1]].dims[axis] != 1)
      return false;
  }
  return true;
}

bool is_passed_through(const Graph& graph, const GraphIndex& index, std::span<const int> ops, int gather) {
  const int y = graph.ops[gather].outputs[0];
  if (!std::holds_alternative<Gather>(graph.ops[gather].attributes) || !graph.tensors[y].is_virtual())
    return false;
  const std::span<const int> readers = index.consumers(y);
  return !readers.empty() && std::ranges::all_of(readers, [&](int reader) {
    const Op& op = graph.ops[reader];
    return position_in(ops, reader) >= 0 && is_gather_of_gather(graph, index, op) && op.inputs[1] != y;
  });
}

bool are_siblings(const Graph& graph, int first, int second) {
  const Op &a = graph.ops[first], &b = graph.ops[second];
  const auto dims = [&](int tensor) -> const Dims& { return graph.tensors[tensor].dims; };
  return is_contraction(a.attributes) && a.attributes == b.attributes && a.inputs[0] == b.inputs[0] &&
         dims(a.inputs[1]) == dims(b.inputs[1]) && dims(a.outputs[0]) == dims(b.outputs[0]);
}

}  // namespace fusor
