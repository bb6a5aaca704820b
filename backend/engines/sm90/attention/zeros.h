// Owns the search for keys whose scores are zero, in a chain of two products without a softmax.
#pragma once

#include "backend/engines/sm90/attention/masks.h"
#include "core/fusion.h"

namespace fusor::attention {

/// Adds bounds on keys outside of which node `at` is zero: of selects of zero, of -inf in front of an
/// exponential, of conditions taken as numbers, and of what is made of these. A select whose condition is
/// nothing but bounds is taken as if it held. A product with a zero is zero where no score is infinite, as
/// masks that are added take it, too; `strict` graphs have no such products.
void take_zeros(const Fusion& fusion, Expr& expr, int at, Bounds& bounds);

}  // namespace fusor::attention
