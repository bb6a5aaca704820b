// Owns the element types of core/dtype.def on the device, their carriers and vectors. Kernels are compiled
// with --fmad=false, so that a value does not depend on which ops were fused: where a fused multiply-add is
// meant, multiply_add() says so.
#pragma once

#include "codegen/device/base/elements.cuh"

#define FUSOR_DEVICE static __device__ __forceinline__

// Coordinates, offsets and counts of elements; u-forms for the divisors of base/indexing.cuh.
// The generated header comes first: it says how wide they are.
template <int kBits>
struct IndexOfBits {
  using type = i32;
  using unsigned_type = u32;
};
template <>
struct IndexOfBits<64> {
  using type = i64;
  using unsigned_type = u64;
};
using Index = IndexOfBits<Config::index_bits>::type;
using UnsignedIndex = IndexOfBits<Config::index_bits>::unsigned_type;

// Where a member lies in a struct, in bytes: the generated header compares it with where the host puts it.
#define FUSOR_PLACE(type, member) __INTADDR__(&(((type*)0)->member))

// ---- The carriers of element types: the type in which a value is held between steps ----

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
template <>
struct CarrierOf<i4> {
  using type = i32;
};
template <>
struct CarrierOf<b1> {
  using type = i32;
};
template <class T>
using Carrier = typename CarrierOf<T>::type;

// Bits of an element in memory, for the types of which several share a byte.
template <class T>
constexpr int kPackedBits = 0;
template <>
constexpr int kPackedBits<f4_e2m1> = 4;
template <>
constexpr int kPackedBits<i4> = 4;
template <>
constexpr int kPackedBits<b1> = 1;

// One of two types.
template <bool kHolds, class Then, class Else>
struct IfElse {
  using type = Then;
};
template <class Then, class Else>
struct IfElse<false, Then, Else> {
  using type = Else;
};
template <bool kHolds, class Then, class Else>
using If = typename IfElse<kHolds, Then, Else>::type;

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
