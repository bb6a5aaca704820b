// Owns the translation of a set of ops into a Fusion: domains, expressions, accesses.
#include <algorithm>
#include <map>

#include "backend/planner/fold_views.h"
#include "backend/planner/planner.h"
#include "backend/planner/reach.h"
#include "core/fail.h"

namespace fusor {

namespace {

bool contains(std::span<const int> ops, int op) { return position_in(ops, op) >= 0; }

// The domain of a site. An axis that a grouped reduction splits is two axes here: groups, then members.
struct Domain {
  Dims dims;         // the domain's axes
  Dims logical;      // the tensor axes they stand for
  Dims first_axis;   // per tensor axis: its first domain axis
  Dims group_count;  // per tensor axis: extent of the groups axis, 0 where it is not split
};

Domain plain_domain(const Dims& dims) {
  Domain domain{dims, dims, {}, Dims::filled(dims.rank(), 0)};
  for (int i = 0; i < dims.rank(); ++i) domain.first_axis.push_back(i);
  return domain;
}

Domain split_domain(const Dims& dims, const Dims& reduced_to) {
  Domain domain{{}, dims, {}, Dims::filled(dims.rank(), 0)};
  for (int i = 0; i < dims.rank(); ++i) {
    domain.first_axis.push_back(domain.dims.rank());
    if (reduced_to[i] != 1 && reduced_to[i] != dims[i]) {
      domain.group_count[i] = reduced_to[i];
      domain.dims.push_back(reduced_to[i]);
      domain.dims.push_back(dims[i] / reduced_to[i]);
    } else {
      domain.dims.push_back(dims[i]);
    }
  }
  return domain;
}

// Strides over the domain for a tensor of `dims` that broadcasts into it (trailing axes aligned).
Strides over_domain(const Domain& domain, const Dims& dims, const Strides& strides) {
  Strides out = Dims::filled(domain.dims.rank(), 0);
  const int shift = domain.logical.rank() - dims.rank();
  for (int i = 0; i < dims.rank(); ++i) {
    if (dims[i] == 1) continue;
    const int axis = static_cast<int>(domain.first_axis[i + shift]);
    const int64_t groups = domain.group_count[i + shift];
    // Not split, or a reduced tensor with one element a group.
    if (groups == 0 || dims[i] == groups) {
      out[axis] = strides[i];
    } else {
      out[axis] = strides[i] * (dims[i] / groups);
      out[axis + 1] = strides[i];
    }
  }
  return out;
}

uint32_t reduced_axes(const Domain& domain, const Dims& to) {
  uint32_t mask = 0;
  for (int i = 0; i < to.rank(); ++i) {
    const int axis = static_cast<int>(domain.first_axis[i]);
    if (domain.group_count[i] != 0)
      mask |= 1u << (axis + 1);
    else if (to[i] == 1 && domain.logical[i] != 1)
      mask |= 1u << axis;
  }
  return mask;
}

// Builds one Fusion.
class FusionBuilder {
 public:
  FusionBuilder(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops)
      : graph_(graph), folded_(folded), ops_(ops) {
    fusion_.ops.assign(ops.begin(), ops.end());
    fusion_.precision = graph.precision;
    for (const int op : ops) {
      fusion_.op_names.push_back(graph.ops[op].name);
      if (is_contraction(graph.ops[op].attributes)) anchors_.push_back(op);
    }
    if (anchors_.size() > 1 && !is_pair()) refuse("have two contractions");
  }

  Fusion build() {
    mark_upstream();
    for (const int anchor : anchors_) {
      const Op& op = graph_.ops[anchor];
      fusion_.anchors.push_back({anchor, op.attributes});
      // Siblings share the first operand.
      if (fusion_.before.empty()) fusion_.before.push_back(site_before(op.inputs[0]));
      fusion_.before.push_back(site_before(op.inputs[1]));
    }
    fusion_.after.push_back(site_after());
    return std::move(fusion_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail("ops {} {} and cannot be one fusion", fmt::join(fusion_.op_names, ", "), why);
  }

  bool is_pair() const {
    return anchors_.size() == 2 && are_siblings(graph_, anchors_[0], anchors_[1]) &&
           !downstream_of(folded_, ops_, anchors_[0])[position(anchors_[1])];
  }

  size_t position(int op) const { return static_cast<size_t>(position_in(ops_, op)); }

  int sibling_of(int op) const {
    return static_cast<int>(std::ranges::find(anchors_, op) - anchors_.begin());
  }
  bool is_anchor(int op) const { return sibling_of(op) < static_cast<int>(anchors_.size()); }

  // Ops of the set that the anchors wait for: they belong before their operands.
  void mark_upstream() {
    upstream_.assign(ops_.size(), false);
    std::vector<int> waiting;
    for (const int anchor : anchors_)
      waiting.insert(waiting.end(), graph_.ops[anchor].inputs.begin(), graph_.ops[anchor].inputs.end());
    while (!waiting.empty()) {
      const int producer = folded_.index.producer(waiting.back());
      waiting.pop_back();
      if (producer < 0 || !contains(ops_, producer) || upstream_[position(producer)]) continue;
      upstream_[position(producer)] = true;
      waiting.insert(waiting.end(), graph_.ops[producer].inputs.begin(), graph_.ops[producer].inputs.end());
    }
  }

  bool is_upstream(int op) const { return upstream_[position(op)]; }

  int operand_of(int tensor) {
    const int buffer = folded_.placements[tensor].buffer;
    for (size_t i = 0; i < fusion_.operands.size(); ++i)
      if (fusion_.operands[i].tensor == buffer) return static_cast<int>(i);
    const Tensor& described = graph_.tensors[buffer];
    const int64_t alignment = described.is_virtual() ? 256 : described.alignment;
    fusion_.operands.push_back({buffer, described.type, described.memory, alignment,
                                span_elements(described.dims, described.strides), described.value});
    fusion_.operand_names.push_back(described.name);
    return static_cast<int>(fusion_.operands.size()) - 1;
  }

  Access access(int tensor) {
    const Placement& place = folded_.placements[tensor];
    const Dims& dims = graph_.tensors[tensor].dims;
    Dims joined;
    if (!broadcast_dims(dims, domain_.logical, joined) || joined != domain_.logical) {
      if (!is_reduced_form(dims))
        refuse(fmt::format("do not share one domain ('{}' is {}, the domain {})", graph_.tensors[tensor].name,
                           to_string(dims), to_string(domain_.logical)));
    }
    return {operand_of(tensor), place.offset, over_domain(domain_, dims, place.strides)};
  }

  bool is_reduced_form(const Dims& dims) const {
    if (dims.rank() != domain_.logical.rank()) return false;
    for (int i = 0; i < dims.rank(); ++i)
      if (dims[i] != 1 && dims[i] != domain_.logical[i] && dims[i] != domain_.group_count[i]) return false;
    return true;
  }

  int add_node(const Node& node) {
    expr_.nodes.push_back(node);
    return static_cast<int>(expr_.nodes.size()) - 1;
  }

  // The node that holds a tensor's value at the domain's coordinate, made at most once per site.
  int value(int tensor) {
    if (const auto known = nodes_.find(tensor); known != nodes_.end()) return known->second;
    const int node = make_value(tensor);
    nodes_[tensor] = node;
    return node;
  }

  int make_value(int tensor) {
    const Tensor& described = graph_.tensors[tensor];
    const int producer = folded_.index.producer(tensor);
    if (producer >= 0 && is_anchor(producer))
      return add_node(
          {.kind = Node::Kind::anchor, .type = described.type, .axis = sibling_of(producer), .op = producer});
    if (producer >= 0 && contains(ops_, producer)) return computed(producer);
    if (described.is_scalar())
      return add_node(
          {.kind = Node::Kind::scalar, .type = described.type, .access = {operand_of(tensor), 0, {}, false}});
    return add_node({.kind = Node::Kind::load, .type = described.type, .access = access(tensor)});
  }

  int computed(int op_index) {
    const Op& op = graph_.ops[op_index];
    const Tensor& y = graph_.tensors[op.outputs[0]];
    if (const auto* pointwise = std::get_if<Pointwise>(&op.attributes)) {
      if (pointwise->mode == PointwiseMode::gen_index) return index_node(op_index, *pointwise, y);
      Node node{.kind = Node::Kind::pointwise, .type = y.type, .pointwise = *pointwise, .op = op_index};
      for (size_t i = 0; i < op.inputs.size(); ++i) node.args[i] = value(op.inputs[i]);
      return add_node(node);
    }
    if (is_view(op.attributes)) return viewed(op_index);
    refuse(fmt::format("use the result of '{}' before it is complete", op.name));
  }

  int index_node(int op_index, const Pointwise& pointwise, const Tensor& y) {
    const int axis = static_cast<int>(pointwise.axis) + domain_.logical.rank() - y.dims.rank();
    if (domain_.group_count[axis] != 0) refuse("index an axis that a grouped reduction splits");
    Node node{.kind = Node::Kind::index, .type = y.type, .op = op_index};
    node.axis = static_cast<int>(domain_.first_axis[axis]);
    node.access.strides = Dims::filled(domain_.dims.rank(), 0);
    node.access.strides[node.axis] = y.dims[static_cast<int>(pointwise.axis)] == 1 ? 0 : 1;
    return add_node(node);
  }

  // A view that was not folded is a copy: its operand is loaded with the view's strides.
  int viewed(int op_index) {
    const Op& op = graph_.ops[op_index];
    if (graph_.tensors[op.inputs[0]].is_scalar()) return value(op.inputs[0]);
    Placement place;
    if (!view_placement(graph_, op, folded_.placements[op.inputs[0]], place))
      fail(ErrorKind::internal, "reshape '{}' was not expanded", op.name);
    const Tensor& y = graph_.tensors[op.outputs[0]];
    Access load{operand_of(op.inputs[0]), place.offset, over_domain(domain_, y.dims, place.strides)};
    return add_node({.kind = Node::Kind::load, .type = y.type, .access = load, .op = op_index});
  }

  void open(const Domain& domain) {
    domain_ = domain;
    expr_ = {};
    expr_.domain = domain.dims;
    nodes_.clear();
  }

  Expr site_before(int tensor) {
    open(plain_domain(graph_.tensors[tensor].dims));
    expr_.value = value(tensor);
    return std::move(expr_);
  }

  // Whether an op outside of the set reads the tensor, directly or through a folded view.
  bool leaves(int tensor) const {
    if (!graph_.tensors[tensor].is_virtual()) return true;
    return std::ranges::any_of(folded_.index.consumers(tensor), [&](int op) { return !contains(ops_, op); });
  }

  Expr site_after() {
    open(after_domain());
    // Engines hand over the sums of all siblings, whoever uses them.
    if (anchors_.size() > 1)
      for (const int anchor : anchors_) value(graph_.ops[anchor].outputs[0]);
    for (const int op : ops_) {
      if (is_upstream(op)) continue;
      const int y = graph_.ops[op].outputs[0];
      if (const auto* reduction = std::get_if<Reduction>(&graph_.ops[op].attributes))
        add_reduction(op, *reduction);
      else if (leaves(y))
        add_store(op, y);
    }
    if (expr_.results.empty()) refuse("leave nothing behind");
    return std::move(expr_);
  }

  void add_store(int op, int tensor) {
    if (element_count(graph_.tensors[tensor].dims) != element_count(domain_.logical))
      refuse(fmt::format("store '{}' many times over", graph_.tensors[tensor].name));
    Result result;
    result.node = value(tensor);
    result.type = graph_.tensors[tensor].type;
    result.access = access(tensor);
    result.op = op;
    expr_.results.push_back(result);
  }

  void add_reduction(int op, const Reduction& reduction) {
    const int y = graph_.ops[op].outputs[0];
    Result result;
    result.node = value(graph_.ops[op].inputs[0]);
    result.type = graph_.tensors[y].type;
    result.reduction = reduction;
    result.reduced = reduced_axes(domain_, graph_.tensors[y].dims);
    result.access = access(y);
    result.op = op;
    expr_.results.push_back(result);
  }

  // The largest shape that the ops after the anchor (all, without one) speak of; grouped reductions split its
  // axes.
  Domain after_domain() const {
    Dims dims;
    const Op* grouped = nullptr;
    const auto widen = [&](int tensor) {
      const Dims& other = graph_.tensors[tensor].dims;
      if (dims.empty() || element_count(other) > element_count(dims)) dims = other;
    };
    for (const int op : ops_) {
      if (is_upstream(op)) continue;
      const bool reduces = std::holds_alternative<Reduction>(graph_.ops[op].attributes);
      widen(reduces ? graph_.ops[op].inputs[0] : graph_.ops[op].outputs[0]);
      if (reduces && is_grouped_reduction(graph_, graph_.ops[op])) grouped = &graph_.ops[op];
    }
    if (grouped == nullptr) return plain_domain(dims);
    return split_domain(dims, graph_.tensors[grouped->outputs[0]].dims);
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  std::span<const int> ops_;
  std::vector<int> anchors_;
  std::vector<bool> upstream_;  // by position in ops_
  Fusion fusion_;

  // The site being built.
  Domain domain_;
  Expr expr_;
  std::map<int, int> nodes_;
};

// Adds `tensor` as the next operand and gives a load of / store to it over its own dims.
Access add_operand(const Graph& graph, int tensor, Fusion& fusion) {
  const Tensor& described = graph.tensors[tensor];
  fusion.operands.push_back({tensor, described.type, described.memory, described.alignment,
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
    copy.nodes.push_back({.kind = kind, .type = x.type, .access = load, .op = op_index});
    copy.results.push_back(
        {.node = 0, .type = x.type, .access = store, .reduction = {}, .reduced = 0, .op = op_index});
    store.offset += x.dims[axis] * store.strides[axis];
    fusion.after.push_back(std::move(copy));
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
    fail(ErrorKind::internal, "reshape '{}' was not expanded", op.name);
  }
  const Node::Kind kind = x.is_scalar() ? Node::Kind::scalar : Node::Kind::load;
  copy.nodes.push_back({.kind = kind, .type = x.type, .access = load, .op = op_index});
  copy.results.push_back(
      {.node = 0, .type = y.type, .access = store, .reduction = {}, .reduced = 0, .op = op_index});
  fusion.after.push_back(std::move(copy));
  return fusion;
}

}  // namespace

bool is_grouped_reduction(const Graph& graph, const Op& op) {
  const Dims& x = graph.tensors[op.inputs[0]].dims;
  const Dims& y = graph.tensors[op.outputs[0]].dims;
  for (int i = 0; i < x.rank(); ++i)
    if (y[i] != 1 && y[i] != x[i]) return true;
  return false;
}

bool are_siblings(const Graph& graph, int first, int second) {
  const Op &a = graph.ops[first], &b = graph.ops[second];
  const auto dims = [&](int tensor) -> const Dims& { return graph.tensors[tensor].dims; };
  return is_contraction(a.attributes) && a.attributes == b.attributes && a.inputs[0] == b.inputs[0] &&
         dims(a.inputs[1]) == dims(b.inputs[1]) && dims(a.outputs[0]) == dims(b.outputs[0]);
}

Fusion make_fusion(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops) {
  return FusionBuilder(graph, folded, ops).build();
}

Fusion make_single(const Graph& graph, int op) {
  const Attributes& attributes = graph.ops[op].attributes;
  if (const auto* concatenate = std::get_if<Concatenate>(&attributes))
    return concatenate_copies(graph, op, *concatenate);
  if (std::holds_alternative<Reshape>(attributes)) return reshape_copy(graph, op);
  const int ops[] = {op};
  // On its own, an op's result always leaves, whether or not anyone reads it.
  FoldedGraph folded = unfolded(graph);
  folded.index = GraphIndex(graph);
  return make_fusion(graph, folded, ops);
}

}  // namespace fusor
