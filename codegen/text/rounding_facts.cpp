// Owns how values that need no rounding are found.
#include "codegen/text/rounding_facts.h"

#include "core/ops/pointwise.h"

namespace fusor {

namespace {

// How many arguments the mode chooses from, the first ones; 0: it computes.
int choices(PointwiseMode mode) {
  switch (mode) {
    case PointwiseMode::identity:
    case PointwiseMode::relu:
    case PointwiseMode::neg:
    case PointwiseMode::abs:
      return 1;
    case PointwiseMode::max:
    case PointwiseMode::min:
    case PointwiseMode::binary_select:
      return 2;
    default:
      return 0;
  }
}

bool is_scalar(const Node& node) { return node.kind == Node::Kind::scalar && node.type == DataType::f32; }

}  // namespace

bool chooses_elements(const Expr& expr, const Node& node) {
  const bool has_signs = node.type == DataType::f16 || node.type == DataType::bf16;
  if (node.kind != Node::Kind::pointwise || !has_signs || node.pointwise.compute != DataType::f32 ||
      !has_default_parameters(node.pointwise))
    return false;
  const int count = choices(node.pointwise.mode);
  for (int i = 0; i < count; ++i) {
    const Node& from = expr.node(node.args[static_cast<size_t>(i)]);
    const bool holds_elements = from.kind == Node::Kind::load || from.kind == Node::Kind::pointwise;
    if (!(holds_elements && from.type == node.type) && !is_scalar(from)) return false;
  }
  return count > 0;
}

bool is_chosen_scalar(const Expr& expr, const Node& node, int i) {
  return i < choices(node.pointwise.mode) && is_scalar(expr.node(node.args[static_cast<size_t>(i)]));
}

}  // namespace fusor
