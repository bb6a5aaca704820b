// Owns how far the accesses of a site reach, and the bits in which its kernel counts places.
#pragma once

#include <cstdint>
#include <limits>

#include "core/expr.h"

namespace fusor {

/// Numbers up to here leave kernels that count in 32 bits room for the rounding up to whole tiles, and for a
/// grid beyond the last.
inline constexpr int64_t kMaxIndex32 = std::numeric_limits<int32_t>::max() - 4096;

/// The largest distance, in elements, from an access' first element to another one.
int64_t reach(const Dims& domain, const Access& access);
/// The largest of any access of the site, and the largest number that it makes of a coordinate.
int64_t reach(const Expr& site);
/// 32, or 64 where the site has more elements, or reaches farther, than 32 bits count; what the last block
/// has beyond its last element counts, too.
int index_bits(const Expr& site);

}  // namespace fusor
