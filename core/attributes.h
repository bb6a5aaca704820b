// Owns Attributes: the closed variant of all op families (rows in core/ops/op.def), and what is asked of an
// op of any family.
#pragma once

#include <string_view>
#include <variant>

#include "core/ops/composite.h"
#include "core/ops/concatenate.h"
#include "core/ops/convolution.h"
#include "core/ops/matmul.h"
#include "core/ops/pointwise.h"
#include "core/ops/reduction.h"
#include "core/ops/views.h"
#include "core/overloaded.h"

namespace fusor {

namespace ops {
template <class, OpFamily... Families>
using VariantOf = std::variant<Families...>;
}  // namespace ops

using Attributes = ops::VariantOf<void
#define FUSOR_OP(name, family) , family
#include "core/ops/op.def"
#undef FUSOR_OP
                                  >;

/// "pointwise", "reduction", "matmul", "conv_fprop" ...: the op's name in files.
std::string_view kind_name(const Attributes& attributes);
/// One value of every kind, with the defaults.
std::vector<Attributes> all_kinds();
/// "relu", "add" (reduction), else kind_name: what a reader calls the op.
std::string_view short_name(const Attributes& attributes);
/// What the op reads and writes.
Roles roles(const Attributes& attributes);
Nature nature(const Attributes& attributes);
/// The compute type, or nothing for ops that have none of their own.
const DataType* compute_type(const Attributes& attributes);
/// Whether the op only renames coordinates (reshape, transpose, slice).
bool is_view(const Attributes& attributes);
/// Whether the op contracts two operands (matmul, convolution): the anchors of fusions.
bool is_contraction(const Attributes& attributes);

}  // namespace fusor
