// Owns the way from numbers to places: division by what the host knows, coordinates, numbers of blocks.
#pragma once

#include "codegen/device/base/types.cuh"

// ---- Division by a number that the host knows (core/fast_divisor.h writes the three fields) ----

FUSOR_DEVICE u32 upper_half(u32 a, u32 b) { return __umulhi(a, b); }
FUSOR_DEVICE u64 upper_half(u64 a, u64 b) { return __umul64hi(a, b); }

struct FastDivisor {
  alignas(8) Index divisor;
  alignas(8) UnsignedIndex multiplier;
  alignas(8) u32 shift;

  // n / divisor for 0 <= n, rounded down.
  __device__ __forceinline__ Index divide(Index n) const {
    const Index quotient = static_cast<Index>(upper_half(static_cast<UnsignedIndex>(n), multiplier) >> shift);
    return divisor == 1 ? n : quotient;
  }
  // Leaves the quotient in n and returns the remainder.
  __device__ __forceinline__ Index split(Index& n) const {
    const Index quotient = divide(n);
    const Index remainder = n - quotient * divisor;
    n = quotient;
    return remainder;
  }
};

// The coordinates on axes kFirst ... kEnd - 1 of a row-major linear index over their extents; the first of
// them is what remains, so its own extent is not divided by.
template <int kFirst, int kEnd, int kRank>
FUSOR_DEVICE void coordinates(Index linear, const FastDivisor* extents, Index (&at)[kRank]) {
#pragma unroll
  for (int axis = kEnd - 1; axis > kFirst; --axis) at[axis] = extents[axis].split(linear);
  if constexpr (kFirst < kEnd) at[kFirst] = linear;
}

// ---- Grids ----

// The number of this block in a grid of up to two axes.
FUSOR_DEVICE Index block_number() { return Index(blockIdx.y) * Index(gridDim.x) + Index(blockIdx.x); }
