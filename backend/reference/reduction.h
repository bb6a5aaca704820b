// Owns reductions on the host: the evaluation of an Expr whose results are reduced, with partial sums in a
// fixed order.
#pragma once

#include <span>

#include "backend/reference/expression.h"

namespace fusor::reference {

/// Stores every result of `expr`, at least one of them reduced. The order of accumulation depends on the
/// domain alone.
void evaluate_reductions(const Expr& expr, std::span<const Buffer> buffers, Reading reading);

}  // namespace fusor::reference
