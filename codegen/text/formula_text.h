// Owns the text of core/pointwise.def's formulas: written out over their operands, or called.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/ops/pointwise.h"

namespace fusor {

/// Whether the formula reads parameters; its text is then a call of a function in device/base/formulas.cuh.
bool reads_parameters(PointwiseMode mode);

/// The value of a pointwise op: "v0[i] * v1[i]", "Fn::exp(v2)", "op_relu<Fn>(v2, p2)". `operands` are of the
/// compute type, and each is a name, a call or an element of an array. `functions`: Fn, Exact or Short.
/// `parameters`: the name of a Parameters<T>; empty: the defaults.
std::string formula_text(const Pointwise& pointwise, std::string_view functions,
                         std::span<const std::string> operands, std::string_view parameters);

}  // namespace fusor
