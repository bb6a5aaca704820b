// Owns the wgmma engine's preparation of a fusion, as engines that multiply by its kernels ask for it.
#pragma once

#include "backend/engines/engine.h"

namespace fusor::wgmma {

/// Products of parts of fp32 numbers that count, as in codegen/device/sm90/load/boxes.cuh.
inline constexpr int64_t kProductsOfParts = 6;

/// The wgmma engine's answer. in_parts: a matmul of fp32 numbers that lie as three parts of bf16 along k
/// (high, middle and low, each k elements long, a multiple of 64). The fusion has six such lengths along k:
/// one for each product of parts, which the kernel walks 64 elements at a time.
PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device, bool in_parts);

}  // namespace fusor::wgmma
