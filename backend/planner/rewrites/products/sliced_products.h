// Owns the move of slices in front of the product whose parts they take.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies by parts of the weights where two parts of a product meet again, as gate and value of a gated
/// unit do. The two products read one operand and end in one pointwise op, so that one kernel may compute
/// both, and the product itself is not stored:
///
///     x [m, k] ─ matmul w [k, 2n] ─ add b [2n] ─┬─ slice [0, n) ── swish ─┐
///                                               └─ slice [n, 2n) ─────── mul
///
///     x ─┬─ matmul (w [0, n)) ── add (b [0, n)) ── swish ─┐
///        └─ matmul (w [n, 2n)) ─ add (b [n, 2n)) ──────── mul
///
/// A pointwise convolution's weights are parted by their filters. That is done where the weights lie in
/// memory, where either part begins at a multiple of 16 bytes, and where nobody reads the rest of the
/// product. Tensors keep their indices. Whether anything changed.
bool slice_products(Graph& graph, Additions& additions);

}  // namespace fusor
