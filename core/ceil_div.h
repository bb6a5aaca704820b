// Owns ceil_div and round_up: how many pieces of a size cover an extent, and how far they reach.
#pragma once

#include <cstdint>

namespace fusor {

/// a / b rounded up, for a >= 0 and b > 0 of any size.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// The least multiple of `unit` that `value` fits in, for value >= 0 and unit > 0.
constexpr int64_t round_up(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

}  // namespace fusor
