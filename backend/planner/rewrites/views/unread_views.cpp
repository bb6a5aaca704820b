// Owns the removal of views that nobody reads any more.
#include "backend/planner/rewrites/views/unread_views.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/attributes.h"
#include "core/ops/expansion.h"

namespace fusor {

void drop_unread_views(Graph& graph, const std::set<int>& others) {
  std::vector<int> reads(graph.tensors.size(), 0);
  for (const Op& op : graph.ops)
    for (const int x : op.inputs)
      if (x >= 0) ++reads[static_cast<size_t>(x)];
  std::vector<Op> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
    const bool may_go = is_view(op->attributes) || others.contains(op->outputs[0]);
    Tensor& y = graph.tensors[static_cast<size_t>(op->outputs[0])];
    if (may_go && y.is_virtual() && reads[static_cast<size_t>(op->outputs[0])] == 0) {
      for (const int x : op->inputs) --reads[static_cast<size_t>(x)];
      leave_empty(y);
    } else {
      kept.push_back(std::move(*op));
    }
  }
  std::ranges::reverse(kept);
  graph.ops = std::move(kept);
}

}  // namespace fusor
