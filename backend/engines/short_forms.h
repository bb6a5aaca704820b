// Owns the question where a kernel may use the short elementary functions.
#pragma once

#include <functional>

#include "core/expr.h"

namespace fusor {

/// Whether short forms, which err by 1e-5, will do: what special functions give is rounded to 16 bits or less
/// before it is stored, yielded, or added up. `counts` says for a node whether it is computed by them at all;
/// all are where it is empty.
bool fits_short_forms(const Expr& expr, const std::function<bool(int node)>& counts = {});

}  // namespace fusor
