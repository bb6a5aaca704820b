// Owns the writing of convolutions whose windows do not overlap as products of patches.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Multiplies the patches of an image by the filters where the windows of a convolution stand side by side,
/// as those of a vision transformer do:
///
///     x [n, c, h, w], stride = window [p, q] -> conv_fprop [n, k, h/p, w/q]
///
///     x -> reshape, transpose -> patches [n h/p w/q, c p q] -> matmul filters [c p q, k]
///                                                                -> reshape, transpose -> [n, k, h/p, w/q]
///
/// Each element is read by one window, so that the patches are a copy of the image, and nothing is padded.
/// Gradients of the filters are products of the patches as well. Channels that fill chunks of 16 bytes stay:
/// kernels read windows of them where they lie. Tensors keep their indices. Whether anything changed.
bool multiply_patches(Graph& graph, Additions& additions);

}  // namespace fusor
