// Owns the search for look-ups whose rows are reshaped.
#include "backend/planner/rewrites/gathers/reshaped_gathers.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// The reshape of the gather's rows into several axes that keeps what a row is, and is all that reads them; -1
// where there is none.
int reshape_of_rows(const Graph& graph, const GraphIndex& index, const Op& gather) {
  const auto dims = [&](int tensor) -> const Dims& {
    return graph.tensors[static_cast<size_t>(tensor)].dims;
  };
  const int y = gather.outputs[0];
  const Dims &table = dims(gather.inputs[0]), &at = dims(gather.inputs[1]);
  if (std::get<Gather>(gather.attributes).axis != 0 || table.rank() != 2 || at[1] != 1 ||
      !graph.tensors[static_cast<size_t>(y)].is_virtual() || index.consumers(y).size() != 1)
    return -1;
  const int reader = index.consumers(y)[0];
  const Op& reshape = graph.ops[static_cast<size_t>(reader)];
  if (!is_reshape(reshape)) return -1;
  const Dims& to = dims(reshape.outputs[0]);
  return to.rank() == 3 && to.back() == table.back() && to[1] != 1 ? reader : -1;
}

}  // namespace

bool reshape_gathers(Graph& graph, Additions& additions) {
  if (std::ranges::none_of(graph.ops, is_gather)) return false;
  const GraphIndex index(graph);
  std::set<int> gone;  // reshapes
  std::vector<Op> ops;
  for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i) {
    if (gone.contains(i)) continue;
    Op op = graph.ops[static_cast<size_t>(i)];
    const int reshape = is_gather(op) ? reshape_of_rows(graph, index, op) : -1;
    if (reshape >= 0) {
      gone.insert(reshape);
      const int y = graph.ops[static_cast<size_t>(reshape)].outputs[0];
      const auto seen = [&](int tensor, const Dims& shape, const char* name) {
        ops.push_back(additions.view(Reshape{}, tensor, shape, op.name + name));
        return ops.back().outputs[0];
      };
      const Dims table = graph.tensors[static_cast<size_t>(op.inputs[0])].dims;
      Dims places = graph.tensors[static_cast<size_t>(y)].dims;
      places[2] = 1;
      op.inputs = {seen(op.inputs[0], {1, table[0], table[1]}, ".x"), seen(op.inputs[1], places, ".index")};
      op.attributes = Gather{.axis = 1};
      leave_empty(graph.tensors[static_cast<size_t>(op.outputs[0])]);
      op.outputs = {y};
    }
    ops.push_back(std::move(op));
  }
  if (gone.empty()) return false;
  graph.ops = std::move(ops);
  return true;
}

}  // namespace fusor
