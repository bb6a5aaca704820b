// Owns the sites of a contraction's operands, and a matmul's over its whole batch.
#pragma once

#include <cstdint>
#include <utility>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"

namespace fusor {

/// The site of the first operand, or of the second one (of a sibling).
inline const Expr& site_of_operand(const Fusion& fusion, bool second, int64_t sibling) {
  return operand_site(fusion, static_cast<size_t>(sibling), second ? 1 : 0);
}

/// A matmul's operand over the whole batch, and which of its axes are which.
struct MatmulSite {
  Expr expr;
  int k_axis, across_axis;
};

inline MatmulSite matmul_site(const Fusion& fusion, const Contraction& view, bool second, int64_t sibling) {
  Expr expr = over_batch(site_of_operand(fusion, second, sibling), view.batch);
  const int last = expr.domain.rank() - 1;
  return {std::move(expr), second ? last - 1 : last, second ? last : last - 1};
}

}  // namespace fusor
