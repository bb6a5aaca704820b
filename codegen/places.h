// Owns the question whether places that lanes compute are those of neighbours.
#pragma once

#include "core/expr.h"

namespace fusor {

/// Whether the node is an integer that grows by one with each element along the axis, where it is not the
/// other value of a select, which may take the place of the last ones alone: a bound is above them.
bool counts_along(const Expr& expr, int at, int axis);

}  // namespace fusor
