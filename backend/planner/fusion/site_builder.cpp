// Owns the nodes of a site: loads, pointwise ops, reductions, gathers and counted numbers.
#include "backend/planner/fusion/site_builder.h"

#include <algorithm>

#include "core/fail.h"
#include "core/infer.h"

namespace fusor {

namespace {

// Where a gather's elements lie: axes that are indexed have one element and the index's tensor takes their
// stride.
struct Taken {
  Placement place;
  Dims dims;
  std::vector<std::pair<IndexedAxis, int>> indices;
};

Taken taken_from(const FusedOps& ops, const Op& op) {
  const Graph& graph = ops.graph();
  const FoldedGraph& folded = ops.folded();
  const int x = op.inputs[0];
  const bool goes_on = is_gather_of_gather(graph, folded.index, op) && ops.contains(folded.index.producer(x));
  Taken taken = goes_on ? taken_from(ops, graph.ops[folded.index.producer(x)])
                        : Taken{folded.placements[x], graph.tensors[x].dims, {}};
  const int axis = static_cast<int>(std::get<Gather>(op.attributes).axis);
  taken.indices.emplace_back(IndexedAxis{taken.place.strides[axis], taken.dims[axis]}, op.inputs[1]);
  taken.dims[axis] = 1;
  return taken;
}

// An identity in front of a packed result, of a value that has the result's type already.
bool packs_rounded(const Expr& expr, const Node& identity) {
  if (identity.pointwise.mode != PointwiseMode::identity || !is_packed(identity.type) ||
      identity.pointwise.compute != carrier(identity.type))
    return false;
  const Node& x = expr.node(identity.args[0]);
  return x.kind == Node::Kind::pointwise && x.type == identity.type;
}

// Two domains of a site are alike where these numbers are.
std::vector<int64_t> way_of(const Domain& domain) {
  std::vector<int64_t> way;
  for (const DomainAxis& axis : domain.axes) {
    way.push_back(axis.first);
    way.push_back(axis.counts.rank());
    way.insert(way.end(), axis.counts.begin(), axis.counts.end());
  }
  return way;
}

}  // namespace

SiteBuilder::SiteBuilder(const FusedOps& ops, FusionOperands& operands, const Domain& domain,
                         std::vector<int> visible)
    : ops_(ops),
      graph_(ops.graph()),
      folded_(ops.folded()),
      operands_(operands),
      visible_(std::move(visible)),
      domain_(domain),
      nodes_(&nodes_of_[way_of(domain)]) {
  expr_.domain = domain.dims;
}

void SiteBuilder::yield(int tensor) { expr_.yields.push_back(unpacked_value(value(tensor))); }

int SiteBuilder::value(int tensor) {
  if (const auto known = nodes_->find(tensor); known != nodes_->end()) return known->second;
  const int node = make_value(tensor);
  (*nodes_)[tensor] = node;
  return node;
}

int SiteBuilder::make_value(int tensor) {
  const Tensor& described = graph_.tensors[tensor];
  const int producer = folded_.index.producer(tensor);
  if (producer >= 0 && ops_.is_anchor(producer)) {
    const auto at = std::ranges::find(visible_, producer);
    if (ops_.is_chain() && at == visible_.end())
      ops_.refuse(fmt::format("need the result of '{}' on both sides of another contraction",
                              graph_.ops[producer].name));
    const int input = ops_.is_chain() ? static_cast<int>(at - visible_.begin()) : ops_.sibling_of(producer);
    return add_node({.kind = Node::Kind::input, .type = described.type, .input = input, .op = producer});
  }
  if (producer >= 0 && ops_.contains(producer)) return computed(producer);
  if (producer >= 0 && folded_.folded[producer] && ops_.is_computed(tensor)) return seen_from_view(producer);
  if (described.is_scalar())
    return add_node({.kind = Node::Kind::scalar,
                     .type = described.type,
                     .access = {operands_.operand_of(tensor), 0, {}, false}});
  return add_node(
      {.kind = Node::Kind::load, .type = operands_.stored_type(tensor), .access = access(tensor)});
}

int SiteBuilder::computed(int op_index) {
  const Op& op = graph_.ops[op_index];
  const Tensor& y = graph_.tensors[op.outputs[0]];
  if (const auto* pointwise = std::get_if<Pointwise>(&op.attributes)) {
    if (pointwise->mode == PointwiseMode::gen_index) return index_node(op_index, *pointwise, y);
    Node node{.kind = Node::Kind::pointwise, .type = y.type, .pointwise = *pointwise, .op = op_index};
    for (size_t i = 0; i < op.inputs.size(); ++i) node.args[i] = value(op.inputs[i]);
    if (packs_rounded(expr_, node)) return node.args[0];
    return add_node(node);
  }
  if (is_view(op.attributes)) return viewed(op_index);
  if (const auto* reduction = std::get_if<Reduction>(&op.attributes)) return total(op_index, *reduction);
  if (std::holds_alternative<Gather>(op.attributes)) return gathered(op_index);
  ops_.refuse(fmt::format("use the result of '{}' before it is complete", op.name));
}

// The coordinate along an axis that groups split is the sum of what its parts pass.
int SiteBuilder::index_node(int op_index, const Pointwise& pointwise, const Tensor& y) {
  const int along = static_cast<int>(pointwise.axis);
  const DomainAxis& axis = domain_.axis_of(y.dims.rank(), along);
  const bool is_whole = axis.walked_by(y.dims[along]) < 2;
  Node node{.kind = Node::Kind::index, .type = is_whole ? y.type : DataType::i64, .axis = axis.first};
  node.access.strides = Dims::filled(domain_.dims.rank(), 0);
  node.op = op_index;
  int sum = -1;
  for_each_step(axis, y.dims[along], [&](int part, int64_t elements) {
    node.axis = part;
    node.access.strides = Dims::filled(domain_.dims.rank(), 0);
    node.access.strides[part] = elements;
    sum = sum < 0 ? add_node(node) : added(sum, add_node(node), op_index);
  });
  if (sum < 0) return add_node(node);
  expr_.node(sum).type = y.type;
  return sum;
}

int SiteBuilder::added(int a, int b, int op_index) {
  Node node{.kind = Node::Kind::pointwise, .type = DataType::i64};
  node.pointwise.mode = PointwiseMode::add;
  node.pointwise.compute = DataType::i64;
  node.args = {a, b, -1};
  node.op = op_index;
  return add_node(node);
}

int SiteBuilder::total(int op_index, const Reduction& reduction) {
  const Op& op = graph_.ops[op_index];
  const Dims &from = graph_.tensors[op.inputs[0]].dims, &to = graph_.tensors[op.outputs[0]].dims;
  if (!domain_.fits(from) || !domain_.fits(to))
    ops_.refuse(fmt::format("do not share one domain ('{}' reduces {}, the domain is {})", op.name,
                            to_string(from), to_string(domain_.logical)));
  const int x = value(op.inputs[0]);
  Node node{.kind = Node::Kind::reduce, .type = graph_.tensors[op.outputs[0]].type};
  node.reduction = reduction;
  node.over = axes_between(domain_, from, to);
  node.args[0] = x;
  node.op = op_index;
  return add_node(node);
}

int SiteBuilder::gathered(int op_index) {
  const Op& op = graph_.ops[op_index];
  const Taken taken = taken_from(ops_, op);
  if (ops_.contains(folded_.index.producer(taken.place.buffer)))
    ops_.refuse(fmt::format("gather from what they compute ('{}')", op.name));
  if (!domain_.fits(taken.dims))
    ops_.refuse(fmt::format("do not share one domain ('{}' gathers from {}, the domain is {})", op.name,
                            to_string(taken.dims), to_string(domain_.logical)));
  const DataType type = graph_.tensors[op.outputs[0]].type;
  const DataType stored = graph_.tensors[taken.place.buffer].stored_type();
  Node load{.kind = Node::Kind::load, .type = stored, .op = op_index};
  load.access = {operands_.operand_of_buffer(taken.place.buffer), taken.place.offset,
                 over_domain(domain_, taken.dims, taken.place.strides)};
  for (size_t k = 0; k < taken.indices.size(); ++k) {
    load.access.indexed[k] = taken.indices[k].first;
    load.args[k] = value(taken.indices[k].second);
  }
  const int loaded = add_node(load);
  if (type == graph_.tensors[op.inputs[0]].type) return loaded;
  Node rounded{.kind = Node::Kind::pointwise, .type = type, .op = op_index};
  rounded.pointwise.compute = carrier(stored);
  rounded.args[0] = loaded;
  return add_node(rounded);
}

// Where the axes of a view's operand lie in the domain. Blocks that the view joins, and the places in them,
// are axes of the domain that stand for one of the result's.
std::vector<DomainAxis> SiteBuilder::axes_seen_from(const Op& view) const {
  const Dims &x = graph_.tensors[view.inputs[0]].dims, &y = graph_.tensors[view.outputs[0]].dims;
  std::vector<DomainAxis> seen;
  Dims axes;
  int joined = 0;
  if (domain_.fits(y) && axes_of_operand(graph_, view, axes)) {
    for (int i = 0; i < x.rank(); ++i)
      seen.push_back(axes[i] < 0 ? DomainAxis{0, {1}} : domain_.axis_of(y.rank(), static_cast<int>(axes[i])));
    return seen;
  }
  if (domain_.fits(y) && joins_blocks(graph_, view, joined)) {
    const DomainAxis& axis = domain_.axis_of(y.rank(), joined);
    if (axis.counts == Dims{x[joined], y[joined]}) {
      for (int i = 0; i < x.rank(); ++i)
        seen.push_back(i == joined       ? DomainAxis{axis.first, {x[i]}}
                       : i == joined + 1 ? DomainAxis{axis.first + 1, {x[i]}}
                                         : domain_.axis_of(y.rank(), i < joined ? i : i - 1));
      return seen;
    }
  }
  ops_.refuse(fmt::format("read a view of what they compute ('{}')", view.name));
}

// A folded view of a value that is computed here shows the value over the same domain, whose axes are
// known by their places in the operand.
int SiteBuilder::seen_from_view(int view) {
  const Op& op = graph_.ops[view];
  const Dims& x = graph_.tensors[op.inputs[0]].dims;
  Domain seen{domain_.dims, x, axes_seen_from(op)};
  for (int i = 0; i < x.rank(); ++i) seen.logical[i] = seen.axes[static_cast<size_t>(i)].counts.back();
  std::swap(domain_, seen);
  Nodes* nodes = &nodes_of_[way_of(domain_)];
  std::swap(nodes_, nodes);
  const int node = value(op.inputs[0]);
  std::swap(nodes_, nodes);
  std::swap(domain_, seen);
  return node;
}

// A view that was not folded is a copy: its operand is loaded with the view's strides.
int SiteBuilder::viewed(int op_index) {
  const Op& op = graph_.ops[op_index];
  if (graph_.tensors[op.inputs[0]].is_scalar()) return value(op.inputs[0]);
  Placement place;
  if (!view_placement(graph_, op, folded_.placements[op.inputs[0]], place))
    fail("{}: its operand '{}' cannot be seen in that shape; build() puts a copy in front of it",
         op_label(op.name, op.attributes), graph_.tensors[op.inputs[0]].name);
  const Tensor& y = graph_.tensors[op.outputs[0]];
  const DataType stored = operands_.stored_type(op.inputs[0]);
  Access load{operands_.operand_of(op.inputs[0]), place.offset, over_domain(domain_, y.dims, place.strides)};
  return add_node({.kind = Node::Kind::load, .type = stored, .access = load, .op = op_index});
}

Access SiteBuilder::access(int tensor) {
  const Placement& place = folded_.placements[tensor];
  const Dims& dims = graph_.tensors[tensor].dims;
  if (!domain_.fits(dims))
    ops_.refuse(fmt::format("do not share one domain ('{}' is {}, the domain {})",
                            graph_.tensors[tensor].name, to_string(dims), to_string(domain_.logical)));
  return {operands_.operand_of(tensor), place.offset, over_domain(domain_, dims, place.strides)};
}

// A value on its way to an anchor, another site or the workspace, where no two elements share a byte.
int SiteBuilder::unpacked_value(int node) {
  const DataType type = expr_.node(node).type;
  if (!is_packed(type)) return node;
  Node wide{.kind = Node::Kind::pointwise, .type = unpacked(type), .op = expr_.node(node).op};
  wide.pointwise.compute = carrier(type);
  wide.args[0] = node;
  return add_node(wide);
}

int SiteBuilder::add_node(const Node& node) {
  expr_.nodes.push_back(node);
  return static_cast<int>(expr_.nodes.size()) - 1;
}

}  // namespace fusor
