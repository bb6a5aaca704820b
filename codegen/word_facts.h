// Owns facts of random words: what kernels need not compute of their counters and comparisons.
#pragma once

#include "core/expr.h"

namespace fusor {

/// The argument of philox and philox_second that is the index.
inline constexpr int kPhiloxIndex = 2;

/// Whether an index node passes the coordinate as it is.
inline bool is_plain_coordinate(const Node& node) {
  return node.access.strides[node.axis] == 1 && node.access.offset == 0;
}

/// Whether a node makes words from an index that is int32 and never negative, because it is a sum of
/// coordinates: the upper half of its counter is 0.
bool counts_up(const Expr& expr, const Node& node);

/// Whether a node asks if a random word is less than a number that is the same everywhere.
bool compares_word(const Expr& expr, const Node& node);

}  // namespace fusor
