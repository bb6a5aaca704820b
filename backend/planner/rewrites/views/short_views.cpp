// Owns the search for chains of views that pass a shape which no strides show.
#include "backend/planner/rewrites/views/short_views.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/axis_factors.h"
#include "backend/planner/rewrites/views/unread_views.h"

namespace fusor {

bool shorten_views(Graph& graph, Additions& additions) {
  if (std::ranges::none_of(graph.ops, is_reshape) || std::ranges::none_of(graph.ops, is_transpose))
    return false;
  const GraphIndex index(graph);
  std::vector<std::pair<size_t, SeenAxes>> found;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (!is_reshape(op) && !is_transpose(op)) continue;
    auto seen = seen_axes(graph, index, op.outputs[0]);
    if (seen && (seen->passes_strange_pairs ||
                 (seen->passes_joined_pairs && graph.tensors[static_cast<size_t>(seen->root)].is_virtual())))
      found.emplace_back(i, *std::move(seen));
  }
  if (found.empty()) return false;
  const std::vector<Op> given = std::move(graph.ops);
  std::vector<Op> ops;
  auto next = found.begin();
  for (size_t i = 0; i < given.size(); ++i) {
    if (next == found.end() || next->first != i) {
      ops.push_back(given[i]);
      continue;
    }
    const int y = given[i].outputs[0];
    const SeenAxes& seen = next->second;
    const Dims shape = graph.tensors[static_cast<size_t>(y)].dims;
    append_views(ops, additions, graph, seen.root, seen.axes, seen.axes.axes(), shape, given[i].name, y);
    ++next;
  }
  graph.ops = std::move(ops);
  drop_unread_views(graph);
  return true;
}

}  // namespace fusor
