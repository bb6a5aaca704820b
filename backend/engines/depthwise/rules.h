// Owns the question whether the depthwise engine takes a convolution: how its pixels lie, and what bounds its
// window, since the filters of a block's channels lie in shared memory.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor {

/// Shared memory that every device gives a block without being asked.
inline constexpr int64_t kMaxFilterBytes = 48 * 1024;
/// Bytes of the filters of one vector of channels, as Filters in codegen/device/depthwise/filters.cuh lays
/// them out.
int64_t bytes_of_filters(int64_t taps, int64_t vector);

/// The spatial axis along which pixels are adjacent where channels lie apart (planes), the same in every
/// tensor over images; -1 where channels are adjacent. Nothing where some tensor is neither, or they differ.
std::optional<int> plane_axis(const Fusion& fusion, const Contraction& view);
/// Whether some tensor over images has its channels apart.
bool has_channels_apart(const Fusion& fusion, const Contraction& view);

/// Why the engine does not take the fusion of one convolution, or nothing.
std::optional<Refusal> refuse_depthwise(const Fusion& fusion);

}  // namespace fusor
