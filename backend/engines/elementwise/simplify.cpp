// Owns the form in which the elementwise engine schedules an Expr.
#include "backend/engines/elementwise/simplify.h"

#include <array>

namespace fusor {

namespace {

// A reduction over no axis at all is an elementwise value.
int without_axes(Expr& expr, const Node& total) {
  const Node reduce = total;
  const int x = reduce.args[0];
  const auto append = [&](PointwiseMode pointwise, std::array<int, 3> args) {
    Node node;
    node.kind = Node::Kind::pointwise;
    node.type = reduce.reduction.compute;
    node.pointwise.mode = pointwise;
    node.pointwise.compute = reduce.reduction.compute;
    node.args = args;
    node.op = reduce.op;
    expr.nodes.push_back(node);
    return static_cast<int>(expr.nodes.size()) - 1;
  };
  switch (reduce.reduction.mode) {
    case ReductionMode::norm1:
    case ReductionMode::norm2:
    case ReductionMode::amax:
      return append(PointwiseMode::abs, {x, -1, -1});
    case ReductionMode::mul_no_zeros:
      return append(PointwiseMode::binary_select, {x, append(PointwiseMode::cmp_eq, {x, x, -1}), x});
    default:
      return append(PointwiseMode::identity, {x, -1, -1});
  }
}

}  // namespace

Expr simplified(const Expr& given) {
  Expr expr = given;
  for (Node& node : expr.nodes) node.over = reduced_axes(given, node);
  for (Store& store : expr.stores)
    if (const Node* const total = reduction_of(expr, store); total && total->over == 0)
      store.node = without_axes(expr, *total);
  return merge_axes(without_dead_nodes(expr));
}

std::optional<uint32_t> shared_reduction_mask(const Expr& expr, int* differing) {
  uint32_t shared = 0;
  for (size_t i = 0; i < expr.stores.size(); ++i) {
    const Node* const total = reduction_of(expr, expr.stores[i]);
    const uint32_t mask = total ? reduced_axes(expr, *total) : 0;
    if (mask == 0) continue;
    if (shared != 0 && mask != shared) {
      if (differing != nullptr) *differing = static_cast<int>(i);
      return std::nullopt;
    }
    shared = mask;
  }
  return shared;
}

}  // namespace fusor
