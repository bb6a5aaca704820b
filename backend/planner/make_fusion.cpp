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

// A tensor axis in the domain of a site. Grouped reductions split it: into as many elements as the fewest
// groups have, then what the next finer ones add, and at last the elements of a group.
struct DomainAxis {
  int first = 0;  // of the domain's axes that stand for it
  Dims counts;    // what it has after each of them: each divides the next, the last is its extent

  // The number of its domain axes that a tensor of `extent` there walks; -1 where it is none of the counts.
  int walked_by(int64_t extent) const {
    if (extent == 1) return 0;
    const auto found = std::find(counts.begin(), counts.end(), extent);
    return found == counts.end() ? -1 : static_cast<int>(found - counts.begin()) + 1;
  }
};

// The domain of a site.
struct Domain {
  Dims dims;     // the domain's axes
  Dims logical;  // the tensor axes they stand for
  std::vector<DomainAxis> axes;

  // The domain axis of a tensor of that rank (trailing axes aligned).
  const DomainAxis& axis_of(int rank, int axis) const {
    return axes[static_cast<size_t>(axis + logical.rank() - rank)];
  }
};

// `groups[i]`: the numbers of groups into which axis i is split, in ascending order.
Domain split_domain(const Dims& dims, std::span<const std::vector<int64_t>> groups) {
  Domain domain{{}, dims, {}};
  for (int i = 0; i < dims.rank(); ++i) {
    DomainAxis axis{domain.dims.rank(), {}};
    for (const int64_t count : groups[static_cast<size_t>(i)]) axis.counts.push_back(count);
    axis.counts.push_back(dims[i]);
    int64_t outer = 1;
    for (const int64_t count : axis.counts) {
      domain.dims.push_back(count / outer);
      outer = count;
    }
    domain.axes.push_back(axis);
  }
  return domain;
}

Domain plain_domain(const Dims& dims) {
  return split_domain(dims, std::vector<std::vector<int64_t>>(static_cast<size_t>(dims.rank())));
}

// Calls visit(domain axis, elements of the tensor axis that a step along it passes) for the domain axes that
// a tensor of `extent` there walks.
template <class Visit>
void for_each_step(const DomainAxis& axis, int64_t extent, Visit&& visit) {
  const int walked = axis.walked_by(extent);
  for (int i = 0; i < walked; ++i) visit(axis.first + i, extent / axis.counts[i]);
}

// Strides over the domain for a tensor of `dims` that broadcasts into it (trailing axes aligned).
Strides over_domain(const Domain& domain, const Dims& dims, const Strides& strides) {
  Strides out = Dims::filled(domain.dims.rank(), 0);
  for (int i = 0; i < dims.rank(); ++i)
    for_each_step(domain.axis_of(dims.rank(), i), dims[i],
                  [&](int axis, int64_t elements) { out[axis] = strides[i] * elements; });
  return out;
}

// What a reduction of `from` to `to` runs over.
uint32_t axes_between(const Domain& domain, const Dims& from, const Dims& to) {
  uint32_t mask = 0;
  for (int i = 0; i < to.rank(); ++i) {
    const DomainAxis& axis = domain.axis_of(to.rank(), i);
    for (int step = axis.walked_by(to[i]); step < axis.walked_by(from[i]); ++step)
      mask |= 1u << (axis.first + step);
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
      const Attributes& attributes = graph.ops[op].attributes;
      if (is_contraction(attributes) || std::holds_alternative<Recurrence>(attributes))
        anchors_.push_back(op);
    }
    is_chain_ = anchors_.size() >= 2 && find_chain();
    if (anchors_.size() > 1 && !is_chain_ && !is_pair()) refuse("have two contractions");
  }

  Fusion build() { return is_chain_ ? build_chain() : build_around_anchors(); }

 private:
  Fusion build_around_anchors() {
    mark_upstream();
    std::vector<Input> results;
    for (const int anchor : anchors_) {
      const Op& op = graph_.ops[anchor];
      // Siblings share the first operand.
      const Port first = fusion_.anchors.empty() ? port_of(op.inputs[0]) : fusion_.anchors[0].operands[0];
      std::vector<Port> ports{first};
      for (size_t i = 1; i < op.inputs.size(); ++i) ports.push_back(port_of(op.inputs[i]));
      results.push_back({.from = Input::From::anchor, .at = static_cast<int>(fusion_.anchors.size())});
      fusion_.anchors.push_back({anchor, op.attributes, std::move(ports)});
    }
    Site after{.expr = site_after(), .inputs = std::move(results)};
    if (after.expr.domain != domain_.logical)
      for (Input& input : after.inputs) input.whole = domain_.logical;
    fusion_.sites.push_back(std::move(after));
    return std::move(fusion_);
  }

  // The operands of the anchors in front, what becomes of their results, and for each anchor behind that its
  // other operand and what becomes of its own result.
  Fusion build_chain() {
    std::vector<Input> results;
    for (const int anchor : fronts_) {
      const Op& op = graph_.ops[anchor];
      const Port a = port_of(op.inputs[0]), b = port_of(op.inputs[1]);
      results.push_back({.from = Input::From::anchor, .at = static_cast<int>(fusion_.anchors.size())});
      fusion_.anchors.push_back({anchor, op.attributes, {a, b}});
    }
    std::vector<std::vector<bool>> behind;
    for (const int anchor : backs_) behind.push_back(downstream_of(folded_, ops_, anchor));
    visible_ = fronts_;
    open(plain_domain(graph_.tensors[graph_.ops[fronts_[0]].outputs[0]].dims));
    std::vector<int> yielded;
    for (const int anchor : backs_) {
      const int tensor = unconverted(seen_through_transposes(graph_.ops[anchor].inputs[0]).tensor);
      if (std::ranges::find(yielded, tensor) != yielded.end()) continue;
      yielded.push_back(tensor);
      expr_.yields.push_back(unpacked_value(value(tensor)));
    }
    for (const int op : ops_)
      if (!is_anchor(op) &&
          std::ranges::none_of(behind, [&](const auto& ops) -> bool { return ops[position(op)]; }))
        store_if_left(op);
    fusion_.sites.push_back({.expr = std::move(expr_), .inputs = std::move(results)});
    const int between = static_cast<int>(fusion_.sites.size()) - 1;
    for (size_t i = 0; i < backs_.size(); ++i) {
      const Seen first = seen_through_transposes(graph_.ops[backs_[i]].inputs[0]);
      const auto yield = std::ranges::find(yielded, unconverted(first.tensor)) - yielded.begin();
      add_behind(backs_[i], {between, static_cast<int>(yield), first.axes}, behind[i]);
    }
    return std::move(fusion_);
  }

  void add_behind(int anchor, const Port& first, const std::vector<bool>& behind) {
    const Op& op = graph_.ops[anchor];
    const Port second = port_of(op.inputs[1]);
    fusion_.anchors.push_back({anchor, op.attributes, {first, second}});
    visible_ = {anchor};
    open(plain_domain(graph_.tensors[op.outputs[0]].dims));
    for (const int each : ops_)
      if (behind[position(each)]) store_if_left(each);
    if (expr_.stores.empty()) refuse("leave nothing behind");
    value(op.outputs[0]);
    const int at = static_cast<int>(fusion_.anchors.size()) - 1;
    fusion_.sites.push_back({.expr = std::move(expr_), .inputs = {{.from = Input::From::anchor, .at = at}}});
  }

  // The value in front of ops of the set that hand it on as it is.
  int unconverted(int tensor) const {
    for (;;) {
      const int producer = folded_.index.producer(tensor);
      if (producer < 0 || !contains(ops_, producer)) return tensor;
      const auto* const pointwise = std::get_if<Pointwise>(&graph_.ops[producer].attributes);
      const int from = graph_.ops[producer].inputs[0];
      if (pointwise == nullptr || pointwise->mode != PointwiseMode::identity ||
          graph_.tensors[from].type != graph_.tensors[tensor].type || !is_computed(from))
        return tensor;
      tensor = from;
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail("ops {} {} and cannot be one fusion", fmt::join(fusion_.op_names, ", "), why);
  }

  bool is_pair() const {
    return anchors_.size() == 2 && are_siblings(graph_, anchors_[0], anchors_[1]) &&
           !downstream_of(folded_, ops_, anchors_[0])[position(anchors_[1])];
  }

  // A tensor behind folded transposes: axis i of what was asked for is axis axes[i] of it, or all are in
  // order.
  struct Seen {
    int tensor = -1;
    Dims axes = {};
  };
  Seen seen_through_transposes(int tensor) const {
    Seen seen{tensor, {}};
    for (;;) {
      const int producer = folded_.index.producer(seen.tensor);
      if (producer < 0 || !folded_.folded[producer]) return seen;
      const auto* const transpose = std::get_if<Transpose>(&graph_.ops[producer].attributes);
      if (transpose == nullptr) return seen;
      Dims axes = transpose->permutation;
      for (int i = 0; i < seen.axes.rank(); ++i)
        axes[i] = transpose->permutation[static_cast<int>(seen.axes[i])];
      seen = {graph_.ops[producer].inputs[0], axes};
    }
  }

  // Anchors behind others: their first operands come of these results, the other ones do not, and nothing
  // comes of their own.
  bool find_chain() {
    std::vector<bool> is_made(ops_.size(), false);
    for (const int anchor : anchors_) {
      const std::vector<bool> behind = downstream_of(folded_, ops_, anchor);
      for (size_t i = 0; i < ops_.size(); ++i) is_made[i] = is_made[i] || (behind[i] && ops_[i] != anchor);
    }
    for (const int anchor : anchors_) (is_made[position(anchor)] ? backs_ : fronts_).push_back(anchor);
    const auto is_made_of_fronts = [&](int tensor) {
      const int producer = folded_.index.producer(tensor);
      return producer >= 0 && contains(ops_, producer) &&
             (is_made[position(producer)] || std::ranges::find(fronts_, producer) != fronts_.end());
    };
    const auto dims = [&](int anchor) -> const Dims& {
      return graph_.tensors[graph_.ops[anchor].outputs[0]].dims;
    };
    return !backs_.empty() &&
           std::ranges::all_of(fronts_, [&](int anchor) { return dims(anchor) == dims(fronts_[0]); }) &&
           std::ranges::all_of(backs_, [&](int anchor) {
             const std::vector<int>& inputs = graph_.ops[anchor].inputs;
             return is_made_of_fronts(seen_through_transposes(inputs[0]).tensor) &&
                    !is_made_of_fronts(seen_through_transposes(inputs[1]).tensor);
           });
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

  int operand_of(int tensor) { return operand_of_buffer(folded_.placements[tensor].buffer); }
  int operand_of_buffer(int buffer) {
    for (size_t i = 0; i < fusion_.operands.size(); ++i)
      if (fusion_.operands[i].tensor == buffer) return static_cast<int>(i);
    const Tensor& described = graph_.tensors[buffer];
    const int64_t alignment = described.is_virtual() ? 256 : described.alignment;
    fusion_.operands.push_back({buffer, described.stored_type(), described.memory, alignment,
                                span_elements(described.dims, described.strides), described.value});
    fusion_.operand_names.push_back(described.name);
    return static_cast<int>(fusion_.operands.size()) - 1;
  }

  // The type of a tensor's elements where they lie.
  DataType stored_type(int tensor) const {
    return graph_.tensors[folded_.placements[tensor].buffer].stored_type();
  }

  // A value on its way to an anchor, another site or the workspace, where no two elements share a byte.
  int unpacked_value(int node) {
    const DataType type = expr_.node(node).type;
    if (!is_packed(type)) return node;
    Node wide{.kind = Node::Kind::pointwise, .type = unpacked(type), .op = expr_.node(node).op};
    wide.pointwise.compute = carrier(type);
    wide.args[0] = node;
    return add_node(wide);
  }

  Access access(int tensor) {
    const Placement& place = folded_.placements[tensor];
    const Dims& dims = graph_.tensors[tensor].dims;
    if (!fits_domain(dims))
      refuse(fmt::format("do not share one domain ('{}' is {}, the domain {})", graph_.tensors[tensor].name,
                         to_string(dims), to_string(domain_.logical)));
    return {operand_of(tensor), place.offset, over_domain(domain_, dims, place.strides)};
  }

  // Whether the tensor has all elements of each axis, one, or one a group.
  bool fits_domain(const Dims& dims) const {
    if (dims.rank() > domain_.logical.rank()) return false;
    for (int i = 0; i < dims.rank(); ++i)
      if (domain_.axis_of(dims.rank(), i).walked_by(dims[i]) < 0) return false;
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
    if (producer >= 0 && is_anchor(producer)) {
      const auto at = std::ranges::find(visible_, producer);
      if (is_chain_ && at == visible_.end())
        refuse(fmt::format("need the result of '{}' on both sides of another contraction",
                           graph_.ops[producer].name));
      const int input = is_chain_ ? static_cast<int>(at - visible_.begin()) : sibling_of(producer);
      return add_node({.kind = Node::Kind::input, .type = described.type, .input = input, .op = producer});
    }
    if (producer >= 0 && contains(ops_, producer)) return computed(producer);
    if (producer >= 0 && folded_.folded[producer] && is_computed(tensor)) return seen_from_view(producer);
    if (described.is_scalar())
      return add_node(
          {.kind = Node::Kind::scalar, .type = described.type, .access = {operand_of(tensor), 0, {}, false}});
    return add_node({.kind = Node::Kind::load, .type = stored_type(tensor), .access = access(tensor)});
  }

  // Whether an op of the set computes the tensor, or what it is a view of.
  bool is_computed(int tensor) const {
    const int producer = folded_.index.producer(tensor);
    return producer >= 0 && (contains(ops_, producer) ||
                             (folded_.folded[producer] && is_computed(graph_.ops[producer].inputs[0])));
  }

  // A folded view of a value that is computed here shows the value over the same domain, whose axes are
  // known by their places in the operand.
  int seen_from_view(int view) {
    const Op& op = graph_.ops[view];
    const Dims &x = graph_.tensors[op.inputs[0]].dims, &y = graph_.tensors[op.outputs[0]].dims;
    Dims axes;
    if (!axes_of_operand(graph_, op, axes))
      refuse(fmt::format("read a view of what they compute ('{}')", op.name));
    Domain seen{domain_.dims, x, {}};
    for (int i = 0; i < x.rank(); ++i)
      seen.axes.push_back(axes[i] < 0 ? DomainAxis{0, {1}}
                                      : domain_.axis_of(y.rank(), static_cast<int>(axes[i])));
    for (int i = 0; i < x.rank(); ++i) seen.logical[i] = seen.axes[static_cast<size_t>(i)].counts.back();
    std::swap(domain_, seen);
    std::map<int, int> nodes;
    std::swap(nodes_, nodes);
    const int node = value(op.inputs[0]);
    std::swap(nodes_, nodes);
    std::swap(domain_, seen);
    return node;
  }

  int computed(int op_index) {
    const Op& op = graph_.ops[op_index];
    const Tensor& y = graph_.tensors[op.outputs[0]];
    if (const auto* pointwise = std::get_if<Pointwise>(&op.attributes)) {
      if (pointwise->mode == PointwiseMode::gen_index) return index_node(op_index, *pointwise, y);
      Node node{.kind = Node::Kind::pointwise, .type = y.type, .pointwise = *pointwise, .op = op_index};
      for (size_t i = 0; i < op.inputs.size(); ++i) node.args[i] = value(op.inputs[i]);
      if (packs_rounded(node)) return node.args[0];
      return add_node(node);
    }
    if (is_view(op.attributes)) return viewed(op_index);
    if (const auto* reduction = std::get_if<Reduction>(&op.attributes)) return total(op_index, *reduction);
    if (std::holds_alternative<Gather>(op.attributes)) return gathered(op_index);
    refuse(fmt::format("use the result of '{}' before it is complete", op.name));
  }

  // An identity in front of a packed result, of a value that has the result's type already.
  bool packs_rounded(const Node& identity) const {
    if (identity.pointwise.mode != PointwiseMode::identity || !is_packed(identity.type) ||
        identity.pointwise.compute != carrier(identity.type))
      return false;
    const Node& x = expr_.node(identity.args[0]);
    return x.kind == Node::Kind::pointwise && x.type == identity.type;
  }

  // Where a gather's elements lie: axes that are indexed have one element and the index's tensor takes their
  // stride.
  struct Taken {
    Placement place;
    Dims dims;
    std::vector<std::pair<IndexedAxis, int>> indices;
  };
  Taken taken_from(const Op& op) const {
    const int x = op.inputs[0];
    const bool goes_on =
        is_gather_of_gather(graph_, folded_.index, op) && contains(ops_, folded_.index.producer(x));
    Taken taken = goes_on ? taken_from(graph_.ops[folded_.index.producer(x)])
                          : Taken{folded_.placements[x], graph_.tensors[x].dims, {}};
    const int axis = static_cast<int>(std::get<Gather>(op.attributes).axis);
    taken.indices.emplace_back(IndexedAxis{taken.place.strides[axis], taken.dims[axis]}, op.inputs[1]);
    taken.dims[axis] = 1;
    return taken;
  }

  int gathered(int op_index) {
    const Op& op = graph_.ops[op_index];
    const Taken taken = taken_from(op);
    if (!fits_domain(taken.dims))
      refuse(fmt::format("do not share one domain ('{}' gathers from {}, the domain is {})", op.name,
                         to_string(taken.dims), to_string(domain_.logical)));
    const DataType type = graph_.tensors[op.outputs[0]].type;
    const DataType stored = graph_.tensors[taken.place.buffer].stored_type();
    Node load{.kind = Node::Kind::load, .type = stored, .op = op_index};
    load.access = {operand_of_buffer(taken.place.buffer), taken.place.offset,
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

  int total(int op_index, const Reduction& reduction) {
    const Op& op = graph_.ops[op_index];
    const Dims &from = graph_.tensors[op.inputs[0]].dims, &to = graph_.tensors[op.outputs[0]].dims;
    if (!fits_domain(from) || !fits_domain(to))
      refuse(fmt::format("do not share one domain ('{}' reduces {}, the domain is {})", op.name,
                         to_string(from), to_string(domain_.logical)));
    const int x = value(op.inputs[0]);
    Node node{.kind = Node::Kind::reduce, .type = graph_.tensors[op.outputs[0]].type};
    node.reduction = reduction;
    node.over = axes_between(domain_, from, to);
    node.args[0] = x;
    node.op = op_index;
    return add_node(node);
  }

  // The coordinate along an axis that groups split is the sum of what its parts pass.
  int index_node(int op_index, const Pointwise& pointwise, const Tensor& y) {
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

  int added(int a, int b, int op_index) {
    Node node{.kind = Node::Kind::pointwise, .type = DataType::i64};
    node.pointwise.mode = PointwiseMode::add;
    node.pointwise.compute = DataType::i64;
    node.args = {a, b, -1};
    node.op = op_index;
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
    const DataType stored = stored_type(op.inputs[0]);
    Access load{operand_of(op.inputs[0]), place.offset, over_domain(domain_, y.dims, place.strides)};
    return add_node({.kind = Node::Kind::load, .type = stored, .access = load, .op = op_index});
  }

  void open(const Domain& domain) {
    domain_ = domain;
    expr_ = {};
    expr_.domain = domain.dims;
    nodes_.clear();
  }

  // A site that yields the tensor.
  Port port_of(int tensor) {
    open(plain_domain(graph_.tensors[tensor].dims));
    expr_.yields = {unpacked_value(value(tensor))};
    add_site(fusion_, std::move(expr_));
    return {.site = static_cast<int>(fusion_.sites.size()) - 1};
  }

  // Whether an op outside of the set reads the tensor, directly or through a folded view.
  bool leaves(int tensor) const {
    if (!graph_.tensors[tensor].is_virtual()) return true;
    return std::ranges::any_of(folded_.index.consumers(tensor), [&](int op) {
      return !contains(ops_, op) && !is_port(op) && !is_seen_within(op);
    });
  }

  // A folded view through which only ops of the set look at a value in front of anchors.
  bool is_seen_within(int op) const {
    const Op& view = graph_.ops[op];
    Dims axes;
    return is_chain_ && folded_.folded[op] && axes_of_operand(graph_, view, axes) && !leaves(view.outputs[0]);
  }

  // A transpose that only anchors behind others read, as their first operand.
  bool is_port(int op) const {
    const Op& view = graph_.ops[op];
    if (!folded_.folded[op] || !std::holds_alternative<Transpose>(view.attributes)) return false;
    const int tensor = view.outputs[0];
    return graph_.tensors[tensor].is_virtual() &&
           std::ranges::all_of(folded_.index.consumers(tensor), [&](int reader) {
             const std::vector<int>& inputs = graph_.ops[reader].inputs;
             return is_port(reader) || (std::ranges::find(backs_, reader) != backs_.end() &&
                                        inputs[0] == tensor && inputs[1] != tensor);
           });
  }

  Expr site_after() {
    open(after_domain());
    // Engines hand over the sums of all siblings, first, whoever uses them.
    if (anchors_.size() > 1)
      for (const int anchor : anchors_) value(graph_.ops[anchor].outputs[0]);
    for (const int op : ops_)
      if (is_upstream(op))
        refuse_if_left(op);
      else
        store_if_left(op);
    if (expr_.stores.empty()) refuse("leave nothing behind");
    // The one anchor's sums, too, where only its coordinates are asked for.
    for (const int anchor : anchors_) value(graph_.ops[anchor].outputs[0]);
    return std::move(expr_);
  }

  void store_if_left(int op) {
    const int y = graph_.ops[op].outputs[0];
    const bool is_total = std::holds_alternative<Reduction>(graph_.ops[op].attributes);
    if (leaves(y) || (is_total && folded_.index.consumers(y).empty())) add_store(op, y);
  }

  // Values in front of a contraction are computed for each use, and stored by none.
  void refuse_if_left(int op) const {
    const Tensor& y = graph_.tensors[graph_.ops[op].outputs[0]];
    if (leaves(graph_.ops[op].outputs[0]))
      refuse(fmt::format("compute '{}' in front of a contraction, which others read", y.name));
  }

  // Elements leave for where the index says: y's extents but the one along the axis are those of the domain.
  void add_scatter(int op, int64_t axis) {
    const int x = graph_.ops[op].inputs[0], y = graph_.ops[op].outputs[0];
    if (!anchors_.empty() && !is_chain_)
      refuse(fmt::format("scatter '{}' behind a contraction", graph_.tensors[y].name));
    const Placement& place = folded_.placements[y];
    Dims dims = graph_.tensors[y].dims;
    const int along = static_cast<int>(axis) - (graph_.tensors[x].dims.rank() - dims.rank());
    const IndexedAxis indexed{place.strides[along], dims[along]};
    dims[along] = 1;
    const bool is_whole = graph_.tensors[x].dims == domain_.logical;
    if (!fits_domain(dims) || !fits_domain(graph_.tensors[x].dims) || (!is_whole && !is_chain_))
      refuse(fmt::format("do not share one domain ('{}' scatters {}, the domain is {})", graph_.ops[op].name,
                         to_string(graph_.tensors[x].dims), to_string(domain_.logical)));
    Store store{.node = unpacked_value(value(x)), .type = stored_type(y), .op = op};
    if (!is_whole && phases(expr_)[static_cast<size_t>(store.node)] == 0)
      refuse(fmt::format("store '{}' many times over", graph_.tensors[y].name));
    store.index = value(graph_.ops[op].inputs[1]);
    store.access = {operand_of(y), place.offset, over_domain(domain_, dims, place.strides)};
    store.access.indexed[0] = indexed;
    expr_.stores.push_back(store);
  }

  void add_store(int op, int tensor) {
    if (const auto* const scatter = std::get_if<Scatter>(&graph_.ops[op].attributes))
      return add_scatter(op, scatter->axis);
    const Tensor& described = graph_.tensors[tensor];
    int node = value(tensor);
    const DataType type = stored_type(tensor);
    const bool is_whole = element_count(described.dims) == element_count(domain_.logical);
    if (!is_whole && phases(expr_)[static_cast<size_t>(node)] == 0)
      refuse(fmt::format("store '{}' many times over", described.name));
    if (!is_packed(type)) node = unpacked_value(node);
    expr_.stores.push_back({.node = node, .type = type, .access = access(tensor), .op = op});
  }

  // The largest shape that the ops after the anchor (all, without one) speak of; grouped reductions split its
  // axes.
  Domain after_domain() const {
    Dims dims;
    const auto widen = [&](int tensor) {
      const Dims& other = graph_.tensors[tensor].dims;
      if (dims.empty() || element_count(other) > element_count(dims)) dims = other;
    };
    for (const int op : ops_) {
      if (is_upstream(op) || is_passed_through(graph_, folded_.index, ops_, op)) continue;
      widen(works_over_operand(graph_.ops[op]) ? graph_.ops[op].inputs[0] : graph_.ops[op].outputs[0]);
    }
    return split_domain(dims, groups_of(dims));
  }

  // The numbers of groups into which reductions split each axis of `dims`.
  std::vector<std::vector<int64_t>> groups_of(const Dims& dims) const {
    std::vector<std::vector<int64_t>> groups(static_cast<size_t>(dims.rank()));
    for (const int op : ops_) {
      if (is_upstream(op) || !std::holds_alternative<Reduction>(graph_.ops[op].attributes)) continue;
      const Dims& from = graph_.tensors[graph_.ops[op].inputs[0]].dims;
      const Dims& to = graph_.tensors[graph_.ops[op].outputs[0]].dims;
      const int shift = dims.rank() - to.rank();
      for (int i = 0; i < to.rank() && shift >= 0; ++i)
        if (to[i] != 1 && to[i] != from[i])
          groups[static_cast<size_t>(i) + static_cast<size_t>(shift)].push_back(to[i]);
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      std::ranges::sort(groups[i]);
      groups[i].erase(std::unique(groups[i].begin(), groups[i].end()), groups[i].end());
      int64_t outer = 1;
      for (const int64_t count : groups[i]) {
        if (count % outer != 0 || dims[static_cast<int>(i)] % count != 0)
          refuse("reduce groups that do not lie within each other");
        outer = count;
      }
    }
    return groups;
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  std::span<const int> ops_;
  std::vector<int> anchors_;
  std::vector<bool> upstream_;  // by position in ops_
  bool is_chain_ = false;
  std::vector<int> fronts_, backs_;  // of a chain: anchors by whether they wait for others
  std::vector<int> visible_;         // of a chain: the anchors whose results the site being built is handed
  Fusion fusion_;

  // The site being built.
  Domain domain_;
  Expr expr_;
  std::map<int, int> nodes_;
};

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
    fail(ErrorKind::internal, "reshape '{}' was not expanded", op.name);
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

bool works_over_operand(const Op& op) {
  return std::holds_alternative<Reduction>(op.attributes) || std::holds_alternative<Scatter>(op.attributes);
}

bool axes_of_operand(const Graph& graph, const Op& view, Dims& axes) {
  const Dims &x = graph.tensors[view.inputs[0]].dims, &y = graph.tensors[view.outputs[0]].dims;
  axes = Dims::filled(x.rank(), -1);
  if (const auto* const transpose = std::get_if<Transpose>(&view.attributes)) {
    for (int i = 0; i < y.rank(); ++i) axes[static_cast<int>(transpose->permutation[i])] = i;
    return true;
  }
  if (!std::holds_alternative<Reshape>(view.attributes)) return false;
  // The same axes in order, among others of one element.
  int at = 0;
  const auto skip = [&] {
    while (at < y.rank() && y[at] == 1) ++at;
  };
  for (int i = 0; i < x.rank(); ++i) {
    if (x[i] == 1) continue;
    skip();
    if (at == y.rank() || y[at] != x[i]) return false;
    axes[i] = at++;
  }
  skip();
  return at == y.rank();
}

bool is_grouped_reduction(const Graph& graph, const Op& op) {
  const Dims& x = graph.tensors[op.inputs[0]].dims;
  const Dims& y = graph.tensors[op.outputs[0]].dims;
  for (int i = 0; i < x.rank(); ++i)
    if (y[i] != 1 && y[i] != x[i]) return true;
  return false;
}

bool is_gather_of_gather(const Graph& graph, const GraphIndex& index, const Op& op) {
  const auto gather_behind = [&](const Op& each) -> const Op* {
    const int producer = index.producer(each.inputs[0]);
    return producer >= 0 && std::holds_alternative<Gather>(graph.ops[producer].attributes)
               ? &graph.ops[producer]
               : nullptr;
  };
  if (!std::holds_alternative<Gather>(op.attributes) || gather_behind(op) == nullptr) return false;
  const auto axis = static_cast<int>(std::get<Gather>(op.attributes).axis);
  const DataType type = graph.tensors[op.inputs[0]].type;
  size_t depth = 1;
  for (const Op* inner = gather_behind(op); inner != nullptr; inner = gather_behind(*inner)) {
    // A load has so many indices: what a further gather reads lies in memory.
    if (++depth > Access{}.indexed.size()) return false;
    if (std::get<Gather>(inner->attributes).axis == axis || graph.tensors[inner->inputs[0]].type != type ||
        graph.tensors[inner->inputs[1]].dims[axis] != 1)
      return false;
  }
  return true;
}

bool is_passed_through(const Graph& graph, const GraphIndex& index, std::span<const int> ops, int gather) {
  const int y = graph.ops[gather].outputs[0];
  if (!std::holds_alternative<Gather>(graph.ops[gather].attributes) || !graph.tensors[y].is_virtual())
    return false;
  const std::span<const int> readers = index.consumers(y);
  return !readers.empty() && std::ranges::all_of(readers, [&](int reader) {
    const Op& op = graph.ops[reader];
    return contains(ops, reader) && is_gather_of_gather(graph, index, op) && op.inputs[1] != y;
  });
}

bool are_siblings(const Graph& graph, int first, int second) {
  const Op &a = graph.ops[first], &b = graph.ops[second];
  const auto dims = [&](int tensor) -> const Dims& { return graph.tensors[tensor].dims; };
  return is_contraction(a.attributes) && a.attributes == b.attributes && a.inputs[0] == b.inputs[0] &&
         dims(a.inputs[1]) == dims(b.inputs[1]) && dims(a.outputs[0]) == dims(b.outputs[0]);
}

Fusion make_fusion(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops) {
  return checked(FusionBuilder(graph, folded, ops).build());
}

Fusion make_single(const Graph& graph, int op) {
  const Attributes& attributes = graph.ops[op].attributes;
  if (const auto* concatenate = std::get_if<Concatenate>(&attributes))
    return checked(concatenate_copies(graph, op, *concatenate));
  if (std::holds_alternative<Reshape>(attributes)) return checked(reshape_copy(graph, op));
  const int ops[] = {op};
  // On its own, an op's result always leaves, whether or not anyone reads it.
  FoldedGraph folded = unfolded(graph);
  folded.index = GraphIndex(graph);
  return make_fusion(graph, folded, ops);
}

}  // namespace fusor
