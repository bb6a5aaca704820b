// Owns the removal of identities that change nothing, or broadcast what their readers broadcast themselves.
#pragma once

#include "core/graph.h"

namespace fusor {

/// Lets the readers of a virtual copy of a value read the value: one of its type and shape, as PyTorch writes
/// `clone` where it wants another layout; and one that broadcasts it to the shape of a pointwise op's other
/// operand or to the batch of a matmul's, as it writes `expand` in front of `bmm`:
///
///     w [k, n] -> identity [b, k, n] -> matmul x [b, m, k]
///
///     w [k, n] -> matmul x [b, m, k]
///
/// Other readers, views among them, keep their copies. Tensors keep their indices. Whether anything changed.
bool drop_identities(Graph& graph);

}  // namespace fusor
