// Owns the choice of the order in which results lie.
#include "backend/planner/result_layout.h"

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

bool is_plain_view(const Op& op) {
  return std::holds_alternative<Transpose>(op.attributes) || std::holds_alternative<Reshape>(op.attributes);
}

// The transposes and reshapes that lead, one behind the other, from a result to others that read it. Values
// that are no tensors of the planner's own end the way.
std::vector<const Op*> views_behind(const Graph& graph, const GraphIndex& index, int tensor) {
  std::vector<const Op*> views;
  const auto is_own = [&] {
    return graph.tensors[tensor].is_virtual() && !is_packed(graph.tensors[tensor].type);
  };
  while (is_own()) {
    const std::span<const int> readers = index.consumers(tensor);
    if (readers.size() != 1 || !is_plain_view(graph.ops[readers[0]])) return views;
    views.push_back(&graph.ops[readers[0]]);
    tensor = views.back()->outputs[0];
  }
  return {};
}

// Where the last view sees the values, if these are placed at `strides`; nothing where no strides say it.
std::optional<Strides> seen_through(const Graph& graph, std::span<const Op* const> views, int tensor,
                                    const Strides& strides) {
  Placement seen{tensor, 0, strides};
  for (const Op* view : views) {
    const Placement operand = seen;
    if (!view_placement(graph, *view, operand, seen)) return std::nullopt;
  }
  return seen.strides;
}

// Strides of the values with which the last view is row-major; nothing where no strides make it that.
std::optional<Strides> strides_for_view(const Graph& graph, std::span<const Op* const> views, int tensor) {
  Placement seen{tensor, 0, packed_strides(graph.tensors[views.back()->outputs[0]].dims)};
  for (size_t i = views.size(); i-- > 0;) {
    const Placement result = seen;
    if (!inverse_view(graph, *views[i], result, seen)) return std::nullopt;
  }
  return seen.strides;
}

// Whether pointwise ops alone read the values.
bool feeds_pointwise(const Graph& graph, const GraphIndex& index, int tensor) {
  return std::ranges::all_of(index.consumers(tensor), [&](int reader) {
    return std::holds_alternative<Pointwise>(graph.ops[reader].attributes);
  });
}

}  // namespace

void lay_out_results(Graph& graph) {
  if (std::ranges::none_of(graph.ops, is_plain_view)) return;
  const GraphIndex index(graph);
  for (const Op& op : graph.ops) {
    if (is_view(op.attributes) || op.outputs.size() != 1) continue;
    const int result = op.outputs[0];
    const auto views = views_behind(graph, index, result);
    if (views.empty()) continue;
    const int last = views.back()->outputs[0];
    const auto seen = seen_through(graph, views, result, graph.tensors[result].strides);
    const bool would_be_strided = seen && std::holds_alternative<Gather>(op.attributes) &&
                                  feeds_pointwise(graph, index, last) &&
                                  has_strided_rows(graph.tensors[last].dims, *seen);
    if (seen && !would_be_strided) continue;
    if (const auto strides = strides_for_view(graph, views, result)) graph.tensors[result].strides = *strides;
  }
}

}  // namespace fusor
