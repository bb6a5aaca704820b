// Owns the question whether places that lanes compute are those of neighbours.
#pragma once

#include <optional>

#include "core/expr.h"

namespace fusor {

/// Whether the node is an integer that grows by one with each element along the axis, where it is not the
/// other value of a select, which may take the place of the last ones alone: a bound is above them.
bool counts_along(const Expr& expr, int at, int axis);

/// Such an integer taken apart, in nodes: it is `count` where `compared` is less than `bound` (or not
/// greater), and `other` behind that. All of them are integers. Without a bound only `count` is there.
struct CountedPlace {
  int count = -1, other = -1, compared = -1, bound = -1;
  bool takes_bound = false;
};
/// Nothing where the node is no such integer, or its bound is none.
std::optional<CountedPlace> counted_place(const Expr& expr, int at, int axis);

}  // namespace fusor
