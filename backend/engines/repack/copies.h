// Owns the copies around a rewritten contraction: what they cost, and its lowering between them.
#pragma once

#include "backend/engines/repack/repack.h"
#include "core/device_info.h"
#include "core/lowered.h"
#include "core/work.h"

namespace fusor {

/// The work of all copies and fills; nothing else of it is set.
Work cost_of_copies(const Repacked& repacked, const DeviceInfo& device);
/// The contraction's work, with that of its copies.
void add_copies(Work& work, const Work& copies);
/// Fills, copies into scratch, the core, copies out of it.
Lowered between_copies(const Repacked& repacked, Lowered core, const DeviceInfo& device);

}  // namespace fusor
