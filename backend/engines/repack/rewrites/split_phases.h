// Owns the rewrite of wgrad of strides as one whose channels are an input's phases (repack/stride_phases.h),
// planes all of them.
#pragma once

#include "backend/engines/repack/repack.h"

namespace fusor {

/// Whether the phases of a wgrad's input can be channels, and its result can be finished tap by tap.
bool splits_phases(const Fusion& fusion, const Contraction& view);
/// The input is always packed, the output gradient where that is asked for; the result is finished later.
Repacked split_phases(const Fusion& fusion, const Contraction& view, bool packs_gradient);

}  // namespace fusor
