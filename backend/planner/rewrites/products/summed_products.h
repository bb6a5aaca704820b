// Owns the joining of two products whose sum is one product.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies once where two products are added whose second operands are neighbouring slices of one tensor
/// along k, as scores of a latent cache are:
///
///     q_nope [h, 512] c [512, s] -> add (q_rope [h, 64] r [64, s])         c, r: slices of cache [s, 576]
///
///     concatenate (q_nope, q_rope) [h, 576] -> matmul (cache as [576, s])
///
/// The products are sums in the type in which they are added, so that only the order of sums changes. Their
/// first operands are no larger than the second ones: they may have to be copied side by side. Tensors keep
/// their indices. Whether anything changed.
bool join_products(Graph& graph, Additions& additions);

}  // namespace fusor
