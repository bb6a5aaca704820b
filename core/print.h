// Owns the readable text of expressions and fusions, one value a line.
#pragma once

#include <string>

#include "core/fusion.h"

namespace fusor {

/// The lines of an Expr: `v2: fp32 = add v0 v1`, `v3: fp32 = reduce max v2 over 1`, `store bf16 v3 -> o4 [6,
/// 0]`.
std::string print(const Expr& expr);
/// Sites and anchors in an order in which they can be carried out, operands and ops by the user's names.
std::string print(const Fusion& fusion);

}  // namespace fusor
