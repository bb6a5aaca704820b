// Owns what copies by TMA (Hopper's Tensor Memory Accelerator) are made of: units of 16 bytes, and lines of
// 128.
#pragma once

#include <array>
#include <cstdint>

#include "core/data_type.h"
#include "core/fusion.h"

namespace fusor {

/// What kernels read from shared memory, in the order of the numbers in codegen/device/sm90/ptx/wgmma.cuh and
/// sm90/load/prologue.cuh.
inline constexpr std::array kCopiedTypes{DataType::f16, DataType::bf16,    DataType::f32,    DataType::i8,
                                         DataType::u8,  DataType::f8_e4m3, DataType::f8_e5m2};
/// Bytes of which addresses, offsets and strides are multiples.
inline constexpr int64_t kCopyUnit = 16;
/// Elements in a line of 128 bytes: the width of every box, and the steps of k in a tile.
inline int64_t box_line(DataType type) { return 128 / byte_size(type); }
/// Elements of a line of 16 bits: no others may lie across k in shared memory, for wgmma transposes no
/// others.
inline constexpr int64_t kBoxLine = 64;
inline bool may_lie_across(DataType type) { return byte_size(type) == 2; }
/// In memory.
inline DataType type_of(const Fusion& fusion, const Access& access) {
  return fusion.operands[static_cast<size_t>(access.operand)].type;
}
/// Whether TMA can step from line to line by so many elements.
inline bool is_line_stride(int64_t stride, int64_t element_bytes) {
  return stride > 0 && stride * element_bytes % kCopyUnit == 0;
}

}  // namespace fusor
