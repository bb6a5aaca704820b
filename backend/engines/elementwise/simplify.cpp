// Owns the form in which the elementwise engine schedules an Expr.
#include "backend/engines/elementwise/simplify.h"

#include <array>

namespace fusor {

namespace {

// A reduction over no axis at all is an elementwise result.
void make_elementwise(Expr& expr, Result& result) {
  const ReductionMode mode = result.reduction->mode;
  const DataType compute = result.reduction->compute;
  result.reduction.reset();
  const auto append = [&](PointwiseMode pointwise, std::array<int, 3> args) {
    Node node;
    node.kind = Node::Kind::pointwise;
    node.type = compute;
    node.pointwise.mode = pointwise;
    node.pointwise.compute = compute;
    node.args = args;
    node.op = result.op;
    expr.nodes.push_back(node);
    return static_cast<int>(expr.nodes.size()) - 1;
  };
  switch (mode) {
    case ReductionMode::norm1:
    case ReductionMode::norm2:
    case ReductionMode::amax:
      result.node = append(PointwiseMode::abs, {result.node, -1, -1});
      return;
    case ReductionMode::mul_no_zeros: {
      const int one = append(PointwiseMode::cmp_eq, {result.node, result.node, -1});
      result.node = append(PointwiseMode::binary_select, {result.node, one, result.node});
      return;
    }
    default:
      result.node = append(PointwiseMode::identity, {result.node, -1, -1});
  }
}

uint32_t mask_over_real_axes(const Expr& expr, const Result& result) {
  uint32_t mask = result.reduced;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (expr.domain[axis] == 1) mask &= ~(1u << axis);
  return mask;
}

}  // namespace

Expr simplified(const Expr& given) {
  Expr expr = given;
  for (size_t i = 0; i < expr.results.size(); ++i) {
    Result& result = expr.results[i];
    if (!result.reduction) continue;
    result.reduced = mask_over_real_axes(given, given.results[i]);
    if (result.reduced == 0) make_elementwise(expr, result);
  }
  return merge_axes(expr);
}

std::optional<uint32_t> shared_reduction_mask(const Expr& expr, int* differing) {
  uint32_t shared = 0;
  for (size_t i = 0; i < expr.results.size(); ++i) {
    if (!expr.results[i].reduction) continue;
    const uint32_t mask = mask_over_real_axes(expr, expr.results[i]);
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
