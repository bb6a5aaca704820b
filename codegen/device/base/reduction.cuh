// Owns the reductions of core/attributes.h over elements that arrive in any order: reduction_<mode><T> in
// compute type T, and their combination across a warp.
#pragma once

#include "codegen/device/base/pointwise.cuh"

template <class T>
struct reduction_add {
  T value;
  __device__ __forceinline__ void init() { value = T(0); }
  __device__ __forceinline__ void add(T x) { value += x; }
  __device__ __forceinline__ void combine(const reduction_add& other) { value += other.value; }
  __device__ __forceinline__ T result() const { return value; }
};

template <class T>
struct reduction_avg : reduction_add<T> {
  __device__ __forceinline__ T result(T count) const { return Exact::div(this->value, count); }
};

template <class T>
struct reduction_norm1 : reduction_add<T> {
  __device__ __forceinline__ void add(T x) { this->value += Exact::abs(x); }
};

template <class T>
struct reduction_norm2 : reduction_add<T> {
  __device__ __forceinline__ void add(T x) { this->value = multiply_add(x, x, this->value); }
  __device__ __forceinline__ T result() const { return Exact::sqrt(this->value); }
};

template <class T>
struct reduction_mul {
  T value;
  __device__ __forceinline__ void init() { value = T(1); }
  __device__ __forceinline__ void add(T x) { value *= x; }
  __device__ __forceinline__ void combine(const reduction_mul& other) { value *= other.value; }
  __device__ __forceinline__ T result() const { return value; }
};

template <class T>
struct reduction_mul_no_zeros : reduction_mul<T> {
  __device__ __forceinline__ void add(T x) { this->value *= x == T(0) ? T(1) : x; }
};

template <class T>
struct reduction_max {
  T value;
  __device__ __forceinline__ void init() { value = kLowest<T>; }
  __device__ __forceinline__ void add(T x) { value = Exact::max(value, x); }
  __device__ __forceinline__ void combine(const reduction_max& other) { add(other.value); }
  __device__ __forceinline__ T result() const { return value; }
};

template <class T>
struct reduction_min {
  T value;
  __device__ __forceinline__ void init() { value = kLargest<T>; }
  __device__ __forceinline__ void add(T x) { value = Exact::min(value, x); }
  __device__ __forceinline__ void combine(const reduction_min& other) { add(other.value); }
  __device__ __forceinline__ T result() const { return value; }
};

template <class T>
struct reduction_amax : reduction_max<T> {
  __device__ __forceinline__ void init() { this->value = T(0); }
  __device__ __forceinline__ void add(T x) { reduction_max<T>::add(Exact::abs(x)); }
};

// A pass over a row of a site in phases: what it adds needs totals of earlier ones.
template <int kNumber>
struct Phase {};

// The accumulator of the lane whose number differs by `distance`, a power of two.
template <class Accumulator>
FUSOR_DEVICE Accumulator from_lane(const Accumulator& mine, int distance) {
  static_assert(sizeof(Accumulator) % 4 == 0, "accumulators are made of 4-byte words");
  u32 words[sizeof(Accumulator) / 4];
  memcpy(words, &mine, sizeof words);
#pragma unroll
  for (u32& word : words) word = __shfl_xor_sync(0xffffffffu, word, distance);
  Accumulator other;
  memcpy(&other, words, sizeof words);
  return other;
}

// Combines the accumulators of `kLanes` neighbouring lanes, a power of two; each of them has the total.
template <int kLanes, class Accumulator>
FUSOR_DEVICE void combine_lanes(Accumulator& total) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) total.combine(from_lane(total, distance));
}
