// Owns the move of concatenations behind the pointwise ops that read them.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Computes pointwise ops that read a concatenation on each of its parts, and concatenates what comes of
/// them: every part is written in place once, and nothing is copied side by side first. Rotary positions
/// whose halves are exchanged become one pass, of two results:
///
///     [-b | a] -> mul sine -> add (x cosine)         x = [a | b]
///
///     a cosine1 - b sine1 --.
///     b cosine2 + a sine2 -> concatenate
///
/// Other operands are sliced, or computed on each part as well. Parts that others read too, and that would be
/// written in place as they are, leave all as it is. Tensors keep their indices. Whether anything changed.
bool move_concatenations_behind(Graph& graph, Additions& additions);

}  // namespace fusor
