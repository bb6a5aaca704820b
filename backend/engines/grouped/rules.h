// Owns the question whether the grouped engine takes a convolution: how many channels its groups have, how
// they lie, and what bounds its window, whose filters and pixels lie in shared memory.
#pragma once

#include <optional>

#include "core/device_info.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor {

/// Why the engine does not take the fusion of one convolution, or nothing.
std::optional<Refusal> refuse_grouped(const Fusion& fusion, const DeviceInfo& device);

}  // namespace fusor
