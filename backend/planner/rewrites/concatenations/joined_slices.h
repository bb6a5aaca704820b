// Owns the joining of slices that are concatenated as they lay.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Lets a concatenation read neighbouring slices of one tensor as one, or as the tensor where they are all of
/// it: that may be written in place then. YOLO's blocks concatenate both halves of a convolution's channels
/// with what is made of the second.
///
///     y -> slices a, b           b -> convolutions -> c         concatenate a, b, c  =  concatenate y, c
///
/// Tensors keep their indices. Whether anything changed.
bool join_slices(Graph& graph, Additions& additions);

}  // namespace fusor
