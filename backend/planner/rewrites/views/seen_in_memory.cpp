// Owns the walk from a value through views to the memory that they show.
#include "backend/planner/rewrites/views/seen_in_memory.h"

#include "core/attributes.h"

namespace fusor {

namespace {

const Op* view_of_one(std::span<const Op> ops, const GraphIndex& index, int value) {
  const int producer = index.producer(value);
  if (producer < 0) return nullptr;
  const Op& op = ops[static_cast<size_t>(producer)];
  return is_view(op.attributes) && op.inputs.size() == 1 ? &op : nullptr;
}

}  // namespace

bool is_seen_in_memory(const Graph& graph, std::span<const Op> ops, const GraphIndex& index, int value) {
  if (!graph.tensors[static_cast<size_t>(value)].is_virtual()) return true;
  const Op* const view = view_of_one(ops, index, value);
  return view != nullptr && is_seen_in_memory(graph, ops, index, view->inputs[0]);
}

std::optional<Placement> seen_in_memory(const Graph& graph, std::span<const Op> ops, const GraphIndex& index,
                                        int value) {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(value)];
  if (!tensor.is_virtual()) return Placement{value, 0, tensor.strides};
  const Op* const view = view_of_one(ops, index, value);
  if (view == nullptr) return std::nullopt;
  const auto operand = seen_in_memory(graph, ops, index, view->inputs[0]);
  Placement seen;
  if (!operand || !view_placement(graph, *view, *operand, seen)) return std::nullopt;
  return seen;
}

}  // namespace fusor
