// Owns the tidying of an Expr before it is read as windows.
#include "backend/engines/window/tidy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "backend/engines/window/counting.h"

namespace fusor {

namespace {

constexpr int64_t kMostNamed = 16;

// The same node twice is one.
Expr without_twins(const Expr& expr) {
  Expr unique{.domain = expr.domain, .nodes = {}, .stores = expr.stores, .yields = expr.yields};
  std::vector<int> place(expr.nodes.size());
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    Node node = expr.nodes[i];
    for (int& arg : node.args)
      if (arg >= 0) arg = place[static_cast<size_t>(arg)];
    const auto is_twin = [&](const Node& other) {
      return other.kind == node.kind && other.type == node.type && other.input == node.input &&
             other.access == node.access && other.axis == node.axis && other.pointwise == node.pointwise &&
             other.reduction == node.reduction && other.over == node.over && other.args == node.args;
    };
    const auto twin = std::ranges::find_if(unique.nodes, is_twin);
    place[i] = static_cast<int>(twin - unique.nodes.begin());
    if (twin == unique.nodes.end()) unique.nodes.push_back(node);
  }
  for (Store& store : unique.stores) store.node = place[static_cast<size_t>(store.node)];
  for (int& node : unique.yields) node = place[static_cast<size_t>(node)];
  return unique;
}

// Whole constants as small as windows, strides and paddings are become numbers of the text: indices along no
// axis. Extents stay arguments.
void name_numbers(const Fusion& fusion, Expr& expr) {
  for (Node& node : expr.nodes) {
    const std::optional<int64_t> whole = whole_constant(fusion, node);
    if (!whole || *whole > kMostNamed || *whole < -kMostNamed) continue;
    node.kind = Node::Kind::index;
    node.axis = 0;
    node.access = {.operand = -1, .offset = *whole, .strides = Dims::filled(expr.domain.rank(), 0)};
  }
}

// An element of 16 bits or an infinity is one of 16 bits: it is compared as it is stored.
void keep_short(const Fusion& fusion, Expr& expr) {
  const auto is_infinite = [&](const Node& node) {
    if (node.kind != Node::Kind::scalar) return false;
    const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
    const auto* const value = std::get_if<double>(&operand.value);
    return operand.memory == Memory::constant && value != nullptr && std::isinf(*value);
  };
  for (Node& node : expr.nodes) {
    if (node.kind != Node::Kind::pointwise || node.pointwise.mode != PointwiseMode::binary_select ||
        node.type != DataType::f32 || node.pointwise.compute != DataType::f32)
      continue;
    const Node& element = expr.node(node.args[0]);
    const bool is_short = element.type == DataType::f16 || element.type == DataType::bf16;
    if (element.kind == Node::Kind::load && is_short && is_infinite(expr.node(node.args[1])))
      node.type = element.type;
  }
}

}  // namespace

Expr tidied(const Fusion& fusion, const Expr& given) {
  Expr expr = merge_axes(without_dead_nodes(given));
  name_numbers(fusion, expr);
  expr = without_twins(expr);
  keep_short(fusion, expr);
  return expr;
}

}  // namespace fusor
