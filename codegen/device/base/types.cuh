// Owns the element types of core/dtype.def on the device, their carriers and vectors. Kernels are compiled
// with --fmad=false, so that a value does not depend on which ops were fused: where a fused multiply-add is
// meant, multiply_add() says so.
#pragma once

#ifndef FUSOR_INDEX_BITS
#error "the generated header comes first: it says how wide an Index is"
#endif

#define FUSOR_DEVICE static __device__ __forceinline__

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// Coordinates, offsets and counts of elements; u-forms for the divisors of base/indexing.cuh.
#if FUSOR_INDEX_BITS == 64
using Index = i64;
using UnsignedIndex = u64;
#else
using Index = i32;
using UnsignedIndex = u32;
#endif

// ---- Element types and their carriers: the type in which a value is held between steps ----

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8_e4m3 {
  u8 bits;
};
struct f8_e5m2 {
  u8 bits;
};
struct b8 {
  u8 bits;
};

template <class T>
struct CarrierOf {
  using type = float;
};
template <>
struct CarrierOf<double> {
  using type = double;
};
template <>
struct CarrierOf<i64> {
  using type = i64;
};
template <>
struct CarrierOf<i32> {
  using type = i32;
};
template <>
struct CarrierOf<i8> {
  using type = i32;
};
template <>
struct CarrierOf<u8> {
  using type = i32;
};
template <>
struct CarrierOf<b8> {
  using type = i32;
};
template <class T>
using Carrier = typename CarrierOf<T>::type;

// N neighbours. Aligned to its size up to 16 bytes, so that it moves in whole accesses.
template <class T, int N>
struct alignas(sizeof(T) * N % 16 == 0  ? 16
               : sizeof(T) * N % 8 == 0 ? 8
               : sizeof(T) * N % 4 == 0 ? 4
                                        : sizeof(T)) Vec {
  T lane[N];
  __device__ __forceinline__ T& operator[](int i) { return lane[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return lane[i]; }
};

// a * b + c, rounded once.
FUSOR_DEVICE double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
FUSOR_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FUSOR_DEVICE i64 multiply_add(i64 a, i64 b, i64 c) { return a * b + c; }
FUSOR_DEVICE i32 multiply_add(i32 a, i32 b, i32 c) { return a * b + c; }
