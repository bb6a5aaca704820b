// Owns the search for views that show the same.
#include "backend/planner/rewrites/views/shared_views.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "backend/planner/rewrites/views/unread_views.h"
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

// How many operands each tensor is.
std::vector<int> count_reads(const Graph& graph) {
  std::vector<int> reads(graph.tensors.size(), 0);
  for (const Op& op : graph.ops)
    for (const int x : op.inputs)
      if (x >= 0) ++reads[static_cast<size_t>(x)];
  return reads;
}

// Whether the view is the one reader of another reshape, and a reshape: it reads what that one does then.
bool skip_reshape(Op& view, const std::map<int, const Op*>& makers, const std::vector<int>& reads) {
  const auto maker = makers.find(view.inputs[0]);
  if (!std::holds_alternative<Reshape>(view.attributes) || maker == makers.end() ||
      !std::holds_alternative<Reshape>(maker->second->attributes) ||
      reads[static_cast<size_t>(view.inputs[0])] != 1)
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
  const std::vector<int> reads = count_reads(graph);
  bool skips = false;
  for (Op& op : graph.ops) {
    for (int& input : op.inputs)
      if (const auto known = instead.find(input); known != instead.end()) input = known->second;
    const int y = op.outputs[0];
    if (!is_view(op.attributes) || !graph.tensors[static_cast<size_t>(y)].is_virtual()) continue;
    skips = skip_reshape(op, makers, reads) || skips;
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
