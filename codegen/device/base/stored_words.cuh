// Owns the values of narrow elements, a word of memory at a time, as floats and as pairs of 16 bits: integers
// by the bits of a mantissa, which takes instructions of full rate where a conversion has a quarter of it.
// Every value is exact.
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

/// (x & mask) ^ flipped, in one instruction.
FUSOR_DEVICE u32 masked_and_flipped(u32 x, u32 mask, u32 flipped) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(y) : "r"(x), "r"(mask), "r"(flipped));
  return y;
}
/// (x & mask) | others.
FUSOR_DEVICE u32 masked_and_joined(u32 x, u32 mask, u32 others) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(others));
  return y;
}

/// The same of four bits wherever they lie in a mantissa: what they count there is divided away.
template <>
struct StoredWord<i4> {
  enum : int { kCount = 8 };
  static __device__ __forceinline__ void floats(u32 word, float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = i < 5 ? i : i - 5;
      const u32 bits = i < 5 ? word : word >> 20;
      const u32 number = masked_and_flipped(bits, 0xfu << 4 * place, 0x4b000000u | 8u << 4 * place);
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

// ---- Pairs of fp16 or bf16 (sm_80) ----

template <class Element>
struct PairMath;
template <>
struct PairMath<f16> {
  /// a * b + c, rounded once.
  static __device__ __forceinline__ u32 multiply_add(u32 a, u32 b, u32 c) {
    u32 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
  }
  enum : u32 { kMinusOne = 0xbc00bc00 };
};
template <>
struct PairMath<bf16> {
  static __device__ __forceinline__ u32 multiply_add(u32 a, u32 b, u32 c) {
    u32 y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
  }
  enum : u32 { kMinusOne = 0xbf80bf80 };
};
template <class Element>
FUSOR_DEVICE u32 multiply_pairs(u32 a, u32 b) {
  constexpr u32 kMinusZero = 0x80008000;  // keeps the product's sign
  return PairMath<Element>::multiply_add(a, b, kMinusZero);
}
template <class Element>
FUSOR_DEVICE u32 subtract_pairs(u32 a, u32 b) {
  return PairMath<Element>::multiply_add(b, PairMath<Element>::kMinusOne, a);
}

/// The elements of a word as pairs: number i holds elements i and i + 4 of a word of eight, 2 i and 2 i + 1
/// of one of four.
template <class T, class Element>
struct PairedWord {  // for others there is none
  template <int N>
  static __device__ __forceinline__ void pairs(u32, u32 (&)[N]) {}
};

template <>
struct PairedWord<i4, f16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const u32 bits = word >> 4 * i;
      to[i] = subtract_pairs<f16>(masked_and_flipped(bits, 0x000f000f, 0x64086408), 0x64086408);
      // 1024 + 16 u: times 1 / 16, less 64 + 8.
      to[i + 1] = PairMath<f16>::multiply_add(masked_and_flipped(bits, 0x00f000f0, 0x64806480), 0x2c002c00,
                                              0xd480d480);
    }
  }
};
template <>
struct PairedWord<i4, bf16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i] = subtract_pairs<bf16>(masked_and_flipped(word >> 4 * i, 0x000f000f, 0x43084308), 0x43084308);
  }
};
/// Exponent and mantissa behind the sign: too small by the difference of the biases.
template <int kMantissaBits, class Element>
FUSOR_DEVICE void pairs_of_f4(u32 word, u32 power, u32 (&to)[4]) {
  constexpr u32 kMagnitude = 7u << (kMantissaBits - 1) | 7u << (kMantissaBits + 15);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int up = kMantissaBits - 1 - 4 * i;
    const u32 sign = word << (12 - 4 * i) & 0x80008000;
    to[i] = multiply_pairs<Element>(
        masked_and_joined(up >= 0 ? word << (up & 31) : word >> (-up & 31), kMagnitude, sign), power);
  }
}
template <>
struct PairedWord<f4_e2m1, f16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[4]) {
    pairs_of_f4<10, f16>(word, 0x74007400, to);
  }
};
template <>
struct PairedWord<f4_e2m1, bf16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[4]) {
    pairs_of_f4<7, bf16>(word, 0x7e807e80, to);
  }
};

/// 1024 and a byte.
FUSOR_DEVICE void pairs_of_bytes(u32 word, u32 base, u32 (&to)[2]) {
  to[0] = subtract_pairs<f16>(__byte_perm(word, 0x64646464, 0x4140), base);
  to[1] = subtract_pairs<f16>(__byte_perm(word, 0x64646464, 0x4342), base);
}
template <>
struct PairedWord<u8, f16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[2]) {
    pairs_of_bytes(word, 0x64006400, to);
  }
};
template <>
struct PairedWord<i8, f16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[2]) {
    pairs_of_bytes(word ^ 0x80808080, 0x64806480, to);
  }
};
/// 128 and seven bits, less 128, or 256 of a negative number.
template <>
struct PairedWord<i8, bf16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[2]) {
    const u32 low = word & 0x7f7f7f7f, sign = word & 0x80808080;
    to[0] = subtract_pairs<bf16>(__byte_perm(low, 0x43434343, 0x4140), __byte_perm(sign, 0x43434343, 0x4140));
    to[1] = subtract_pairs<bf16>(__byte_perm(low, 0x43434343, 0x4342), __byte_perm(sign, 0x43434343, 0x4342));
  }
};
template <>
struct PairedWord<f8_e4m3, f16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(to[i]) : "h"(static_cast<u16>(word >> 16 * i)));
  }
};
template <>
struct PairedWord<f8_e5m2, f16> {
  static __device__ __forceinline__ void pairs(u32 word, u32 (&to)[2]) {
    to[0] = __byte_perm(word, 0, 0x1404);
    to[1] = __byte_perm(word, 0, 0x3424);
  }
};
