// Owns conversions of elements: to the carrier in which a value is held, back to the nearest element, and to
// that element's value; of one and of whole vectors. They give bit for bit what core/convert gives on the
// host.
#pragma once

#include "codegen/device/base/types.cuh"

// ---- From an element to its carrier ----

FUSOR_DEVICE double widen(double x) { return x; }
FUSOR_DEVICE float widen(float x) { return x; }
FUSOR_DEVICE i64 widen(i64 x) { return x; }
FUSOR_DEVICE i32 widen(i32 x) { return x; }
FUSOR_DEVICE i32 widen(i8 x) { return x; }
FUSOR_DEVICE i32 widen(u8 x) { return x; }
FUSOR_DEVICE i32 widen(b8 x) { return x.bits != 0; }
FUSOR_DEVICE float widen(bf16 x) { return __int_as_float(x.bits << 16); }
FUSOR_DEVICE float widen(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
// The upper byte of an fp16.
FUSOR_DEVICE float widen(f8_e5m2 x) { return widen(f16{static_cast<u16>(x.bits << 8)}); }
// A power of two: the exponent of a float, subnormal for the smallest.
FUSOR_DEVICE float widen(f8_e8m0 x) {
  return __uint_as_float(x.bits == 0xff ? 0x7fffffffu
                         : x.bits == 0  ? 0x00400000u
                                        : static_cast<u32>(x.bits) << 23);
}
FUSOR_DEVICE float widen(f8_e4m3 x) {
  if constexpr (Config::arch >= 890) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(x.bits)));
    return widen(f16{static_cast<u16>(pair)});
  } else {
    const int magnitude = x.bits & 0x7f;
    // The bits as a float are too small by the difference of the biases, 2^(127 - 7); subnormals come out
    // right too.
    const float value = __int_as_float(magnitude << 20) * 0x1p120f;
    const int bits = magnitude == 0x7f ? 0x7fffffff : __float_as_int(value);
    return __int_as_float(bits | (x.bits & 0x80) << 24);
  }
}

// Three bits as a float are too small by the difference of the biases, 2^(127 - 1).
FUSOR_DEVICE float widen(f4_e2m1 x) {
  const float value = __int_as_float((x.bits & 7) << 22) * 0x1p126f;
  return __int_as_float(__float_as_int(value) | (x.bits & 8) << 28);
}
FUSOR_DEVICE i32 widen(i4 x) { return (x.bits ^ 8) - 8; }
FUSOR_DEVICE i32 widen(b1 x) { return x.bits; }

// ---- From a carrier to an element: to nearest even; fp8, fp4 and integers saturate; NaN becomes 0 in
// integers and the largest number in fp4 ----

// A float that rounds to every narrower type as x itself does: toward zero, the last place odd where x was
// between.
FUSOR_DEVICE float odd_float(float x) { return x; }
FUSOR_DEVICE float odd_float(double x) {
  const float y = __double2float_rz(x);
  return static_cast<double>(y) == x ? y : __int_as_float(__float_as_int(y) | 1);
}
FUSOR_DEVICE float odd_float(i32 x) {
  const float y = __int2float_rz(x);
  return __float2int_rz(y) == x ? y : __int_as_float(__float_as_int(y) | 1);
}
FUSOR_DEVICE float odd_float(i64 x) {
  const float y = __ll2float_rz(x);
  return __float2ll_rz(y) == x ? y : __int_as_float(__float_as_int(y) | 1);
}

template <int kExponentBits, int kMantissaBits, u32 kLargest>
FUSOR_DEVICE u8 float_to_f8(float x) {
  constexpr int kShift = 23 - kMantissaBits;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  const u32 sign = __float_as_uint(x) >> 24 & 0x80;
  const u32 magnitude = __float_as_uint(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  u32 rounded;
  if (magnitude < static_cast<u32>(128 - kBias) << 23) {
    // Subnormal: a power of two whose last place is the quantum lets the adder round.
    constexpr u32 kQuantumPlace = static_cast<u32>(127 + 24 - kBias - kMantissaBits) << 23;
    rounded = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kQuantumPlace)) - kQuantumPlace;
  } else {
    rounded = ((magnitude + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1)) >> kShift) -
              (static_cast<u32>(127 - kBias) << kMantissaBits);
  }
  return static_cast<u8>(sign | (rounded < kLargest ? rounded : kLargest));
}

template <class T>
struct Narrow;
template <>
struct Narrow<double> {
  template <class C>
  static __device__ __forceinline__ double from(C x) {
    return static_cast<double>(x);
  }
};
template <>
struct Narrow<float> {
  template <class C>
  static __device__ __forceinline__ float from(C x) {
    return static_cast<float>(x);
  }
};
template <>
struct Narrow<i64> {
  static __device__ __forceinline__ i64 from(float x) { return x == x ? __float2ll_rn(x) : 0; }
  static __device__ __forceinline__ i64 from(double x) { return x == x ? __double2ll_rn(x) : 0; }
  static __device__ __forceinline__ i64 from(i32 x) { return x; }
  static __device__ __forceinline__ i64 from(i64 x) { return x; }
};
template <>
struct Narrow<i32> {
  static __device__ __forceinline__ i32 from(float x) { return x == x ? __float2int_rn(x) : 0; }
  static __device__ __forceinline__ i32 from(double x) { return x == x ? __double2int_rn(x) : 0; }
  static __device__ __forceinline__ i32 from(i32 x) { return x; }
  static __device__ __forceinline__ i32 from(i64 x) {
    return static_cast<i32>(x < -0x80000000ll ? -0x80000000ll : x > 0x7fffffffll ? 0x7fffffffll : x);
  }
};
template <int kLowest, int kHighest, class T>
struct NarrowByte {
  template <class C>
  static __device__ __forceinline__ T from(C x) {
    const i32 whole = Narrow<i32>::from(x);
    return static_cast<T>(whole < kLowest ? kLowest : whole > kHighest ? kHighest : whole);
  }
};
template <>
struct Narrow<i8> : NarrowByte<-128, 127, i8> {};
template <>
struct Narrow<u8> : NarrowByte<0, 255, u8> {};
template <>
struct Narrow<b8> {
  template <class C>
  static __device__ __forceinline__ b8 from(C x) {
    return b8{static_cast<u8>(x != C(0))};
  }
};
template <>
struct Narrow<f16> {
  template <class C>
  static __device__ __forceinline__ f16 from(C x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(odd_float(x)));
    return y;
  }
};
template <>
struct Narrow<bf16> {
  template <class C>
  static __device__ __forceinline__ bf16 from(C x) {
    bf16 y;
    if constexpr (Config::arch >= 800) {
      // Alone, it would be a conversion of a quarter of the rate.
      u32 pair;
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(odd_float(x)));
      y.bits = static_cast<u16>(pair);
    } else {
      const u32 bits = __float_as_uint(odd_float(x));
      const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
      y.bits = static_cast<u16>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
    }
    return y;
  }
};
template <>
struct Narrow<f8_e4m3> {
  template <class C>
  static __device__ __forceinline__ f8_e4m3 from(C x) {
    if constexpr (Config::arch >= 890) {
      u16 pair;
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(odd_float(x)));
      return f8_e4m3{static_cast<u8>(pair)};
    } else {
      return f8_e4m3{float_to_f8<4, 3, 0x7e>(odd_float(x))};
    }
  }
};
template <>
struct Narrow<f8_e5m2> {
  template <class C>
  static __device__ __forceinline__ f8_e5m2 from(C x) {
    if constexpr (Config::arch >= 890) {
      u16 pair;
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(odd_float(x)));
      return f8_e5m2{static_cast<u8>(pair)};
    } else {
      return f8_e5m2{float_to_f8<5, 2, 0x7b>(odd_float(x))};
    }
  }
};

template <>
struct Narrow<f4_e2m1> {
  template <class C>
  static __device__ __forceinline__ f4_e2m1 from(C x) {
    const float value = odd_float(x);
    const u8 bits = float_to_f8<2, 1, 7>(value);
    return f4_e2m1{static_cast<u8>(value == value ? (bits >> 4 & 8) | (bits & 7) : 7)};
  }
};
template <>
struct Narrow<i4> {
  template <class C>
  static __device__ __forceinline__ i4 from(C x) {
    const i32 whole = Narrow<i32>::from(x);
    return i4{static_cast<u8>((whole < -8 ? -8 : whole > 7 ? 7 : whole) & 15)};
  }
};
template <>
struct Narrow<b1> {
  template <class C>
  static __device__ __forceinline__ b1 from(C x) {
    return b1{static_cast<u8>(x != C(0))};
  }
};

// Up to the next power of two; what is not positive gives the smallest.
template <>
struct Narrow<f8_e8m0> {
  template <class C>
  static __device__ __forceinline__ f8_e8m0 from(C x) {
    const float value = odd_float(x);
    const u32 bits = __float_as_uint(value);
    if (value != value) return f8_e8m0{0xff};
    if (!(value > 0x1p-127f)) return f8_e8m0{0};
    const u32 exponent = (bits + 0x7fffffu) >> 23;
    return f8_e8m0{static_cast<u8>(exponent < 1 ? 1 : exponent > 0xfe ? 0xfe : exponent)};
  }
};

// The element nearest to a value; between carriers this is the conversion.
template <class T, class C>
FUSOR_DEVICE T narrow(C x) {
  return Narrow<T>::from(x);
}

// The value of that element.
template <class T>
struct Round {
  template <class C>
  static __device__ __forceinline__ Carrier<T> to(C x) {
    return widen(narrow<T>(x));
  }
};
template <>
struct Round<bf16> {
  template <class C>
  static __device__ __forceinline__ float to(C x) {
    if constexpr (Config::arch >= 800) {
      // The upper half of a pair is the bits of a float as it is.
      u32 bits;
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(odd_float(x)), "f"(0.0f));
      return __uint_as_float(bits);
    } else {
      return widen(narrow<bf16>(x));
    }
  }
};
template <class T, class C>
FUSOR_DEVICE Carrier<T> round_to(C x) {
  return Round<T>::to(x);
}

// ---- Whole vectors of them, two elements at a time where the hardware has such a conversion ----

// How two neighbours go to and from their carriers. Bits: an integer that holds both, the first one low.
template <class T>
struct PairConversion {
  enum : bool { kExists = false };
};

template <>
struct PairConversion<f16> {
  using Bits = u32;
  enum : bool { kExists = Config::arch >= 800 };
  static __device__ __forceinline__ void widen(Bits bits, float& low, float& high) {
    low = ::widen(f16{static_cast<u16>(bits)});
    high = ::widen(f16{static_cast<u16>(bits >> 16)});
  }
  static __device__ __forceinline__ Bits narrow(float low, float high) {
    Bits bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
};
template <>
struct PairConversion<bf16> {
  using Bits = u32;
  enum : bool { kExists = Config::arch >= 800 };
  static __device__ __forceinline__ void widen(Bits bits, float& low, float& high) {
    low = __uint_as_float(bits << 16);
    high = __uint_as_float(bits & 0xffff0000u);
  }
  static __device__ __forceinline__ Bits narrow(float low, float high) {
    Bits bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
};
#define FUSOR_PAIR_OF_F8(T, format)                                                          \
  template <>                                                                                \
  struct PairConversion<T> {                                                                 \
    using Bits = u16;                                                                        \
    enum : bool { kExists = Config::arch >= 890 };                                           \
    static __device__ __forceinline__ void widen(Bits bits, float& low, float& high) {       \
      u32 halves;                                                                            \
      asm("cvt.rn.f16x2." format " %0, %1;" : "=r"(halves) : "h"(bits));                     \
      PairConversion<f16>::widen(halves, low, high);                                         \
    }                                                                                        \
    static __device__ __forceinline__ Bits narrow(float low, float high) {                   \
      Bits bits;                                                                             \
      asm("cvt.rn.satfinite." format ".f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low)); \
      return bits;                                                                           \
    }                                                                                        \
  };
FUSOR_PAIR_OF_F8(f8_e4m3, "e4m3x2")
FUSOR_PAIR_OF_F8(f8_e5m2, "e5m2x2")
#undef FUSOR_PAIR_OF_F8

template <class T, int N>
FUSOR_DEVICE Vec<Carrier<T>, N> widen(const Vec<T, N>& x) {
  Vec<Carrier<T>, N> y;
  if constexpr (PairConversion<T>::kExists && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      typename PairConversion<T>::Bits bits;
      memcpy(&bits, &x.lane[i], sizeof bits);
      PairConversion<T>::widen(bits, y.lane[i], y.lane[i + 1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y.lane[i] = widen(x.lane[i]);
  }
  return y;
}

template <class T, class C, int N>
FUSOR_DEVICE Vec<T, N> narrow(const Vec<C, N>& x) {
  Vec<T, N> y;
  if constexpr (PairConversion<T>::kExists && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const auto bits = PairConversion<T>::narrow(odd_float(x.lane[i]), odd_float(x.lane[i + 1]));
      memcpy(&y.lane[i], &bits, sizeof bits);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y.lane[i] = narrow<T>(x.lane[i]);
  }
  return y;
}
