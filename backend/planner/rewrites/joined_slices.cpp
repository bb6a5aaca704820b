// Owns the search for neighbouring slices in concatenations.
#include "backend/planner/rewrites/joined_slices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/rewrites/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// A part of a tensor along one axis.
struct Part {
  int tensor = -1;
  int64_t start = 0, limit = 0;
};

// The part that a slice takes, if it takes all along the other axes.
std::optional<Part> part_of(const Graph& graph, const GraphIndex& index, int result, int axis) {
  const int producer = index.producer(result);
  if (producer < 0) return std::nullopt;
  const Op& op = graph.ops[static_cast<size_t>(producer)];
  const auto* const slice = std::get_if<Slice>(&op.attributes);
  if (slice == nullptr) return std::nullopt;
  const Dims& dims = graph.tensors[static_cast<size_t>(op.inputs[0])].dims;
  for (int i = 0; i < dims.rank(); ++i)
    if (slice->step[i] != 1 || (i != axis && (slice->start[i] != 0 || slice->limit[i] != dims[i])))
      return std::nullopt;
  return Part{op.inputs[0], slice->start[axis], slice->limit[axis]};
}

// The operands of a concatenation, of which neighbours are one part each.
std::vector<std::pair<int, Part>> joined(const Graph& graph, const GraphIndex& index, const Op& op,
                                         int axis) {
  std::vector<std::pair<int, Part>> parts;  // operands, and what they are parts of
  for (const int input : op.inputs) {
    const std::optional<Part> part = part_of(graph, index, input, axis);
    if (part && !parts.empty() && parts.back().second.tensor == part->tensor &&
        parts.back().second.limit == part->start) {
      parts.back().first = -1;
      parts.back().second.limit = part->limit;
    } else {
      parts.emplace_back(input, part.value_or(Part{}));
    }
  }
  return parts;
}

}  // namespace

bool join_slices(Graph& graph, Additions& additions) {
  const GraphIndex index(graph);
  std::vector<Op> ops;
  bool joins = false;
  for (const Op& given : graph.ops) {
    Op op = given;
    if (const auto* const concatenation = std::get_if<Concatenate>(&op.attributes)) {
      const int axis = static_cast<int>(concatenation->axis);
      std::vector<int> inputs;
      for (const auto& [input, part] : joined(graph, index, given, axis)) {
        inputs.push_back(input);
        if (input >= 0) continue;
        joins = true;
        const Dims whole = graph.tensors[static_cast<size_t>(part.tensor)].dims;
        inputs.back() = part.tensor;
        if (part.start == 0 && part.limit == whole[axis]) continue;
        Slice slice{Dims::filled(whole.rank(), 0), whole, Dims::filled(whole.rank(), 1)};
        slice.start[axis] = part.start;
        slice.limit[axis] = part.limit;
        Dims shape = whole;
        shape[axis] = part.limit - part.start;
        ops.push_back(additions.view(slice, part.tensor, shape, op.name + ".in"));
        inputs.back() = ops.back().outputs[0];
      }
      op.inputs = {inputs.begin(), inputs.end()};
    }
    ops.push_back(std::move(op));
  }
  if (!joins) return false;
  graph.ops = std::move(ops);
  drop_unread_views(graph);
  return true;
}

}  // namespace fusor
