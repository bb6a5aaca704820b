// Owns the values of narrow elements as floats, a word of memory at a time: integers by the bits of a float's
// mantissa, which takes instructions of full rate where a conversion has a quarter of it. Every value is
// exact.
#pragma once

#include "codegen/device/base/conversions.cuh"

/// How the elements of a word become floats: kCount of them, the first in the lowest bits.
template <class T>
struct StoredWord {
  enum : int { kCount = 4 };
  static __device__ __forceinline__ void floats(u32 word, float (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      if constexpr (PairConversion<T>::kExists) {
        PairConversion<T>::widen(static_cast<u16>(word >> 8 * i), to[i], to[i + 1]);
      } else {
        to[i] = widen(T{static_cast<u8>(word >> 8 * i)});
        to[i + 1] = widen(T{static_cast<u8>(word >> (8 * i + 8))});
      }
    }
  }
};

/// Bytes behind 2^23: its float with a byte u in the lowest bits is 2^23 + u.
FUSOR_DEVICE void floats_of_bytes(u32 word, float base, float (&to)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - base;
}
template <>
struct StoredWord<u8> {
  enum : int { kCount = 4 };
  static __device__ __forceinline__ void floats(u32 word, float (&to)[4]) {
    floats_of_bytes(word, 0x1p23f, to);
  }
};
template <>
struct StoredWord<i8> {
  enum : int { kCount = 4 };
  static __device__ __forceinline__ void floats(u32 word, float (&to)[4]) {
    floats_of_bytes(word ^ 0x80808080, 0x1p23f + 128, to);
  }
};

/// The same of four bits wherever they lie in a mantissa: what they count there is divided away.
template <>
struct StoredWord<i4> {
  enum : int { kCount = 8 };
  static __device__ __forceinline__ void floats(u32 word, float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = i < 5 ? i : i - 5;
      const u32 bits = i < 5 ? word : word >> 20;
      const u32 number = (bits & 0xfu << 4 * place) ^ (0x4b000000u | 8u << 4 * place);
      const float unit = 1.0f / static_cast<float>(1 << 4 * place);
      to[i] = __fmaf_rn(__uint_as_float(number), unit, -(0x1p23f * unit + 8));
    }
  }
};

/// Three bits as an fp16 are too small by the difference of the biases, 2^(15 - 1).
template <>
struct StoredWord<f4_e2m1> {
  enum : int { kCount = 8 };
  static __device__ __forceinline__ void floats(u32 word, float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 magnitude = (i < 3 ? word << (9 - 4 * i) : word >> 3) & 0x0e000e00;
      const u32 bits = magnitude | ((word << (12 - 4 * i)) & 0x80008000);
      u32 halves;
      asm("mul.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(bits), "r"(0x74007400));
      PairConversion<f16>::widen(halves, to[i], to[i + 4]);
    }
  }
};
