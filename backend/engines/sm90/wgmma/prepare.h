// Owns the wgmma engine's preparation of a fusion, as engines that multiply by its kernels ask for it.
#pragma once

#include "backend/engines/engine.h"

namespace fusor::wgmma {

/// Parts of an fp32 number, as in codegen/device/sm90/pipeline/tiling.cuh, and the products of parts that
/// count.
inline constexpr int64_t kPartsOfNumber = 3, kProductsOfParts = 6;

/// The wgmma engine's answer. in_parts: fp32 numbers that lie as three parts of bf16 (high, middle and low),
/// which the fusion walks as its k: those of a matmul along k, of a convolution along the channels of each
/// tap, of a weight gradient along the images. Whole steps of 64 numbers lie within each part; what lies
/// behind them is zero.
PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device, bool in_parts);

}  // namespace fusor::wgmma
