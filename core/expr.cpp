// Owns the transformations of an Expr's domain.
#include "core/expr.h"

#include <algorithm>
#include <limits>

namespace fusor {

namespace {

/// Calls visit(access) for every access that walks the domain.
template <class E, class Visitor>
void for_each_access(E& expr, Visitor&& visit) {
  for (auto& node : expr.nodes)
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::index) visit(node.access);
  for (auto& result : expr.results) visit(result.access);
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

/// The access whose memory order the domain takes: the first elementwise store, else the load that walks most
/// axes.
const Access* leading_access(const Expr& expr) {
  for (const Result& result : expr.results)
    if (!result.reduction) return &result.access;
  const Access* leading = nullptr;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && (!leading || walked_axes(node.access) > walked_axes(*leading)))
      leading = &node.access;
  return leading;
}

/// Which results reduce over the axis: two axes merge only where this is the same for both.
uint64_t reducing_results(const Expr& expr, int axis) {
  uint64_t results = 0;
  for (size_t i = 0; i < expr.results.size(); ++i)
    if (expr.results[i].reduced >> axis & 1) results |= uint64_t{1} << (i % 64);
  return results;
}

bool walked_as_one(const Expr& expr, int outer, int inner) {
  if (reducing_results(expr, outer) != reducing_results(expr, inner)) return false;
  bool as_one = true;
  for_each_access(expr, [&](const Access& access) {
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
  for_each_access(expr, [&](Access& access) { access.strides.erase(outer); });
  for (Node& node : expr.nodes)
    if (node.kind == Node::Kind::index && node.axis > outer) --node.axis;
  for (Result& result : expr.results)
    result.reduced = (result.reduced & below) | (result.reduced >> 1 & ~below);
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

Expr select_axes(const Expr& expr, const Dims& order) {
  Expr selected = expr;
  std::array<int, kMaxRank> position;
  position.fill(0);
  selected.domain = {};
  for (int i = 0; i < order.rank(); ++i) {
    position[static_cast<size_t>(order[i])] = i;
    selected.domain.push_back(expr.domain[static_cast<int>(order[i])]);
  }
  for_each_access(selected, [&](Access& access) {
    Strides strides;
    for (int64_t axis : order) strides.push_back(access.strides[static_cast<int>(axis)]);
    access.strides = strides;
  });
  for (Node& node : selected.nodes)
    if (node.kind == Node::Kind::index) node.axis = position[static_cast<size_t>(node.axis)];
  for (size_t i = 0; i < expr.results.size(); ++i) {
    selected.results[i].reduced = 0;
    for (int k = 0; k < order.rank(); ++k)
      selected.results[i].reduced |= (expr.results[i].reduced >> order[k] & 1) << k;
  }
  return selected;
}

std::optional<Expr> group_axes(const Expr& expr, std::span<const Dims> groups) {
  Expr grouped = expr;
  grouped.domain = {};
  for (const Dims& group : groups) grouped.domain.push_back(element_count(taken(expr.domain, group)));
  bool fits = true;
  for_each_access(grouped, [&](Access& access) { fits = fits && group_access(access, expr.domain, groups); });
  for (Node& node : grouped.nodes) {
    if (node.kind != Node::Kind::index) continue;
    const auto axis = group_of_its_own(node.axis, expr.domain, groups);
    if (!axis) return std::nullopt;
    node.axis = *axis;
  }
  for (Result& result : grouped.results) {
    const auto mask = group_mask(result.reduced, expr.domain, groups);
    if (!mask) return std::nullopt;
    result.reduced = *mask;
  }
  if (!fits) return std::nullopt;
  return grouped;
}

Expr merge_axes(const Expr& expr, uint32_t keep) {
  Expr merged = expr;
  if (merged.domain.empty()) {
    merged.domain.push_back(1);
    for_each_access(merged, [](Access& access) { access.strides.push_back(0); });
  }
  for_each_access(merged, [&](Access& access) {
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
