// Owns the rewrite of fprop of few input channels as one whose channels are the columns of a window
// (repack/unrolled_columns.h). Under dilation its filter has zeros, so that an infinity or NaN reaches
// windows that skip it.
#pragma once

#include "backend/engines/repack/repack.h"

namespace fusor {

/// Whether a window's columns can be channels, and fewer steps of k come of it.
bool unrolls_columns(const Fusion& fusion, const Contraction& view);
/// Both operands are packed.
Repacked unroll_columns(const Fusion& fusion, const Contraction& view, ResultPath way);

}  // namespace fusor
