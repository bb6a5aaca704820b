// Owns the sharing of views that show the same.
#pragma once

#include "core/graph.h"

namespace fusor {

/// Lets all readers of views of one tensor that show the same elements in the same shape read the first of
/// them, so that contractions of "the same" operand can be siblings: the gate and the value of a SwiGLU
/// layer, say, each behind a reshape of its own. A reshape that is read by another alone goes.
/// Tensors keep their indices. Whether anything changed.
bool share_views(Graph& graph);

}  // namespace fusor
