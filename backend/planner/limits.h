// Owns the limits that hold for every kernel, whichever engine writes it.
#pragma once

#include <cstdint>

#include "core/device_info.h"
#include "core/fusion.h"

namespace fusor {

/// What the driver passes by value to one kernel at most: since CUDA 12.1, from Volta on.
inline constexpr int64_t kMostArgumentBytes = 32764;

inline int64_t max_argument_bytes(const DeviceInfo& device) {
  return device.compute_capability >= 70 ? kMostArgumentBytes : 4096;
}

/// Bytes that the arguments of a kernel around this fusion take at most.
int64_t argument_bytes(const Fusion& fusion);

}  // namespace fusor
