// Owns Attributes: the closed variant of all op families (rows in core/ops/op.def), and what is asked of an
// op of any family.
#pragma once

#include <string_view>
#include <variant>

#include "core/api.h"
#include "core/ops/attention.h"
#include "core/ops/block_scale.h"
#include "core/ops/causal_conv1d.h"
#include "core/ops/composite.h"
#include "core/ops/concatenate.h"
#include "core/ops/convolution.h"
#include "core/ops/ctc_loss.h"
#include "core/ops/gather.h"
#include "core/ops/grid_sample.h"
#include "core/ops/grouped_matmul.h"
#include "core/ops/lrn.h"
#include "core/ops/matmul.h"
#include "core/ops/norm.h"
#include "core/ops/paged.h"
#include "core/ops/pointwise.h"
#include "core/ops/random.h"
#include "core/ops/recurrence.h"
#include "core/ops/reduction.h"
#include "core/ops/resample.h"
#include "core/ops/rnn.h"
#include "core/ops/softmax.h"
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
FUSOR_API std::string_view kind_name(const Attributes& attributes);
/// One value of every kind, with the defaults.
std::vector<Attributes> all_kinds();
/// "relu", "add" (reduction), else kind_name: what a reader calls the op.
FUSOR_API std::string_view short_name(const Attributes& attributes);
/// What the op reads and writes.
FUSOR_API Roles roles(const Attributes& attributes);
FUSOR_API Nature nature(const Attributes& attributes);
/// The compute type, or nothing for ops that have none of their own.
FUSOR_API const DataType* compute_type(const Attributes& attributes);
/// Whether the op only renames coordinates (reshape, transpose, slice).
FUSOR_API bool is_view(const Attributes& attributes);
/// Whether the op contracts two operands (matmul, convolution): the anchors of fusions.
FUSOR_API bool is_contraction(const Attributes& attributes);
/// Fills in the lists that may be left out, and counts the negative entries of `axis` and `normalized_axes`
/// from the back; one that is out of range stays as it was said. `rank`: of the op's first operand.
void fill_omitted(Attributes& attributes, int rank);
/// Whether the op writes some elements of its result only: the others keep what the memory held.
bool leaves_gaps(const Attributes& attributes);

}  // namespace fusor
