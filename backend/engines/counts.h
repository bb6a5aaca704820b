// Owns the counters of random words as engines schedule them.
#pragma once

#include "core/fusion.h"

namespace fusor {

/// simplify(expr), where the index of random words, written as a sum of coordinates times constants, does not
/// keep axes apart that everything else walks as one: it becomes a sum of as many coordinates as are left,
/// each with its step.
Expr simplified_counts(const Expr& expr, const Fusion& fusion, Expr (&simplify)(const Expr&));

}  // namespace fusor
