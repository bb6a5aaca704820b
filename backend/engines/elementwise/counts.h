// Owns the counters of random words as the elementwise engine schedules them.
#pragma once

#include "core/fusion.h"

namespace fusor {

/// simplified(expr), where the index of random words, written as a sum of coordinates times constants, does
/// not keep axes apart that everything else walks as one: it becomes a sum of as many coordinates as are
/// left.
Expr simplified_counts(const Expr& expr, const Fusion& fusion);

}  // namespace fusor
