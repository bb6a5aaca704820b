// Owns the choice of the order in which results lie.
#include "backend/planner/rewrites/layouts/result_layout.h"

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

// The transposes and reshapes that lead, one behind the other, from a view's operand to others that read the
// last one. Values that are no tensors of the planner's own end the way.
std::vector<const Op*> views_from(const Graph& graph, const GraphIndex& index, const Op& first) {
  std::vector<const Op*> views{&first};
  for (;;) {
    const Tensor& seen = graph.tensors[views.back()->outputs[0]];
    if (!seen.is_virtual() || is_packed(seen.type)) return {};
    const std::span<const int> readers = index.consumers(views.back()->outputs[0]);
    if (readers.size() != 1 || !is_plain_view(graph.ops[readers[0]])) return views;
    views.push_back(&graph.ops[readers[0]]);
  }
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

// Other strides for the result where one way of views needs them, and all others do with them.
std::optional<Strides> better_strides(const Graph& graph, const GraphIndex& index, const Op& op) {
  const int result = op.outputs[0];
  const Tensor& made = graph.tensors[result];
  if (!made.is_virtual() || is_packed(made.type)) return std::nullopt;
  std::vector<std::vector<const Op*>> ways;
  for (const int reader : index.consumers(result)) {
    if (!is_view(graph.ops[reader].attributes)) continue;
    ways.push_back(is_plain_view(graph.ops[reader]) ? views_from(graph, index, graph.ops[reader])
                                                    : std::vector<const Op*>());
    if (ways.back().empty()) return std::nullopt;
  }
  const auto is_alone = [&] { return ways.size() == 1 && index.consumers(result).size() == 1; };
  for (const std::vector<const Op*>& way : ways) {
    const int last = way.back()->outputs[0];
    const auto seen = seen_through(graph, way, result, made.strides);
    const bool would_be_strided = seen && is_alone() && std::holds_alternative<Gather>(op.attributes) &&
                                  feeds_pointwise(graph, index, last) &&
                                  has_strided_rows(graph.tensors[last].dims, *seen);
    if (seen && !would_be_strided) continue;
    const auto strides = strides_for_view(graph, way, result);
    const auto shows = [&](const std::vector<const Op*>& other) {
      return seen_through(graph, other, result, *strides).has_value();
    };
    if (strides && std::ranges::all_of(ways, shows)) return strides;
  }
  return std::nullopt;
}

}  // namespace

void lay_out_results(Graph& graph) {
  if (std::ranges::none_of(graph.ops, is_plain_view)) return;
  const GraphIndex index(graph);
  for (const Op& op : graph.ops) {
    if (is_view(op.attributes) || op.outputs.size() != 1) continue;
    if (const auto strides = better_strides(graph, index, op))
      graph.tensors[op.outputs[0]].strides = *strides;
  }
}

}  // namespace fusor
