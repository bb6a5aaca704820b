// Owns the folding of views and concatenations into placements, and the identity ops that make it always
// possible.
#include <fmt/format.h>

#include <algorithm>

#include "backend/planner/planner.h"
#include "core/infer.h"

namespace fusor {

bool reshape_strides(const Dims& from, const Strides& strides, const Dims& to, Strides& out) {
  // Axes of extent 1 take no part; the rest is matched in runs of equal element count.
  Dims old_dims;
  Strides old_strides;
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] == 1) continue;
    old_dims.push_back(from[i]);
    old_strides.push_back(strides[i]);
  }
  out = Dims::filled(to.rank(), 0);
  int old_begin = 0;
  int new_begin = 0;
  while (new_begin < to.rank()) {
    if (to[new_begin] == 1) {
      ++new_begin;
      continue;
    }
    int old_end = old_begin + 1;
    int new_end = new_begin + 1;
    int64_t old_count = old_dims[old_begin];
    int64_t new_count = to[new_begin];
    while (old_count != new_count) {
      if (old_count < new_count)
        old_count *= old_dims[old_end++];
      else
        new_count *= to[new_end++];
    }
    for (int i = old_begin; i + 1 < old_end; ++i)
      if (old_strides[i] != old_strides[i + 1] * old_dims[i + 1]) return false;
    int64_t step = old_strides[old_end - 1];
    for (int i = new_end - 1; i >= new_begin; --i) {
      out[i] = step;
      step *= to[i];
    }
    old_begin = old_end;
    new_begin = new_end;
  }
  return true;
}

bool view_placement(const Graph& graph, const Op& op, const Placement& x, Placement& out) {
  const Dims& x_dims = graph.tensors[op.inputs[0]].dims;
  const Dims& y_dims = graph.tensors[op.outputs[0]].dims;
  out = {x.buffer, x.offset, x.strides};
  if (const auto* transpose = std::get_if<Transpose>(&op.attributes)) {
    for (int i = 0; i < y_dims.rank(); ++i)
      out.strides[i] = x.strides[static_cast<int>(transpose->permutation[i])];
    return true;
  }
  if (const auto* slice = std::get_if<Slice>(&op.attributes)) {
    for (int i = 0; i < y_dims.rank(); ++i) {
      out.offset += slice->start[i] * x.strides[i];
      // The one element that is left takes no step, however long.
      if (y_dims[i] > 1) out.strides[i] = x.strides[i] * slice->step[i];
    }
    return true;
  }
  return reshape_strides(x_dims, x.strides, y_dims, out.strides);
}

namespace {

// The other way round: where the operand's elements lie once the result is placed at `y`; only for views that
// reach every element.
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

bool has_own_buffer(const FoldedGraph& folded, int tensor) {
  return folded.placements[tensor].buffer == tensor;
}

// Puts the inputs of a concatenation side by side into its result.
void place_concatenated(const Graph& graph, const Op& op, const Concatenate& concatenate,
                        FoldedGraph& folded) {
  Placement place = folded.placements[op.outputs[0]];
  const int axis = static_cast<int>(concatenate.axis);
  for (const int input : op.inputs) {
    if (graph.tensors[input].is_virtual() && has_own_buffer(folded, input)) folded.placements[input] = place;
    place.offset += graph.tensors[input].dims[axis] * place.strides[axis];
  }
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
      continue;
    }
    if (!is_view(op.attributes)) continue;
    const int x = op.inputs[0];
    const int y = op.outputs[0];
    const bool y_is_home = !graph.tensors[y].is_virtual() || !has_own_buffer(folded, y);
    Placement place;
    if (!y_is_home || concatenated[x] || !graph.tensors[x].is_virtual() || !has_own_buffer(folded, x))
      continue;
    if (!inverse_view(graph, op, folded.placements[y], place)) continue;
    folded.placements[x] = place;
    folded.folded[i] = true;
  }
}

// First op first: a virtual view is read where its operand lies.
void fold_forward(const Graph& graph, FoldedGraph& folded) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (folded.folded[i] || !is_view(op.attributes)) continue;
    const int y = op.outputs[0];
    Placement place;
    if (!graph.tensors[y].is_virtual() || !has_own_buffer(folded, y)) continue;
    if (graph.tensors[op.inputs[0]].is_scalar()) continue;
    if (!view_placement(graph, op, folded.placements[op.inputs[0]], place)) continue;
    folded.placements[y] = place;
    folded.folded[i] = true;
  }
}

// Puts an identity op in front of operand `operand` of op `at`, giving a row-major virtual copy.
void insert_identity(Graph& graph, int at, int operand) {
  const int x = graph.ops[at].inputs[operand];
  Tensor copy = graph.tensors[x];
  Op identity;
  identity.name = fmt::format("{}.x{}", graph.ops[at].name, operand);
  while (std::ranges::find(graph.ops, identity.name, &Op::name) != graph.ops.end()) identity.name += "'";
  copy.name = identity.name + ":y";
  while (graph.find(copy.name) >= 0) copy.name += "'";
  int64_t uid = 1;
  for (const Tensor& tensor : graph.tensors)
    uid = std::max(uid, tensor.uid == INT64_MAX ? uid : tensor.uid + 1);
  while (graph.find_uid(uid) >= 0) ++uid;
  copy.uid = uid;
  copy.memory = Memory::workspace;
  copy.strides = packed_strides(copy.dims);
  copy.value = 0.0;
  identity.attributes = Pointwise{.mode = PointwiseMode::identity, .compute = carrier(copy.type)};
  identity.inputs = {x};
  identity.outputs = {static_cast<int>(graph.tensors.size())};
  graph.tensors.push_back(std::move(copy));
  graph.ops[at].inputs[operand] = identity.outputs[0];
  graph.ops.insert(graph.ops.begin() + at, std::move(identity));
}

// A concatenated tensor is written in place by its producer: it must be virtual, no view, and nowhere else so
// placed.
bool expand_concatenations(Graph& graph) {
  std::vector<bool> placed(graph.tensors.size(), false);
  for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i) {
    if (!std::holds_alternative<Concatenate>(graph.ops[i].attributes)) continue;
    for (int k = 0; k < static_cast<int>(graph.ops[i].inputs.size()); ++k) {
      const int x = graph.ops[i].inputs[k];
      if (graph.tensors[x].is_virtual() && !placed[x]) {
        placed[x] = true;
        continue;
      }
      insert_identity(graph, i, k);
      return true;
    }
  }
  return false;
}

// A reshape that is neither folded nor expressible as strides over its operand reads a row-major copy
// instead.
bool expand_reshapes(Graph& graph) {
  const FoldedGraph folded = fold_views(graph);
  for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i) {
    Placement ignored;
    const Op& op = graph.ops[i];
    const bool reshape = std::holds_alternative<Reshape>(op.attributes);
    if (!reshape || folded.folded[i] || graph.tensors[op.inputs[0]].is_scalar()) continue;
    if (view_placement(graph, op, folded.placements[op.inputs[0]], ignored)) continue;
    insert_identity(graph, i, 0);
    return true;
  }
  return false;
}

}  // namespace

namespace {

// Any stride is valid along an extent of 1, where nobody takes a step; engines multiply it by bytes all the
// same.
Strides steps_of(const Tensor& tensor) {
  Strides strides = tensor.strides;
  for (int i = 0; i < strides.rank(); ++i)
    if (tensor.dims[i] == 1 && strides[i] > kMaxTensorBytes) strides[i] = 0;
  return strides;
}

}  // namespace

FoldedGraph fold_views(const Graph& graph) {
  FoldedGraph folded;
  folded.folded.assign(graph.ops.size(), false);
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    folded.placements.push_back({static_cast<int>(i), 0, steps_of(graph.tensors[i])});
  fold_backward(graph, folded);
  fold_forward(graph, folded);
  return folded;
}

Graph expand(const Graph& graph) {
  Graph expanded = graph;
  while (expand_concatenations(expanded)) {
  }
  while (expand_reshapes(expanded)) {
  }
  return expanded;
}

}  // namespace fusor
