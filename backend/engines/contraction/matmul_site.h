// Owns the sites of a contraction's operands, and a matmul's over its whole batch.
#pragma once

#include <cstdint>
#include <utility>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"

namespace fusor {

/// Of the first operand, or of the second one (of a sibling).
inline const Expr& operand_site(const Fusion& fusion, bool second, int64_t sibling) {
  return fusion.before[static_cast<size_t>(second ? 1 + sibling : 0)];
}

/// A matmul's operand over the whole batch, and which of its axes are which.
struct MatmulSite {
  Expr expr;
  int k_axis, across_axis;
};

inline MatmulSite matmul_site(const Fusion& fusion, const Contraction& view, bool second, int64_t sibling) {
  Expr expr = over_batch(operand_site(fusion, second, sibling), view.batch);
  const int last = expr.domain.rank() - 1;
  return {std::move(expr), second ? last - 1 : last, second ? last : last - 1};
}

}  // namespace fusor
