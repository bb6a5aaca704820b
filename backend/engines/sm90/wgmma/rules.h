// Owns the question whether the wgmma engine takes a contraction on a device that has its instructions.
#pragma once

#include <optional>

#include "core/fusion.h"
#include "core/support.h"

namespace fusor::wgmma {

/// Why not, or nothing. The fusion is the one that is carried out (sm90/wgmma/tiling.h).
std::optional<Refusal> refuse(const Fusion& fusion);

}  // namespace fusor::wgmma
