// Owns which totals and stores share a walk, and the Expr of each.
#include "backend/reference/walks.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backend/reference/values.h"

namespace fusor::reference {

namespace {

// What one walk over `axes` does: totals over the axes in `over`, and stores.
struct Part {
  uint32_t over = 0;
  uint32_t axes = 0;
  std::vector<Store> stores = {};
  std::vector<int> held = {};  // reduce nodes whose totals a later walk needs
};

uint32_t walked_by(const Access& access) {
  uint32_t axes = 0;
  for (int axis = 0; axis < access.strides.rank(); ++axis)
    if (access.strides[axis] != 0) axes |= 1u << axis;
  return axes;
}

class Splitter {
 public:
  Splitter(const Expr& expr, int operands, Reading reading)
      : expr_(without_dead_nodes(without_yields(expr))),
        operands_(operands),
        reading_(reading),
        phases_(phases(expr_)),
        varying_(varying_axes(expr_)) {
    for (int axis = 0; axis < expr_.domain.rank(); ++axis)
      if (expr_.domain[axis] != 1) all_axes_ |= 1u << axis;
  }

  Walks split() {
    const int last = phases_.empty() ? 0 : *std::ranges::max_element(phases_);
    for (int phase = 0; phase <= last; ++phase) {
      std::vector<Part> parts;
      for (int at = 0; at < std::ssize(expr_.nodes); ++at)
        if (expr_.node(at).kind == Node::Kind::reduce && phase_of(at) == phase + 1) reduce(at, parts);
      for (const Store& store : expr_.stores)
        if (!is_direct(store) && phase_of(store) == phase) store_elementwise(store, parts);
      for (const Part& part : parts) add_walk(part);
    }
    return std::move(walks_);
  }

 private:
  static Expr without_yields(Expr expr) {
    expr.yields.clear();
    return expr;
  }
  int phase_of(int node) const { return phases_[static_cast<size_t>(node)]; }
  int phase_of(const Store& store) const {
    return std::max(phase_of(store.node), store.index < 0 ? 0 : phase_of(store.index));
  }
  uint32_t real_axes_of(const Access& access) const { return walked_by(access) & all_axes_; }

  // Whether totals are stored by the walk that reduces: once each. Those that an index places are stored by a
  // walk behind it.
  bool is_direct(const Store& store) const {
    if (store.index >= 0) return false;
    const Node* const total = reduction_of(expr_, store);
    return total != nullptr && (real_axes_of(store.access) & total->over) == 0;
  }

  bool is_needed_again(int total) const {
    return std::ranges::any_of(expr_.nodes,
                               [&](const Node& node) { return std::ranges::count(node.args, total) > 0; }) ||
           std::ranges::any_of(expr_.stores, [&](const Store& store) {
             return store.index == total || (store.node == total && !is_direct(store));
           });
  }

  void reduce(int at, std::vector<Part>& parts) const {
    const Node& node = expr_.node(at);
    const uint32_t over = node.over & all_axes_;
    std::vector<Store> stores;
    uint32_t axes = over | varying_[static_cast<size_t>(node.args[0])];
    for (const Store& store : expr_.stores) {
      if (store.node != at || !is_direct(store)) continue;
      stores.push_back(store);
      axes |= real_axes_of(store.access);
    }
    const auto same = [&](const Part& part) { return part.over == over && part.axes == axes; };
    auto part = std::ranges::find_if(parts, same);
    if (part == parts.end()) part = parts.insert(parts.end(), Part{over, axes});
    part->stores.insert(part->stores.end(), stores.begin(), stores.end());
    if (is_needed_again(at)) part->held.push_back(at);
  }

  // Beside totals of the same axes, where there are any.
  void store_elementwise(const Store& store, std::vector<Part>& parts) const {
    uint32_t axes = real_axes_of(store.access);
    if (store.index >= 0) axes |= varying_[static_cast<size_t>(store.index)];
    auto part = std::ranges::find(parts, axes, &Part::axes);
    if (part == parts.end()) part = parts.insert(parts.end(), Part{0, axes});
    part->stores.push_back(store);
  }

  void add_walk(const Part& part) {
    Expr walk = expr_;
    walk.stores = part.stores;
    for (const Totals& totals : walks_.totals)
      load_totals(walk.nodes[static_cast<size_t>(totals.node)], totals);
    for (const int at : part.held) walk.stores.push_back(held_in_room(at, part));
    walk = without_dead_nodes(walk);
    if (part.axes != all_axes_) walk = select_axes(walk, axes_in(part.axes));
    walks_.exprs.push_back(std::move(walk));
  }

  Store held_in_room(int at, const Part& part) {
    Totals totals{.node = at, .operand = operands_++, .axes = part.axes & ~part.over};
    totals.type = held_type(expr_.node(at).reduction.compute, reading_);
    for (const int64_t axis : axes_in(totals.axes)) totals.elements *= expr_.domain[static_cast<int>(axis)];
    walks_.totals.push_back(totals);
    return {.node = at, .type = totals.type, .access = access_to(totals)};
  }

  void load_totals(Node& node, const Totals& totals) const {
    node.kind = Node::Kind::load;
    node.access = access_to(totals);
    node.over = 0;
    node.args = {-1, -1, -1};
  }

  Access access_to(const Totals& totals) const {
    Access access;
    access.operand = totals.operand;
    access.strides = Dims::filled(expr_.domain.rank(), 0);
    int64_t step = 1;
    for (int axis = expr_.domain.rank() - 1; axis >= 0; --axis) {
      if ((totals.axes >> axis & 1) == 0) continue;
      access.strides[axis] = step;
      step *= expr_.domain[axis];
    }
    return access;
  }

  Dims axes_in(uint32_t mask) const {
    Dims axes;
    for (int axis = 0; axis < expr_.domain.rank(); ++axis)
      if (mask >> axis & 1) axes.push_back(axis);
    return axes;
  }

  const Expr expr_;
  int operands_;
  Reading reading_;
  uint32_t all_axes_ = 0;          // of more than one element
  std::vector<int> phases_;        // by node
  std::vector<uint32_t> varying_;  // by node
  Walks walks_;
};

}  // namespace

Walks walks_of(const Expr& expr, int operands, Reading reading) {
  return Splitter(expr, operands, reading).split();
}

}  // namespace fusor::reference
