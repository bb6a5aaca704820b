// Owns TensorMap: what Hopper's tensor memory accelerator (TMA) is told of an operand. Encoded by
// codegen/cuda_driver.
#pragma once

#include <cstdint>

#include "core/data_type.h"
#include "core/dims.h"

namespace fusor {

/// A tiled map: copies of `box` elements go to shared memory, rows of 128 bytes swizzled by 128 bytes; what
/// lies outside of `dims` is zero. Axes innermost first, at most five; the innermost is packed.
struct TensorMap {
  DataType type = DataType::f16;
  Dims dims;
  Dims stride_bytes;  ///< of the axes after the innermost; multiples of 16
  Dims box;
};

inline constexpr int64_t kTensorMapBytes = 128;
inline constexpr int64_t kTensorMapAlignment = 64;

}  // namespace fusor
