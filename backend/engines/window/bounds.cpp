// Owns the question whether a text can count the places of an Expr: the bounds of its numbers, by their
// formulas.
#include "backend/engines/window/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "backend/engines/window/counting.h"
#include "codegen/text/rows/facts.h"

namespace fusor {

namespace {

// Whether lower <= place < upper is among the comparisons, with bounds that are those of elements or
// narrower.
bool is_held_inside(const Fusion& fusion, const Expr& expr, const std::vector<int>& comparisons, int place,
                    int64_t extent) {
  bool from_first = false, to_last = false;
  for (const int at : comparisons) {
    const Node& node = expr.node(at);
    if (node.kind != Node::Kind::pointwise || node.args[0] != place) continue;
    const Node& bound = expr.node(node.args[1]);
    const bool is_named = bound.kind == Node::Kind::index && bound.access.strides[bound.axis] == 0;
    const std::optional<int64_t> value =
        is_named ? std::optional(bound.access.offset) : whole_constant(fusion, bound);
    if (!value) continue;
    from_first = from_first || (node.pointwise.mode == PointwiseMode::cmp_ge && *value >= 0);
    to_last = to_last || (node.pointwise.mode == PointwiseMode::cmp_lt && *value <= extent);
  }
  return from_first && to_last;
}

struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

Bounds bounds_of_product(const Bounds& a, const Bounds& b) {
  const double products[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  if (std::ranges::any_of(products, [](double product) { return std::isnan(product); })) return {};
  return {std::ranges::min(products), std::ranges::max(products)};
}

Bounds bounds_of_pointwise(const Node& node, const std::vector<Bounds>& all) {
  const auto arg = [&](size_t i) { return all[static_cast<size_t>(node.args[i])]; };
  switch (node.pointwise.mode) {
    case PointwiseMode::identity:
      return arg(0);
    case PointwiseMode::add:
      return {arg(0).low + arg(1).low, arg(0).high + arg(1).high};
    case PointwiseMode::sub:
      return {arg(0).low - arg(1).high, arg(0).high - arg(1).low};
    case PointwiseMode::mul:
      return bounds_of_product(arg(0), arg(1));
    case PointwiseMode::div: {
      const double most = std::max(std::abs(arg(0).low), std::abs(arg(0).high));
      return {arg(0).low >= 0 && arg(1).low >= 0 ? 0 : -most, most};
    }
    case PointwiseMode::min:
      return {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
    case PointwiseMode::max:
      return {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
    case PointwiseMode::binary_select:
      return {std::min(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
    default:
      return {0, 1};  // a truth
  }
}

// Bounds of the numbers that a text counts, by their formulas.
std::vector<Bounds> bounds_of(const Fusion& fusion, const Expr& expr) {
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  std::vector<Bounds> all;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    Bounds own;
    if (node.kind == Node::Kind::index) {
      const double first = static_cast<double>(node.access.offset);
      const double last =
          first + static_cast<double>(node.access.strides[node.axis] * (expr.domain[node.axis] - 1));
      own = {std::min(first, last), std::max(first, last)};
    } else if (const std::optional<int64_t> value = whole_constant(fusion, node)) {
      own = {static_cast<double>(*value), static_cast<double>(*value)};
    } else if (node.kind == Node::Kind::pointwise && kinds[i] != CountedKind::none) {
      own = bounds_of_pointwise(node, all);
    }
    all.push_back(own);
  }
  return all;
}

}  // namespace

const Node* wide_number(const Fusion& fusion, const Expr& expr) {
  constexpr double kMost = 1 << 30;
  const std::vector<Bounds> bounds = bounds_of(fusion, expr);
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (kinds[i] != CountedKind::number) continue;
    const bool is_given = node.kind == Node::Kind::scalar && node.type == DataType::i32;
    if (!is_given && !(bounds[i].low >= -kMost && bounds[i].high <= kMost)) return &node;
  }
  return nullptr;
}

const Node* choice_beyond(const Fusion& fusion, const Expr& expr) {
  const std::vector<Bounds> bounds = bounds_of(fusion, expr);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (!is_choice_of_places(expr, static_cast<int>(i))) continue;
    const Node& load = expr.node(node.args[0]);
    const std::vector<int> comparisons = comparisons_of(expr, node.args[2]);
    for (size_t k = 0; k < load.args.size() && load.args[k] >= 0; ++k) {
      const int place = place_of_choice(expr, load.args[k]);
      const Bounds& own = bounds[static_cast<size_t>(load.args[k])];
      const int64_t extent = load.access.indexed[k].extent;
      const bool is_inside = place < 0 ? own.low >= 0 && own.high < static_cast<double>(extent)
                                       : is_held_inside(fusion, expr, comparisons, place, extent);
      if (!is_inside) return &node;
    }
  }
  return nullptr;
}

const Node* uncounted_index(const Fusion& fusion, const Expr& expr) {
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  std::vector<bool> needed(expr.nodes.size(), false);
  for (size_t i = expr.nodes.size(); i-- > 0;) {
    const Node& node = expr.nodes[i];
    if (needed[i] &&
        (kinds[i] == CountedKind::none || (node.kind == Node::Kind::scalar && !whole_constant(fusion, node))))
      return &node;
    for (const int arg : node.args) {
      if (arg < 0) continue;
      if (node.access.is_indexed() && kinds[static_cast<size_t>(arg)] != CountedKind::number)
        return &expr.node(arg);
      if (needed[i] || node.access.is_indexed()) needed[static_cast<size_t>(arg)] = true;
    }
  }
  return nullptr;
}

}  // namespace fusor
