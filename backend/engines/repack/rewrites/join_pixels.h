// Owns the rewrite of fprop and dgrad of few result channels as a convolution of joined pixels
// (repack/joined_pixels.h). Its filter has zeros, so that an infinity or NaN reaches all pixels whose joined
// window holds it.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/engines/repack/repack.h"

namespace fusor {

/// How joined pixels leave: what follows the product knows nothing of pixels, or can be finished later;
/// nothing where they cannot be joined so.
std::optional<ResultPath> result_path_of_pixels(const Fusion& fusion, const Contraction& view,
                                                int64_t pixels);
/// Blocks of `pixels` carried out as one; the filter is always packed, the sources where that is asked for.
Repacked join_pixels(const Fusion& fusion, const Contraction& view, int64_t pixels, bool packs_sources,
                     ResultPath way);

}  // namespace fusor
