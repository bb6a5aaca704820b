// Owns the rewrite of fprop and wgrad of few input channels as ones whose channels are the columns of a
// window (repack/unrolled_columns.h). Under dilation the filter of fprop has zeros, so that an infinity or
// NaN reaches windows that skip it.
#pragma once

#include "backend/engines/repack/repack.h"

namespace fusor {

/// Whether a window's columns can be channels, and fewer steps of k (wgrad: lines of the result) come of it.
bool unrolls_columns(const Fusion& fusion, const Contraction& view);
/// Both operands of fprop are packed. Gradients of filters are finished where they leave scratch.
Repacked unroll_columns(const Fusion& fusion, const Contraction& view, ResultPath way);

}  // namespace fusor
