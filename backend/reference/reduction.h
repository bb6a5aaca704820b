// Owns reductions on the host: the evaluation of an Expr whose reductions all run over the same axes, with
// partial sums in a fixed order.
#pragma once

#include <span>

#include "backend/reference/expression.h"

namespace fusor::reference {

/// Carries out every store of `expr`, at least one of them of totals; no total is needed again. The order of
/// accumulation depends on the domain alone.
void evaluate_reductions(const Expr& expr, std::span<const Buffer> buffers, Reading reading);

}  // namespace fusor::reference
