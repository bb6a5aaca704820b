// Owns the form in which the elementwise engine schedules an Expr: axes merged, reductions over no axis
// turned into stores; and the mask that its reductions share.
#pragma once

#include <cstdint>
#include <optional>

#include "core/expr.h"

namespace fusor {

/// The same results over fewer axes.
Expr simplified(const Expr& given);

/// The mask that all true reductions of the Expr share. Where they differ: nothing, and `differing` is the
/// result whose mask is not that of the first.
std::optional<uint32_t> shared_reduction_mask(const Expr& expr, int* differing = nullptr);

}  // namespace fusor
