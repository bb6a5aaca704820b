// Owns the numbers that nodes of an Expr are: whole constants, and what the host counts at a coordinate.
#include "backend/engines/window/counting.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace fusor {

std::optional<int64_t> whole_constant(const Fusion& fusion, const Node& node) {
  if (node.kind != Node::Kind::scalar) return std::nullopt;
  const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
  if (operand.memory != Memory::constant) return std::nullopt;
  if (const auto* const whole = std::get_if<int64_t>(&operand.value)) return *whole;
  const double value = std::get<double>(operand.value);
  const bool is_whole = std::abs(value) < 1e6 && value == std::trunc(value) && !std::signbit(value);
  return is_whole ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
}

WindowCounting::WindowCounting(const Fusion& fusion, const Expr& expr)
    : expr_(expr), numbers_(expr.nodes.size(), 0) {
  for (size_t i = 0; i < expr.nodes.size(); ++i)
    numbers_[i] = whole_constant(fusion, expr.nodes[i]).value_or(0);
}

void WindowCounting::count(const Dims& at) {
  for (size_t i = 0; i < expr_.nodes.size(); ++i) {
    const Node& node = expr_.nodes[i];
    if (node.kind == Node::Kind::index)
      numbers_[i] = at[node.axis] * node.access.strides[node.axis] + node.access.offset;
    else if (node.kind == Node::Kind::pointwise && !is_real(node.type))
      numbers_[i] = computed(node);
  }
}

int64_t WindowCounting::computed(const Node& node) const {
  const auto arg = [&](size_t i) { return node.args[i] < 0 ? 0 : at(node.args[i]); };
  const int64_t a = arg(0), b = arg(1), c = arg(2);
  switch (node.pointwise.mode) {
    case PointwiseMode::add:
      return a + b;
    case PointwiseMode::sub:
      return a - b;
    case PointwiseMode::mul:
      return a * b;
    case PointwiseMode::div:
      return b == 0 ? 0 : a / b;
    case PointwiseMode::min:
      return std::min(a, b);
    case PointwiseMode::max:
      return std::max(a, b);
    case PointwiseMode::cmp_ge:
      return a >= b ? 1 : 0;
    case PointwiseMode::cmp_lt:
      return a < b ? 1 : 0;
    case PointwiseMode::logical_and:
      return a != 0 && b != 0 ? 1 : 0;
    case PointwiseMode::binary_select:
      return c != 0 ? a : b;
    default:
      return a;
  }
}

}  // namespace fusor
