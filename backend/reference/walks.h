// Owns the split of an Expr into walks over its domain: phase after phase, one set of reduced axes each.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/reference/reference.h"
#include "core/expr.h"

namespace fusor::reference {

/// Room for the totals of a reduction that a later walk needs, dense over the axes in the mask.
struct Totals {
  int node = -1;
  int operand = -1;
  uint32_t axes = 0;
  DataType type = DataType::f32;
  int64_t elements = 1;
};

/// Exprs to be evaluated one after another. In each, all reductions run over the same axes and no total is
/// needed again: totals of earlier ones are loaded from further operands.
struct Walks {
  std::vector<Expr> exprs;
  std::vector<Totals> totals;  ///< their operands are numbered from `operands` on
};
Walks walks_of(const Expr& expr, int operands, Reading reading);

}  // namespace fusor::reference
