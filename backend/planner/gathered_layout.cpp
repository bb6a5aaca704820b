// Owns the choice of the order in which gathered values lie.
#include "backend/planner/gathered_layout.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backend/planner/fold_views.h"
#include "core/data_type.h"
#include "core/dims.h"

namespace fusor {

namespace {

bool has_strided_rows(const Dims& dims, const Strides& strides) {
  for (int axis = dims.rank() - 1; axis >= 0; --axis)
    if (dims[axis] != 1) return strides[axis] != 1;
  return false;
}

// The transposes and reshapes that lead, one behind the other, from the values to those that pointwise ops
// read; none where other ops do, or where the values are no tensor of the planner's own.
std::vector<const Op*> views_in_front_of_pointwise(const Graph& graph, const GraphIndex& index, int tensor) {
  std::vector<const Op*> views;
  for (;;) {
    const std::span<const int> readers = index.consumers(tensor);
    if (!graph.tensors[tensor].is_virtual() || is_packed(graph.tensors[tensor].type) || readers.empty())
      return {};
    const Op& first = graph.ops[readers[0]];
    if (readers.size() == 1 && (std::holds_alternative<Transpose>(first.attributes) ||
                                std::holds_alternative<Reshape>(first.attributes))) {
      views.push_back(&first);
      tensor = first.outputs[0];
      continue;
    }
    const auto is_pointwise = [&](int reader) {
      return std::holds_alternative<Pointwise>(graph.ops[reader].attributes);
    };
    return std::ranges::all_of(readers, is_pointwise) ? views : std::vector<const Op*>();
  }
}

// Strides of the values with which the last view is row-major; nothing where no strides make it that, or
// where its rows lie together already.
std::optional<Strides> strides_for_view(const Graph& graph, std::span<const Op* const> views, int tensor) {
  Placement seen{tensor, 0, packed_strides(graph.tensors[tensor].dims)};
  for (const Op* view : views) {
    const Placement operand = seen;
    if (!view_placement(graph, *view, operand, seen)) return std::nullopt;
  }
  const Dims& last = graph.tensors[views.back()->outputs[0]].dims;
  if (!has_strided_rows(last, seen.strides)) return std::nullopt;
  seen.strides = packed_strides(last);
  for (size_t i = views.size(); i-- > 0;) {
    const Placement result = seen;
    if (!inverse_view(graph, *views[i], result, seen)) return std::nullopt;
  }
  return seen.strides;
}

}  // namespace

void lay_out_gathered(Graph& graph) {
  const auto is_gather = [](const Op& op) { return std::holds_alternative<Gather>(op.attributes); };
  if (std::ranges::none_of(graph.ops, is_gather)) return;
  const GraphIndex index(graph);
  for (const Op& op : graph.ops) {
    if (!is_gather(op)) continue;
    const int gathered = op.outputs[0];
    const auto views = views_in_front_of_pointwise(graph, index, gathered);
    if (views.empty()) continue;
    if (const auto strides = strides_for_view(graph, views, gathered))
      graph.tensors[gathered].strides = *strides;
  }
}

}  // namespace fusor
