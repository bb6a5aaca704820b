// Owns what follows from an Expr's nodes, and the transformations of its domain.
#include "core/expr.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "core/fail.h"

namespace fusor {

namespace {

/// Calls visit(access) for every access that walks the domain.
template <class E, class Visitor>
void for_each_walk(E& expr, Visitor&& visit) {
  for (auto& node : expr.nodes)
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::index) visit(node.access);
  for (auto& store : expr.stores) visit(store.access);
}

uint32_t axes_named_by_index_nodes(const Expr& expr) {
  uint32_t named = 0;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::index) named |= 1u << node.axis;
  return named;
}

int walked_axes(const Access& access) {
  return static_cast<int>(std::ranges::count_if(access.strides, [](int64_t stride) { return stride != 0; }));
}

/// Axes along which an access has a stride.
uint32_t walked_by(const Access& access) {
  uint32_t axes = 0;
  for (int axis = 0; axis < access.strides.rank(); ++axis)
    if (access.strides[axis] != 0) axes |= 1u << axis;
  return axes;
}

/// Axes of more than one element.
uint32_t real_axes(const Dims& domain) {
  uint32_t axes = 0;
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (domain[axis] != 1) axes |= 1u << axis;
  return axes;
}

/// The access whose memory order the domain takes: the first elementwise store that goes through no index,
/// else the load that walks most axes.
const Access* leading_access(const Expr& expr) {
  for (const Store& store : expr.stores)
    if (!reduction_of(expr, store) && !store.access.is_indexed()) return &store.access;
  const Access* leading = nullptr;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && (!leading || walked_axes(node.access) > walked_axes(*leading)))
      leading = &node.access;
  return leading;
}

/// Whether every reduction runs over both axes or over neither.
bool reduced_alike(const Expr& expr, int a, int b) {
  return std::ranges::all_of(expr.nodes, [&](const Node& node) {
    return node.kind != Node::Kind::reduce || (node.over >> a & 1) == (node.over >> b & 1);
  });
}

bool walked_as_one(const Expr& expr, int outer, int inner) {
  if (!reduced_alike(expr, outer, inner)) return false;
  bool as_one = true;
  for_each_walk(expr, [&](const Access& access) {
    as_one &= access.strides[outer] == access.strides[inner] * expr.domain[inner];
  });
  return as_one;
}

/// Removes `outer`, whose steps become further steps of its inner neighbour.
void merge_into_inner(Expr& expr, int outer) {
  const int inner = outer + 1;
  const uint32_t below = (1u << outer) - 1;
  expr.domain[inner] *= expr.domain[outer];
  expr.domain.erase(outer);
  for_each_walk(expr, [&](Access& access) { access.strides.erase(outer); });
  for (Node& node : expr.nodes) {
    if (node.kind == Node::Kind::index && node.axis > outer) --node.axis;
    node.over = (node.over & below) | (node.over >> 1 & ~below);
  }
}

Dims taken(const Dims& values, const Dims& axes) {
  Dims some;
  for (const int64_t axis : axes) some.push_back(values[static_cast<int>(axis)]);
  return some;
}

bool group_access(Access& access, const Dims& domain, std::span<const Dims> groups) {
  Strides strides;
  for (const Dims& group : groups) {
    const auto stride = one_stride(taken(domain, group), taken(access.strides, group));
    if (!stride) return false;
    strides.push_back(*stride);
  }
  access.strides = strides;
  return true;
}

// The group that an axis has for itself but for axes of one element, or nothing.
std::optional<int> group_of_its_own(int axis, const Dims& domain, std::span<const Dims> groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (std::ranges::find(groups[i], axis) == groups[i].end()) continue;
    if (element_count(taken(domain, groups[i])) != domain[axis]) return std::nullopt;
    return static_cast<int>(i);
  }
  return std::nullopt;
}

// The mask over groups, or nothing where a group is reduced in part.
std::optional<uint32_t> group_mask(uint32_t mask, const Dims& domain, std::span<const Dims> groups) {
  uint32_t grouped = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    bool any = false, all = true;
    for (const int64_t axis : groups[i]) {
      if (domain[static_cast<int>(axis)] == 1) continue;
      const bool reduced = (mask >> axis & 1) != 0;
      any |= reduced;
      all &= reduced;
    }
    if (any && !all) return std::nullopt;
    if (any) grouped |= 1u << i;
  }
  return grouped;
}

}  // namespace

bool has_default_parameters(const Pointwise& pointwise) {
  Pointwise plain;
  plain.mode = pointwise.mode;
  plain.compute = pointwise.compute;
  plain.axis = pointwise.axis;
  return pointwise == plain;
}

const Node* reduction_of(const Expr& expr, const Store& store) {
  if (store.node < 0) return nullptr;
  const Node& node = expr.node(store.node);
  return node.kind == Node::Kind::reduce ? &node : nullptr;
}

uint32_t reduced_axes(const Expr& expr, const Node& reduction) {
  return reduction.over & real_axes(expr.domain);
}

std::vector<uint32_t> varying_axes(const Expr& expr) {
  const uint32_t all = real_axes(expr.domain);
  std::vector<uint32_t> axes;
  for (const Node& node : expr.nodes) {
    uint32_t varies = 0;
    if (node.kind == Node::Kind::input) varies = all;
    if (node.kind == Node::Kind::load) varies = walked_by(node.access);
    if (node.kind == Node::Kind::index && walked_by(node.access) != 0) varies = 1u << node.axis;
    for (const int arg : node.args)
      if (arg >= 0) varies |= axes[static_cast<size_t>(arg)];
    axes.push_back(varies & all & ~node.over);
  }
  return axes;
}

std::vector<int> phases(const Expr& expr) {
  std::vector<int> levels;
  for (const Node& node : expr.nodes) {
    int level = 0;
    for (const int arg : node.args)
      if (arg >= 0) level = std::max(level, levels[static_cast<size_t>(arg)]);
    levels.push_back(level + (node.kind == Node::Kind::reduce ? 1 : 0));
  }
  return levels;
}

bool feeds_back(const Expr& expr) {
  const auto is_total = [&](int at) { return at >= 0 && expr.node(at).kind == Node::Kind::reduce; };
  return std::ranges::any_of(expr.yields, is_total) || std::ranges::any_of(expr.nodes, [&](const Node& node) {
           return std::ranges::any_of(node.args, is_total);
         });
}

Expr without_dead_nodes(const Expr& expr) {
  std::vector<bool> live(expr.nodes.size(), false);
  for (const Store& store : expr.stores) {
    live[static_cast<size_t>(store.node)] = true;
    if (store.index >= 0) live[static_cast<size_t>(store.index)] = true;
  }
  for (const int node : expr.yields) live[static_cast<size_t>(node)] = true;
  for (size_t i = expr.nodes.size(); i-- > 0;)
    for (const int arg : expr.nodes[i].args)
      if (live[i] && arg >= 0) live[static_cast<size_t>(arg)] = true;

  Expr left{.domain = expr.domain, .nodes = {}, .stores = expr.stores, .yields = expr.yields};
  std::vector<int> position(expr.nodes.size(), -1);
  const auto move = [&](int& node) {
    if (node >= 0) node = position[static_cast<size_t>(node)];
  };
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    if (!live[i]) continue;
    position[i] = static_cast<int>(left.nodes.size());
    left.nodes.push_back(expr.nodes[i]);
    std::ranges::for_each(left.nodes.back().args, move);
  }
  for (Store& store : left.stores) {
    move(store.node);
    move(store.index);
  }
  std::ranges::for_each(left.yields, move);
  return left;
}

void validate(const Expr& expr) {
  const auto require = [](bool holds, std::string_view what, size_t at) {
    if (!holds) fail(ErrorKind::internal, "an expression is broken: {} ({})", what, at);
  };
  const int rank = expr.domain.rank();
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    for (const int arg : node.args) require(arg < static_cast<int>(i), "an argument comes after its user", i);
    const bool reduces = node.kind == Node::Kind::reduce;
    require(reduces || node.over == 0, "only a reduction runs over axes", i);
    require(!reduces || node.args[0] >= 0, "a reduction has no argument", i);
    require(node.over >> rank == 0, "a reduction runs over axes outside of the domain", i);
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::index)
      require(node.access.strides.rank() == rank, "an access does not walk the domain", i);
    for (size_t k = 0; k < node.args.size() && node.kind == Node::Kind::load; ++k)
      require((node.args[k] >= 0) == (node.access.indexed[k].extent > 0), "a load lacks an index", i);
    if (node.kind == Node::Kind::index)
      require(node.axis >= 0 && node.axis < rank, "an index has no axis", i);
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::scalar)
      require(node.access.operand >= 0, "a load has no operand", i);
  }
  const auto is_node = [&](int at) { return at >= 0 && std::cmp_less(at, expr.nodes.size()); };
  const std::vector<uint32_t> axes = varying_axes(expr);
  for (size_t i = 0; i < expr.stores.size(); ++i) {
    const Store& store = expr.stores[i];
    require(is_node(store.node), "a store has no node", i);
    require(store.access.strides.rank() == rank, "a store does not walk the domain", i);
    require((store.index >= 0) == store.access.is_indexed(), "a store lacks an index", i);
    require(store.access.indexed[1].extent == 0, "a store goes through two indices", i);
    require(store.index < 0 || is_node(store.index), "the index of a store is no node", i);
    const uint32_t named = store.index < 0 ? 0 : axes[static_cast<size_t>(store.index)];
    require((axes[static_cast<size_t>(store.node)] & ~walked_by(store.access) & ~named) == 0,
            "a store walks less than its value varies along", i);
  }
  for (size_t i = 0; i < expr.yields.size(); ++i) require(is_node(expr.yields[i]), "a yield has no node", i);
}

Expr select_axes(const Expr& expr, const Dims& order) {
  Expr selected = expr;
  std::array<int, kMaxRank> position;
  position.fill(0);
  selected.domain = {};
  for (int i = 0; i < order.rank(); ++i) {
    position[static_cast<size_t>(order[i])] = i;
    selected.domain.push_back(expr.domain[static_cast<int>(order[i])]);
  }
  for_each_walk(selected, [&](Access& access) {
    Strides strides;
    for (int64_t axis : order) strides.push_back(access.strides[static_cast<int>(axis)]);
    access.strides = strides;
  });
  for (Node& node : selected.nodes) {
    if (node.kind == Node::Kind::index) node.axis = position[static_cast<size_t>(node.axis)];
    const uint32_t over = node.over;
    node.over = 0;
    for (int k = 0; k < order.rank(); ++k) node.over |= (over >> order[k] & 1) << k;
  }
  return selected;
}

std::optional<Expr> group_axes(const Expr& expr, std::span<const Dims> groups) {
  Expr grouped = expr;
  grouped.domain = {};
  for (const Dims& group : groups) grouped.domain.push_back(element_count(taken(expr.domain, group)));
  bool fits = true;
  for_each_walk(grouped, [&](Access& access) { fits = fits && group_access(access, expr.domain, groups); });
  for (Node& node : grouped.nodes) {
    if (node.kind != Node::Kind::index) continue;
    const auto axis = group_of_its_own(node.axis, expr.domain, groups);
    if (!axis) return std::nullopt;
    node.axis = *axis;
  }
  for (Node& node : grouped.nodes) {
    const auto mask = group_mask(node.over, expr.domain, groups);
    if (!mask) return std::nullopt;
    node.over = *mask;
  }
  if (!fits) return std::nullopt;
  return grouped;
}

std::optional<Expr> split_axis(const Expr& expr, int axis, int64_t inner) {
  if (expr.domain[axis] % inner != 0 || (axes_named_by_index_nodes(expr) >> axis & 1) != 0)
    return std::nullopt;
  const uint32_t up_to = (2u << axis) - 1;
  Expr split = expr;
  for (Node& node : split.nodes) {
    if ((node.over >> axis & 1) != 0) return std::nullopt;
    node.over = (node.over & up_to) | (node.over & ~up_to) << 1;
    if (node.kind == Node::Kind::index && node.axis > axis) ++node.axis;
  }
  Dims domain;
  for (int i = 0; i < expr.domain.rank(); ++i) {
    if (i == axis) domain.push_back(expr.domain[i] / inner);
    domain.push_back(i == axis ? inner : expr.domain[i]);
  }
  split.domain = domain;
  for_each_walk(split, [&](Access& access) {
    Strides strides;
    for (int i = 0; i < expr.domain.rank(); ++i) {
      if (i == axis) strides.push_back(access.strides[i] * inner);
      strides.push_back(access.strides[i]);
    }
    access.strides = strides;
  });
  return split;
}

Expr merge_axes(const Expr& expr, uint32_t keep) {
  Expr merged = expr;
  if (merged.domain.empty()) {
    merged.domain.push_back(1);
    for_each_walk(merged, [](Access& access) { access.strides.push_back(0); });
  }
  for_each_walk(merged, [&](Access& access) {
    for (int axis = 0; axis < merged.domain.rank(); ++axis)
      if (merged.domain[axis] == 1) access.strides[axis] = 0;
  });

  const uint32_t fixed = keep | axes_named_by_index_nodes(merged);
  Dims order;
  for (int axis = 0; axis < merged.domain.rank(); ++axis)
    if (merged.domain[axis] != 1 || (fixed >> axis & 1)) order.push_back(axis);
  if (order.empty()) order.push_back(0);
  if (const Access* leading = leading_access(merged)) {
    // Axes that the leading access does not walk go outermost.
    const auto distance = [&](int64_t axis) {
      const int64_t stride = leading->strides[static_cast<int>(axis)];
      return stride == 0 ? std::numeric_limits<int64_t>::max() : stride;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return distance(a) > distance(b); });
  }
  merged = select_axes(merged, order);

  for (int outer = merged.domain.rank() - 2; outer >= 0; --outer) {
    const auto is_fixed = [&](int axis) { return (fixed >> order[axis] & 1) != 0; };
    if (is_fixed(outer) || is_fixed(outer + 1) || !walked_as_one(merged, outer, outer + 1)) continue;
    merge_into_inner(merged, outer);
    order.erase(outer);
  }
  return merged;
}

}  // namespace fusor
