// Owns TensorMap: what Hopper's tensor memory accelerator (TMA) is told of an operand. Encoded by
// codegen/cuda_driver.
#pragma once

#include <cstdint>
#include <optional>

#include "core/data_type.h"
#include "core/dims.h"

namespace fusor {

/// Copies between a tensor and shared memory, where lines of 128, 64 or 32 bytes are swizzled over their
/// length and others are not; what lies outside of `dims` is read as zero and never written (in units of 16
/// bytes). Axes innermost first, three to five; the innermost is packed.
struct TensorMap {
  /// im2col: a copy is a column of pixels of a channels-last tensor. Spatial axes innermost first; the first
  /// window begins at `lower`, neighbouring ones are `strides` apart, the last one begins `upper` beyond the
  /// last position (Hopper: a tap adds its offset to all of them).
  struct Window {
    Dims lower, upper, strides;
  };

  DataType type = DataType::f16;
  Dims dims;
  Dims stride_bytes;  ///< of the axes after the innermost; multiples of 16
  Dims box;           ///< of one copy: an extent an axis; with a window: channels and pixels
  std::optional<Window> window = {};
  bool rounds_to_tf32 = false;  ///< fp32, on the way to shared memory
};

inline constexpr int64_t kTensorMapBytes = 128;
inline constexpr int64_t kTensorMapAlignment = 64;

}  // namespace fusor
