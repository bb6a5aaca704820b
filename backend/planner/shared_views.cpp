// Owns the search for views that show the same.
#include "backend/planner/shared_views.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/attributes.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// The first of the views of `x` so far that shows what `view` does; null where there is none.
const Op* twin_of(const Graph& graph, const Op& view, const std::vector<const Op*>& views) {
  const Dims& shape = graph.tensors[static_cast<size_t>(view.outputs[0])].dims;
  const auto twin = std::ranges::find_if(views, [&](const Op* other) {
    return other->attributes == view.attributes &&
           graph.tensors[static_cast<size_t>(other->outputs[0])].dims == shape;
  });
  return twin == views.end() ? nullptr : *twin;
}

}  // namespace

void share_views(Graph& graph) {
  if (std::ranges::count_if(graph.ops, [](const Op& op) { return is_view(op.attributes); }) < 2) return;
  std::map<int, std::vector<const Op*>> views;  // by operand, in order
  std::map<int, int> instead;                   // of results that are read no more
  for (Op& op : graph.ops) {
    for (int& input : op.inputs)
      if (const auto known = instead.find(input); known != instead.end()) input = known->second;
    const int y = op.outputs[0];
    if (!is_view(op.attributes) || !graph.tensors[static_cast<size_t>(y)].is_virtual()) continue;
    std::vector<const Op*>& others = views[op.inputs[0]];
    if (const Op* const twin = twin_of(graph, op, others))
      instead.emplace(y, twin->outputs[0]);
    else
      others.push_back(&op);
  }
  std::erase_if(graph.ops,
                [&](const Op& op) { return is_view(op.attributes) && instead.contains(op.outputs[0]); });
  for (const auto& [unread, twin] : instead) leave_empty(graph.tensors[static_cast<size_t>(unread)]);
}

}  // namespace fusor
