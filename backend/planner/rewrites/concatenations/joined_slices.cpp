// Owns the search for neighbouring slices in concatenations.
#include "backend/planner/rewrites/concatenations/joined_slices.h"

#include <string>
#include <utility>
#include <vector>

#include "backend/planner/rewrites/concatenations/parts.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// An operand of a concatenation, or neighbouring slices in place of which a range of their tensor is read.
struct JoinedOperand {
  int input = -1;  // -1: several slices
  int tensor = -1;
  Range range = {};
};

// The operand, and of which range of which tensor it is a slice along the axis.
JoinedOperand alone(const Graph& graph, const GraphIndex& index, int input, int axis) {
  const int producer = index.producer(input);
  if (producer < 0) return {input};
  const Op& op = graph.ops[static_cast<size_t>(producer)];
  const auto part = part_taken(op, graph.tensors[static_cast<size_t>(op.inputs[0])].dims);
  if (!part || part->axis != axis) return {input};
  return {input, op.inputs[0], part->range};
}

std::vector<JoinedOperand> joined(const Graph& graph, const GraphIndex& index, const Op& op, int axis) {
  std::vector<JoinedOperand> operands;
  for (const int input : op.inputs) {
    const JoinedOperand next = alone(graph, index, input, axis);
    if (!operands.empty() && next.tensor >= 0 && operands.back().tensor == next.tensor &&
        operands.back().range.second == next.range.first) {
      operands.back().input = -1;
      operands.back().range.second = next.range.second;
    } else {
      operands.push_back(next);
    }
  }
  return operands;
}

}  // namespace

bool join_slices(Graph& graph, Additions& additions) {
  const GraphIndex index(graph);
  std::vector<Op> ops;
  bool joins = false;
  // The tensor itself where all of it is read.
  const auto read = [&](const JoinedOperand& operand, int axis, const std::string& reader) {
    joins = true;
    const auto& [start, limit] = operand.range;
    if (start == 0 && limit == graph.tensors[static_cast<size_t>(operand.tensor)].dims[axis])
      return operand.tensor;
    ops.push_back(additions.slice(operand.tensor, axis, start, limit, reader + ".in"));
    return ops.back().outputs[0];
  };
  for (Op op : graph.ops) {
    if (const auto* const concatenation = std::get_if<Concatenate>(&op.attributes)) {
      const int axis = static_cast<int>(concatenation->axis);
      std::vector<int> inputs;
      for (const JoinedOperand& operand : joined(graph, index, op, axis))
        inputs.push_back(operand.input >= 0 ? operand.input : read(operand, axis, op.name));
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
