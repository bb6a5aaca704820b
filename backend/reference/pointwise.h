// Owns one pointwise step on the host: a block of operands to a block of results, by the formulas of
// core/pointwise.def.
#pragma once

#include <array>

#include "backend/reference/values.h"
#include "core/attributes.h"

namespace fusor::reference {

/// `out[i] = formula(a[i], b[i], c[i])`, all of the held type of the op's compute type (unused operands may
/// be null); comparisons and logic give 0 or 1. int32 arithmetic wraps, also where the oracle holds it in
/// int64.
void pointwise_block(const Pointwise& op, DataType held, const std::array<const void*, 3>& operands,
                     int64_t count, void* out);

}  // namespace fusor::reference
