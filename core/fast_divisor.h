// Owns FastDivisor: division by a number known before a launch, as a multiplication and a shift on the device
// (Granlund & Montgomery 1994; codegen/device/base/indexing.cuh reads the three fields).
#pragma once

#include <bit>
#include <cstdint>

#include "core/lowered.h"

namespace fusor {

/// n / divisor == high half of (n * multiplier) >> shift for every n of `bits` - 1 bits. A divisor of 1 is
/// told apart by the device.
struct FastDivisor {
  uint64_t divisor = 1;
  uint64_t multiplier = 0;
  uint32_t shift = 0;

  /// For 0 < divisor < 2^(bits - 1); bits is 32 or 64.
  static FastDivisor of(int64_t divisor, int bits) {
    const uint64_t d = static_cast<uint64_t>(divisor);
    if (d == 1) return {};
    const int ceil_log2 = std::bit_width(d - 1);
    __extension__ using Wide = unsigned __int128;
    const Wide power = Wide{1} << (bits - 1 + ceil_log2);
    return {d, static_cast<uint64_t>((power + d - 1) / d), static_cast<uint32_t>(ceil_log2 - 1)};
  }

  void put(ArgumentBlock& block) const {
    block.put_int(static_cast<int64_t>(divisor));
    block.put_int(static_cast<int64_t>(multiplier));
    block.put_int(shift);
  }
};

}  // namespace fusor
