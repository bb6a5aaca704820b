// Owns the finding of elements that totals pick.
#include "backend/engines/picks.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace fusor {

namespace {

// Whether every number of an integer type is compared as it is.
bool compares_exactly(const Node& condition, DataType type) {
  const DataType compute = condition.pointwise.compute;
  return !is_real(compute) && !is_real(type) && byte_size(compute) >= byte_size(type);
}

// A load of which node `at` selects one element a row and zeros elsewhere, and the value that says which: the
// element's coordinate along the axis. -1 where the node is anything else, or changes the element.
struct Pick {
  int load = -1, where = -1;
};
Pick pick_of(const Fusion& fusion, const Expr& expr, int at, int axis) {
  const auto is = [&](int node, PointwiseMode mode) {
    return expr.node(node).kind == Node::Kind::pointwise && expr.node(node).pointwise.mode == mode;
  };
  if (!is(at, PointwiseMode::binary_select)) return {};
  const auto& [taken, other, condition] = expr.node(at).args;
  const Node& zero = expr.node(other);
  const bool is_zero = zero.kind == Node::Kind::scalar &&
                       fusion.operands[static_cast<size_t>(zero.access.operand)].memory == Memory::constant &&
                       fusion.operands[static_cast<size_t>(zero.access.operand)].value == Scalar(0.0);
  if (!is_zero || !is(condition, PointwiseMode::cmp_eq)) return {};
  const std::vector<uint32_t> varies = varying_axes(expr);
  for (const int side : {0, 1}) {
    const int where = expr.node(condition).args[static_cast<size_t>(1 - side)];
    const Node& index = expr.node(expr.node(condition).args[static_cast<size_t>(side)]);
    const Node& value = expr.node(where);
    const bool counts = index.kind == Node::Kind::index && index.axis == axis && index.access.offset == 0 &&
                        index.access.strides[axis] == 1 && byte_size(index.type) >= 4;
    const bool is_of_row = (varies[static_cast<size_t>(where)] >> axis & 1) == 0 &&
                           compares_exactly(expr.node(condition), value.type) &&
                           compares_exactly(expr.node(condition), index.type);
    const Node &load = expr.node(taken), &select = expr.node(at);
    const bool keeps = select.pointwise.compute == DataType::f32 &&
                       (select.type == DataType::f32 || select.type == load.type);
    if (counts && keeps && is_of_row &&
        (value.kind == Node::Kind::load || value.kind == Node::Kind::scalar) &&
        load.kind == Node::Kind::load && !load.access.is_indexed())
      return {taken, where};
  }
  return {};
}

}  // namespace

uint32_t take_picked_elements(const Fusion& fusion, Expr& expr) {
  uint32_t axes = 0;
  for (Node& node : expr.nodes) {
    if (node.kind != Node::Kind::reduce) continue;
    const uint32_t over = reduced_axes(expr, node);
    if (std::popcount(over) != 1) continue;
    const bool adds = node.reduction.mode == ReductionMode::add && node.reduction.compute == DataType::f32 &&
                      node.type == DataType::f32;
    const int axis = std::countr_zero(over);
    const Pick pick = adds ? pick_of(fusion, expr, node.args[0], axis) : Pick{};
    if (pick.load < 0 || carrier(expr.node(pick.load).type) != DataType::f32) continue;
    Access access = expr.node(pick.load).access;
    access.indexed[0] = {.stride = access.strides[axis], .extent = expr.domain[axis]};
    access.strides[axis] = 0;
    node = {.kind = Node::Kind::load,
            .type = expr.node(pick.load).type,
            .access = access,
            .args = {pick.where, -1, -1},
            .op = node.op};
    axes |= over;
  }
  return axes;
}

namespace {

// The Expr where every total picks an element, over the axes that are left. Nothing where another total
// stays, or where some results walk an axis that others were picked from.
std::optional<Expr> picked(const Fusion& fusion, const Expr& given) {
  Expr expr = given;
  if (take_picked_elements(fusion, expr) == 0 || expr.has_reduction()) return std::nullopt;
  expr = without_dead_nodes(expr);
  uint32_t varying = 0;
  for (const uint32_t axes : varying_axes(expr)) varying |= axes;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    const auto walks = [&](const Store& store) { return store.access.strides[axis] != 0; };
    if ((varying >> axis & 1) == 0 && std::ranges::none_of(expr.stores, walks)) expr.domain[axis] = 1;
    if (expr.domain[axis] > 1 && !std::ranges::all_of(expr.stores, walks)) return std::nullopt;
  }
  return expr;
}

}  // namespace

std::optional<Fusion> with_picked_elements(const Fusion& fusion) {
  if (fusion.sites.size() != 1 || !fusion.sites[0].expr.has_reduction()) return std::nullopt;
  std::optional<Expr> expr = picked(fusion, fusion.sites[0].expr);
  if (!expr) return std::nullopt;
  Fusion made = fusion;
  made.sites[0].expr = std::move(*expr);
  return made;
}

}  // namespace fusor
