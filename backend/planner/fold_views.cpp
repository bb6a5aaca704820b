// Owns the folding of views and concatenations into placements.
#include "backend/planner/fold_views.h"

#include <algorithm>

#include "backend/planner/planner.h"
#include "core/infer.h"

namespace fusor {

bool view_placement(const Graph& graph, const Op& op, const Placement& x, Placement& out) {
  const Dims& x_dims = graph.tensors[op.inputs[0]].dims;
  const Dims& y_dims = graph.tensors[op.outputs[0]].dims;
  out = {x.buffer, x.offset, x.strides};
  return std::visit(
      Overloaded{
          [&](const Transpose& transpose) {
            for (int i = 0; i < y_dims.rank(); ++i)
              out.strides[i] = x.strides[static_cast<int>(transpose.permutation[i])];
            return true;
          },
          [&](const Slice& slice) {
            for (int i = 0; i < y_dims.rank(); ++i) {
              out.offset += slice.start[i] * x.strides[i];
              // The one element that is left takes no step, however long.
              if (y_dims[i] > 1) out.strides[i] = x.strides[i] * slice.step[i];
            }
            return true;
          },
          [&](const Reshape&) { return reshape_strides(x_dims, x.strides, y_dims, out.strides); },
          [](const Pointwise&) { return false; },
          [](const Reduction&) { return false; },
          [](const Matmul&) { return false; },
          [](const Conv&) { return false; },
          [](const Concatenate&) { return false; },
          [](const Gather&) { return false; },
          [](const Scatter&) { return false; },
          [](const CompositeFamily auto&) { return false; },
      },
      op.attributes);
}

bool inverse_view(const Graph& graph, const Op& op, const Placement& y, Placement& out) {
  const Dims& x_dims = graph.tensors[op.inputs[0]].dims;
  const Dims& y_dims = graph.tensors[op.outputs[0]].dims;
  out = {y.buffer, y.offset, Dims::filled(x_dims.rank(), 0)};
  if (const auto* transpose = std::get_if<Transpose>(&op.attributes)) {
    for (int i = 0; i < y_dims.rank(); ++i)
      out.strides[static_cast<int>(transpose->permutation[i])] = y.strides[i];
    return true;
  }
  if (std::holds_alternative<Reshape>(op.attributes))
    return reshape_strides(y_dims, y.strides, x_dims, out.strides);
  return false;
}

namespace {

bool has_own_buffer(const FoldedGraph& folded, int tensor) {
  return folded.placements[tensor].buffer == tensor;
}

// Whether the inputs of a concatenation lie side by side already, as part of a larger one: so does it then.
bool lies_in_another(const Graph& graph, const Op& op, int axis, const FoldedGraph& folded) {
  const int y = op.outputs[0];
  if (!graph.tensors[y].is_virtual() || !has_own_buffer(folded, y) || op.inputs.empty()) return false;
  Placement next = folded.placements[op.inputs[0]];
  return std::ranges::all_of(op.inputs, [&](int input) {
    const Placement& place = folded.placements[input];
    const bool follows = !has_own_buffer(folded, input) && place.buffer == next.buffer &&
                         place.offset == next.offset && place.strides == next.strides;
    next.offset += graph.tensors[input].dims[axis] * place.strides[axis];
    return follows;
  });
}

// Puts the inputs of a concatenation side by side into its result.
void place_concatenated(const Graph& graph, const Op& op, const Concatenate& concatenate,
                        FoldedGraph& folded) {
  if (lies_in_another(graph, op, static_cast<int>(concatenate.axis), folded)) {
    folded.placements[op.outputs[0]] = folded.placements[op.inputs[0]];
    return;
  }
  Placement place = folded.placements[op.outputs[0]];
  const int axis = static_cast<int>(concatenate.axis);
  for (const int input : op.inputs) {
    if (graph.tensors[input].is_virtual() && has_own_buffer(folded, input)) folded.placements[input] = place;
    place.offset += graph.tensors[input].dims[axis] * place.strides[axis];
  }
}

// Any stride is valid along an extent of 1, where nobody takes a step; engines multiply it by bytes all the
// same.
Strides steps_of(const Tensor& tensor) {
  Strides strides = tensor.strides;
  for (int i = 0; i < strides.rank(); ++i)
    if (tensor.dims[i] == 1 && strides[i] > kMaxTensorBytes) strides[i] = 0;
  return strides;
}

}  // namespace

FoldedGraph unfolded(const Graph& graph) {
  FoldedGraph folded;
  folded.folded.assign(graph.ops.size(), false);
  folded.placements.reserve(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    folded.placements.push_back({static_cast<int>(i), 0, steps_of(graph.tensors[i])});
  return folded;
}

bool fold_into_result(const Graph& graph, int op_index, FoldedGraph& folded) {
  const Op& op = graph.ops[op_index];
  const int x = op.inputs[0];
  const int y = op.outputs[0];
  const bool y_is_home = !graph.tensors[y].is_virtual() || !has_own_buffer(folded, y);
  Placement place;
  if (!y_is_home || !graph.tensors[x].is_virtual() || !has_own_buffer(folded, x)) return false;
  if (!inverse_view(graph, op, folded.placements[y], place)) return false;
  folded.placements[x] = place;
  folded.folded[op_index] = true;
  return true;
}

// Last op first: a value that only moves on into an output, or into a concatenation, is written there in the
// first place. A concatenated value has no choice but that place (expand() saw to it that it has one), so
// views leave it alone.
void fold_backward(const Graph& graph, FoldedGraph& folded) {
  std::vector<bool> concatenated(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    if (std::holds_alternative<Concatenate>(op.attributes))
      for (const int input : op.inputs) concatenated[input] = true;
  for (int i = static_cast<int>(graph.ops.size()) - 1; i >= 0; --i) {
    const Op& op = graph.ops[i];
    if (const auto* concatenate = std::get_if<Concatenate>(&op.attributes)) {
      place_concatenated(graph, op, *concatenate, folded);
      folded.folded[i] = true;
    } else if (is_view(op.attributes) && !concatenated[op.inputs[0]]) {
      fold_into_result(graph, i, folded);
    }
  }
}

// First op first: a virtual view is read where its operand lies.
void fold_into_operand(const Graph& graph, int op_index, FoldedGraph& folded) {
  const Op& op = graph.ops[op_index];
  if (folded.folded[op_index] || !is_view(op.attributes)) return;
  const int y = op.outputs[0];
  Placement place;
  if (!graph.tensors[y].is_virtual() || !has_own_buffer(folded, y)) return;
  if (graph.tensors[op.inputs[0]].is_scalar()) return;
  if (!view_placement(graph, op, folded.placements[op.inputs[0]], place)) return;
  folded.placements[y] = place;
  folded.folded[op_index] = true;
}

namespace {

// The folded ops on the way to each op are walked once.
std::vector<std::vector<int>> all_dependencies(const Graph& graph, const FoldedGraph& folded) {
  std::vector<std::vector<int>> found(graph.ops.size());
  std::vector<int> seen_from(graph.tensors.size(), -1);
  std::vector<int> waiting;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (folded.folded[i]) continue;
    waiting.assign(graph.ops[i].inputs.begin(), graph.ops[i].inputs.end());
    while (!waiting.empty()) {
      const int tensor = waiting.back();
      waiting.pop_back();
      const int producer = folded.index.producer(tensor);
      if (producer < 0 || seen_from[tensor] == static_cast<int>(i)) continue;
      seen_from[tensor] = static_cast<int>(i);
      const std::vector<int>& inputs = graph.ops[producer].inputs;
      if (folded.folded[producer])
        waiting.insert(waiting.end(), inputs.begin(), inputs.end());
      else
        found[i].push_back(producer);
    }
    std::ranges::sort(found[i]);
    found[i].erase(std::unique(found[i].begin(), found[i].end()), found[i].end());
  }
  return found;
}

}  // namespace

FoldedGraph fold_views(const Graph& graph) {
  FoldedGraph folded = unfolded(graph);
  fold_backward(graph, folded);
  for (size_t i = 0; i < graph.ops.size(); ++i) fold_into_operand(graph, static_cast<int>(i), folded);
  folded.index = GraphIndex(graph);
  folded.dependencies = all_dependencies(graph, folded);
  return folded;
}

}  // namespace fusor
