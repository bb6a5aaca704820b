// Owns the translation into a Fusion of a set of ops, or of one op on its own.
#include "backend/planner/fold_views.h"
#include "backend/planner/fusion/fusion_builder.h"
#include "backend/planner/fusion/merged_rows.h"
#include "backend/planner/planner.h"
#include "core/dims.h"
#include "core/fail.h"

namespace fusor {

namespace {

// Adds `tensor` as the next operand and gives a load of / store to it over its own dims.
Access add_operand(const Graph& graph, int tensor, Fusion& fusion) {
  const Tensor& described = graph.tensors[tensor];
  fusion.operands.push_back({tensor, described.stored_type(), described.memory, described.alignment,
                             span_elements(described.dims, described.strides), described.value});
  fusion.operand_names.push_back(described.name);
  return {static_cast<int>(fusion.operands.size()) - 1, 0, described.strides};
}

// One copy per input, each over that input's dims, into its part of the result.
Fusion concatenate_copies(const Graph& graph, int op_index, const Concatenate& concatenate) {
  const Op& op = graph.ops[op_index];
  Fusion fusion;
  fusion.ops = {op_index};
  fusion.op_names = {op.name};
  Access store = add_operand(graph, op.outputs[0], fusion);
  const int axis = static_cast<int>(concatenate.axis);
  for (const int input : op.inputs) {
    const Tensor& x = graph.tensors[input];
    Expr copy;
    copy.domain = x.dims;
    const Access load = add_operand(graph, input, fusion);
    const Node::Kind kind = x.is_scalar() ? Node::Kind::scalar : Node::Kind::load;
    copy.nodes.push_back({.kind = kind, .type = x.stored_type(), .access = load, .op = op_index});
    copy.stores.push_back({.node = 0, .type = fusion.operands[0].type, .access = store, .op = op_index});
    store.offset += x.dims[axis] * store.strides[axis];
    add_site(fusion, std::move(copy));
  }
  return fusion;
}

// A reshape as a copy over a domain that both sides can walk: the common refinement of their dims, or, where
// there is none, element by element in row-major order through a packed side.
Fusion reshape_copy(const Graph& graph, int op_index) {
  const Op& op = graph.ops[op_index];
  const Tensor& x = graph.tensors[op.inputs[0]];
  const Tensor& y = graph.tensors[op.outputs[0]];
  Fusion fusion;
  fusion.ops = {op_index};
  fusion.op_names = {op.name};
  Access load = add_operand(graph, op.inputs[0], fusion);
  Access store = add_operand(graph, op.outputs[0], fusion);
  Expr copy;
  Strides strides;
  if (reshape_strides(x.dims, x.strides, y.dims, strides)) {
    copy.domain = y.dims;
    load.strides = strides;
  } else if (reshape_strides(y.dims, y.strides, x.dims, strides)) {
    copy.domain = x.dims;
    store.strides = strides;
  } else {
    fail("reshape '{}': {} with strides {} cannot be seen as {}; build() puts a copy in front of it", op.name,
         to_string(x.dims), to_string(x.strides), to_string(y.dims));
  }
  const Node::Kind kind = x.is_scalar() ? Node::Kind::scalar : Node::Kind::load;
  copy.nodes.push_back({.kind = kind, .type = x.stored_type(), .access = load, .op = op_index});
  copy.stores.push_back({.node = 0, .type = y.stored_type(), .access = store, .op = op_index});
  add_site(fusion, std::move(copy));
  return fusion;
}

// Held to what it promises, where that costs nobody time.
Fusion checked(Fusion fusion) {
#ifndef NDEBUG
  validate(fusion);
#endif
  return fusion;
}

}  // namespace

Fusion make_fusion(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops) {
  return checked(with_merged_rows(FusionBuilder(graph, folded, ops).build()));
}

Fusion make_single(const Graph& graph, int op) { return make_single(graph, unfolded_with_index(graph), op); }

Fusion make_single(const Graph& graph, const FoldedGraph& unfolded, int op) {
  const Attributes& attributes = graph.ops[op].attributes;
  if (const auto* concatenate = std::get_if<Concatenate>(&attributes))
    return checked(concatenate_copies(graph, op, *concatenate));
  if (std::holds_alternative<Reshape>(attributes)) return checked(reshape_copy(graph, op));
  const int ops[] = {op};
  // On its own, an op's result always leaves, whether or not anyone reads it.
  return make_fusion(graph, unfolded, ops);
}

FoldedGraph unfolded_with_index(const Graph& graph) {
  FoldedGraph folded = unfolded(graph);
  folded.index = GraphIndex(graph);
  return folded;
}

}  // namespace fusor
