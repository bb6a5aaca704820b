// Owns how attention reads masks and scales: conditions as bounds on keys, constants as factors.
#include "backend/engines/sm90/attention/masks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace fusor::attention {

namespace {

// More bounds of one kind than a mask of the usual kinds has: causal, a window, a length.
constexpr size_t kMostBounds = 4;
// Coordinates and bounds beyond this are left to the general way of masking.
constexpr int64_t kFarthest = 1 << 23;
// Masks below this stand for minus infinity, which people avoid.
constexpr double kVeryLow = -1e30;

}  // namespace

bool is_pointwise(const Node& node, PointwiseMode mode) {
  return node.kind == Node::Kind::pointwise && node.pointwise.mode == mode;
}

int behind_identity(const Expr& expr, int at) {
  while (is_pointwise(expr.node(at), PointwiseMode::identity) &&
         expr.node(expr.node(at).args[0]).type == expr.node(at).type)
    at = expr.node(at).args[0];
  return at;
}

int readers_of(const Expr& expr, int at) {
  int readers = 0;
  for (const Node& node : expr.nodes) readers += static_cast<int>(std::ranges::count(node.args, at));
  return readers;
}
bool is_read_once(const Expr& expr, int at) { return readers_of(expr, at) == 1; }

std::optional<double> constant(const Fusion& fusion, const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (node.kind != Node::Kind::scalar) return std::nullopt;
  const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
  if (operand.memory != Memory::constant) return std::nullopt;
  return std::visit([](auto value) { return static_cast<double>(value); }, operand.value);
}

namespace {

// --- Masks ---

Line combined(const Line& a, const Line& b, int64_t sign) {
  return {a.row + sign * b.row, a.key + sign * b.key, a.offset + sign * b.offset};
}

std::optional<Line> line_of_index(const Expr& expr, const Node& node) {
  const int64_t scale = node.access.strides.rank() > node.axis ? node.access.strides[node.axis] : 1;
  if (node.axis == expr.domain.rank() - 2) return Line{scale, 0, node.access.offset};
  if (node.axis == expr.domain.rank() - 1) return Line{0, scale, node.access.offset};
  return std::nullopt;
}

// Whether two nodes are one value: the same, or loads of the same elements.
bool are_same(const Expr& expr, int a, int b) {
  const Node &first = expr.node(a), &second = expr.node(b);
  return a == b || (first.kind == Node::Kind::load && second.kind == Node::Kind::load &&
                    first.type == second.type && first.access == second.access && first.args == second.args);
}

}  // namespace

std::optional<Line> line_of(const Fusion& fusion, const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (node.type != DataType::i32 && node.type != DataType::i64 && node.type != DataType::f32)
    return std::nullopt;
  if (node.kind == Node::Kind::index) return line_of_index(expr, node);
  if (const auto value = constant(fusion, expr, at)) {
    if (*value != std::floor(*value) || std::fabs(*value) > kFarthest) return std::nullopt;
    return Line{0, 0, static_cast<int64_t>(*value)};
  }
  if (node.kind != Node::Kind::pointwise) return std::nullopt;
  const PointwiseMode mode = node.pointwise.mode;
  if (mode == PointwiseMode::identity) return line_of(fusion, expr, node.args[0]);
  if (mode != PointwiseMode::add && mode != PointwiseMode::sub) return std::nullopt;
  // The diagonal through the last query and key is that through the first ones where lengths are equal.
  const bool is_nothing = mode == PointwiseMode::sub && node.type != DataType::f32 &&
                          are_same(expr, argument(expr, at, 0), argument(expr, at, 1));
  if (is_nothing) return Line{};
  const auto a = line_of(fusion, expr, node.args[0]), b = line_of(fusion, expr, node.args[1]);
  if (!a || !b) return std::nullopt;
  return combined(*a, *b, mode == PointwiseMode::add ? 1 : -1);
}

namespace {

// Adds the bound that `line` >= 0 is; false where it is none.
bool add_bound(const Line& line, Bounds& bounds) {
  if (std::max(std::abs(line.row), std::abs(line.offset)) > kFarthest || std::abs(line.row) > 1) return false;
  if (line.key == 1) bounds.lower.push_back({-line.row, -line.offset});
  if (line.key == -1) bounds.upper.push_back({line.row, line.offset});
  return std::abs(line.key) == 1;
}

}  // namespace

bool add_condition(const Fusion& fusion, const Expr& expr, int at, bool truth, Bounds& bounds) {
  at = behind_identity(expr, at);
  const Node& node = expr.node(at);
  if (node.kind != Node::Kind::pointwise) return false;
  const PointwiseMode mode = node.pointwise.mode;
  if (mode == PointwiseMode::logical_not) return add_condition(fusion, expr, node.args[0], !truth, bounds);
  if (mode == (truth ? PointwiseMode::logical_and : PointwiseMode::logical_or))
    return add_condition(fusion, expr, node.args[0], truth, bounds) &&
           add_condition(fusion, expr, node.args[1], truth, bounds);
  const bool greater = mode == PointwiseMode::cmp_ge || mode == PointwiseMode::cmp_gt;
  const bool less = mode == PointwiseMode::cmp_le || mode == PointwiseMode::cmp_lt;
  if (!greater && !less) return false;
  const auto a = line_of(fusion, expr, node.args[0]), b = line_of(fusion, expr, node.args[1]);
  if (!a || !b) return false;
  Line line = greater == truth ? combined(*a, *b, -1) : combined(*b, *a, -1);
  const bool or_equal = mode == PointwiseMode::cmp_ge || mode == PointwiseMode::cmp_le;
  if (or_equal != truth) --line.offset;
  return add_bound(line, bounds);
}

void add_bounds_of(const Fusion& fusion, const Expr& expr, int at, bool truth, Bounds& bounds) {
  Bounds found = bounds;
  if (add_condition(fusion, expr, at, truth, found)) {
    bounds = std::move(found);
    return;
  }
  const Node& node = expr.node(behind_identity(expr, at));
  if (!is_pointwise(node, truth ? PointwiseMode::logical_and : PointwiseMode::logical_or)) return;
  for (const size_t i : {size_t{0}, size_t{1}}) add_bounds_of(fusion, expr, node.args[i], truth, bounds);
}

bool asks(const Expr& expr, int at, int condition) {
  at = behind_identity(expr, at);
  if (at == condition) return true;
  return is_pointwise(expr.node(at), PointwiseMode::logical_and) &&
         (asks(expr, expr.node(at).args[0], condition) || asks(expr, expr.node(at).args[1], condition));
}

void assume(Expr& expr, int condition) {
  for (int at = 0; at < std::ssize(expr.nodes); ++at) {
    Node& node = expr.node(at);
    if (is_pointwise(node, PointwiseMode::logical_and)) {
      const int first = argument(expr, at, 0), second = argument(expr, at, 1);
      if (first != condition && second != condition) continue;
      node.pointwise.mode = PointwiseMode::identity;
      node.args = {first == condition ? second : first, -1, -1};
    } else if (is_pointwise(node, PointwiseMode::binary_select) && argument(expr, at, 2) == condition) {
      node.pointwise.mode = PointwiseMode::identity;
      node.args = {node.args[0], -1, -1};
    }
  }
}

bool fit(const Bounds& bounds) { return std::max(bounds.lower.size(), bounds.upper.size()) <= kMostBounds; }

namespace {

// Takes what is bounds out of a conjunction that nothing else reads; whether nothing remains of it.
bool take_bounds(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  Bounds found = bounds;
  if (add_condition(fusion, expr, at, true, found)) {
    bounds = std::move(found);
    return true;
  }
  if (!is_pointwise(expr.node(at), PointwiseMode::logical_and) || !is_read_once(expr, at)) return false;
  const std::array<int, 3> args = expr.node(at).args;
  const bool first = take_bounds(fusion, expr, args[0], bounds);
  const bool second = take_bounds(fusion, expr, args[1], bounds);
  if (first || second) {
    expr.node(at).pointwise.mode = PointwiseMode::identity;
    expr.node(at).args = {first ? args[1] : args[0], -1, -1};
  }
  return false;
}

// Every row sees a key. The number of keys that row q sees is concave in q, so the ends decide.
bool all_rows_see(const Bounds& bounds, int64_t rows, int64_t keys) {
  for (const int64_t row : {int64_t{0}, rows - 1}) {
    int64_t first = 0, last = keys - 1;
    for (const KeyBound& bound : bounds.lower) first = std::max(first, bound.slope * row + bound.offset);
    for (const KeyBound& bound : bounds.upper) last = std::min(last, bound.slope * row + bound.offset);
    if (first > last) return false;
  }
  return true;
}

bool hides(const Fusion& fusion, const Expr& expr, int at, const Bounds& bounds) {
  const auto value = constant(fusion, expr, at);
  if (!value) return false;
  const int rank = expr.domain.rank();
  return std::isinf(*value)
             ? *value < 0
             : *value <= kVeryLow && all_rows_see(bounds, expr.domain[rank - 2], expr.domain[rank - 1]);
}

// The select's other value where its condition is bounds and it hides keys that they leave out. Of a
// condition that is more than bounds, these are taken out.
std::optional<int> behind_select(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select)) return std::nullopt;
  const int condition = expr.node(at).args[2];
  for (const bool truth : {true, false}) {
    Bounds found = bounds;
    if (!add_condition(fusion, expr, condition, truth, found) || !fit(found)) continue;
    if (!hides(fusion, expr, argument(expr, at, truth ? 1 : 0), found)) continue;
    bounds = std::move(found);
    return argument(expr, at, truth ? 0 : 1);
  }
  const auto hidden = constant(fusion, expr, argument(expr, at, 1));
  if (hidden != -std::numeric_limits<double>::infinity() || !is_read_once(expr, condition))
    return std::nullopt;
  Expr taken = expr;
  Bounds found = bounds;
  take_bounds(fusion, taken, condition, found);
  if (fit(found)) {
    expr = std::move(taken);
    bounds = std::move(found);
  }
  return std::nullopt;
}

}  // namespace

int behind_masks(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  for (at = behind_identity(expr, at);;) {
    std::optional<int> inner = behind_select(fusion, expr, at, bounds);
    for (const size_t mask : {size_t{0}, size_t{1}}) {
      if (inner || !is_pointwise(expr.node(at), PointwiseMode::add)) continue;
      const auto value = behind_select(fusion, expr, argument(expr, at, mask), bounds);
      if (value && constant(fusion, expr, *value) == 0.0) inner = argument(expr, at, 1 - mask);
    }
    if (!inner) return at;
    at = *inner;
  }
}

// --- Scale ---

namespace {

bool is_whole_product(const Node& node, int input) {
  return node.kind == Node::Kind::input && node.input == input && node.type == DataType::f32;
}

}  // namespace

std::optional<Factor> factor_at(const Fusion& fusion, const Expr& expr, int at) {
  if (const auto value = constant(fusion, expr, at)) return Factor{.constant = *value, .node = at};
  const Node& node = expr.node(at);
  if (node.type != DataType::f32) return std::nullopt;
  if (node.kind == Node::Kind::scalar) return Factor{.node = at, .operand = node.access.operand};
  if (!is_pointwise(node, PointwiseMode::max)) return std::nullopt;
  const auto scalar = factor_at(fusion, expr, argument(expr, at, 0));
  const auto least = constant(fusion, expr, argument(expr, at, 1));
  if (!scalar || scalar->is_known() || !std::isinf(scalar->least) || !least) return std::nullopt;
  return Factor{.node = scalar->node, .operand = scalar->operand, .least = *least};
}

std::optional<Factor> factor_of(const Fusion& fusion, const Expr& expr, int score, int input) {
  const Node& node = expr.node(score);
  if (is_whole_product(node, input)) return Factor{};
  if (node.kind != Node::Kind::pointwise || node.type != DataType::f32) return std::nullopt;
  const bool divides = node.pointwise.mode == PointwiseMode::div;
  if (!divides && node.pointwise.mode != PointwiseMode::mul) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (divides && i == 1) continue;
    auto factor = factor_at(fusion, expr, argument(expr, score, 1 - i));
    if (!factor || !is_whole_product(expr.node(argument(expr, score, i)), input)) continue;
    if (divides && !factor->is_known()) continue;
    if (divides) factor->constant = 1 / factor->constant;
    if (!factor->is_known() || std::isfinite(factor->constant)) return factor;
  }
  return std::nullopt;
}

std::optional<double> scale_of(const Fusion& fusion, const Expr& expr, int score, int input) {
  const auto factor = factor_of(fusion, expr, score, input);
  if (!factor || !factor->is_known() || !factor->is_positive()) return std::nullopt;
  return factor->constant;
}

}  // namespace fusor::attention
