// Owns the search for views that show the same.
#include "backend/planner/rewrites/views/shared_views.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"
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

// The tensor in front of reshapes that end in its own shape again; -1 where they do not.
int reshaped_back(const Graph& graph, const Op& view, const std::map<int, const Op*>& makers) {
  const Dims& shape = graph.tensors[static_cast<size_t>(view.outputs[0])].dims;
  for (const Op* op = &view; std::holds_alternative<Reshape>(op->attributes);) {
    const int x = op->inputs[0];
    if (graph.tensors[static_cast<size_t>(x)].is_scalar()) return -1;
    if (graph.tensors[static_cast<size_t>(x)].dims == shape) return x;
    const auto maker = makers.find(x);
    if (maker == makers.end()) return -1;
    op = maker->second;
  }
  return -1;
}

// Whether the view is a reshape of a reshape that nobody else reads: it reads what that one does then.
bool skip_reshape(Op& view, const std::map<int, const Op*>& makers, const GraphIndex& index) {
  const auto maker = makers.find(view.inputs[0]);
  if (!std::holds_alternative<Reshape>(view.attributes) || maker == makers.end() ||
      !std::holds_alternative<Reshape>(maker->second->attributes) ||
      index.consumers(view.inputs[0]).size() != 1)
    return false;
  view.inputs[0] = maker->second->inputs[0];
  return true;
}

}  // namespace

bool share_views(Graph& graph) {
  if (std::ranges::none_of(graph.ops, [](const Op& op) { return is_view(op.attributes); })) return false;
  std::map<int, std::vector<const Op*>> views;  // by operand, in order
  std::map<int, const Op*> makers;              // of views
  std::map<int, int> instead;                   // of results that are read no more
  const GraphIndex index(graph);                // as the graph was
  bool skips = false;
  for (Op& op : graph.ops) {
    for (int& input : op.inputs)
      if (const auto known = instead.find(input); known != instead.end()) input = known->second;
    const int y = op.outputs[0];
    if (!is_view(op.attributes) || !graph.tensors[static_cast<size_t>(y)].is_virtual()) continue;
    skips = skip_reshape(op, makers, index) || skips;
    makers.emplace(y, &op);
    if (const int x = reshaped_back(graph, op, makers); x >= 0) {
      instead.emplace(y, x);
      continue;
    }
    std::vector<const Op*>& others = views[op.inputs[0]];
    if (const Op* const twin = twin_of(graph, op, others))
      instead.emplace(y, twin->outputs[0]);
    else
      others.push_back(&op);
  }
  std::erase_if(graph.ops,
                [&](const Op& op) { return is_view(op.attributes) && instead.contains(op.outputs[0]); });
  for (const auto& [unread, twin] : instead) leave_empty(graph.tensors[static_cast<size_t>(unread)]);
  const bool changes = skips || !instead.empty();
  if (changes) drop_unread_views(graph);
  return changes;
}

}  // namespace fusor
