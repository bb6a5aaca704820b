// Owns the reductions of core/ops/reduction.h over elements that arrive in any order: reduction_<mode><T> in
// compute type T, and their combination across a warp.
#pragma once

#include "codegen/device/base/pointwise.cuh"

template <class T>
struct reduction_add {
  T value;
  __device__ __forceinline__ void init() { value = T(0); }
  __device__ __forceinline__ void add(T x) { value += x; }
  __device__ __forceinline__ void add_where(bool holds, T x) { value = holds ? value + x : value; }
  __device__ __forceinline__ void combine(const reduction_add& other) { value += other.value; }
  __device__ __forceinline__ T result() const { return value; }
};

// A total divided by how many elements it has: correctly rounded, without the branches that division needs
// for divisors of any size.
template <class T>
FUSOR_DEVICE T divide_by_count(T total, T count) {
  return Exact::div(total, count);
}
FUSOR_DEVICE float divide_by_count(float total, float count) {
  const float estimate = reciprocal_short(count);
  const float reciprocal = multiply_add(multiply_add(-estimate, count, 1.0f), estimate, estimate);
  const float quotient = total * reciprocal;
  const float rest = multiply_add(-quotient, count, total);
  return rest == rest ? multiply_add(rest, reciprocal, quotient) : quotient;
}

template <class T>
struct reduction_avg : reduction_add<T> {
  using reduction_add<T>::result;  // of a sum beside the average
  __device__ __forceinline__ T result(T count) const { return divide_by_count(this->value, count); }
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

// The larger or smaller lane each of two pairs of elements of 16 bits. NaN wins.
#define FUSOR_PAIRS(T, name, format)                                     \
  FUSOR_DEVICE u32 name##_of_pairs(T, u32 a, u32 b) {                    \
    u32 y;                                                               \
    asm(#name ".NaN." format " %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b)); \
    return y;                                                            \
  }
FUSOR_PAIRS(f16, max, "f16x2")
FUSOR_PAIRS(f16, min, "f16x2")
FUSOR_PAIRS(bf16, max, "bf16x2")
FUSOR_PAIRS(bf16, min, "bf16x2")
#undef FUSOR_PAIRS

// The largest or smallest of elements of 16 bits as they are stored: of two neighbouring lanes, the even one
// low.
template <class T, bool kIsLargest>
struct reduction_of_pairs {
  u32 pair;
  __device__ __forceinline__ void init() {
    pair = bit_cast<u16>(narrow<T>(kIsLargest ? kLowest<float> : kLargest<float>)) * 0x10001u;
  }
  __device__ __forceinline__ void add(u32 two) {
    if constexpr (Config::arch < 800)
      pair = either(pair, two) | either(pair >> 16, two >> 16) << 16;
    else if constexpr (kIsLargest)
      pair = max_of_pairs(T{}, pair, two);
    else
      pair = min_of_pairs(T{}, pair, two);
  }
  __device__ __forceinline__ void combine(const reduction_of_pairs& other) { add(other.pair); }
  __device__ __forceinline__ float result(int lane) const { return low(pair >> 16 * lane); }

 private:
  static __device__ __forceinline__ float low(u32 bits) { return widen(bit_cast<T>(static_cast<u16>(bits))); }
  static __device__ __forceinline__ u32 either(u32 a, u32 b) {
    const float of_both = kIsLargest ? Exact::max(low(a), low(b)) : Exact::min(low(a), low(b));
    return bit_cast<u16>(narrow<T>(of_both));
  }
};
template <class T>
using reduction_max_of_pairs = reduction_of_pairs<T, true>;
template <class T>
using reduction_min_of_pairs = reduction_of_pairs<T, false>;
// Lanes i and i + 1; a last one without a neighbour twice.
template <class T, int N>
FUSOR_DEVICE u32 pair_of(const Vec<T, N>& elements, int i) {
  return bit_cast<u16>(elements.lane[i]) | u32(bit_cast<u16>(elements.lane[i + 1 < N ? i + 1 : i])) << 16;
}

template <class T>
struct reduction_amax : reduction_max<T> {
  __device__ __forceinline__ void init() { this->value = T(0); }
  __device__ __forceinline__ void add(T x) { reduction_max<T>::add(Exact::abs(x)); }
};

// ---- Totals that need another one of the same elements, in one pass ----

// The sum of exp(x - largest x): what was added shrinks when the largest grows. It starts below every number,
// but not at minus infinity, so that differences exist.
template <class T>
struct reduction_exp_sum {
  T largest, sum;
  __device__ __forceinline__ void init() {
    largest = static_cast<T>(-3.4028234663852886e38);
    sum = T(0);
  }
  __device__ __forceinline__ void add(T x) {
    const T distance = x - largest;
    const T smaller = Short::exp(-Exact::abs(distance));
    sum = distance > T(0) ? multiply_add(sum, smaller, T(1)) : sum + smaller;
    largest = Exact::max(largest, x);
  }
  template <int N>
  __device__ __forceinline__ void add_lanes(const Vec<T, N>& x, int count = N) {
    const T before = largest;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) largest = Exact::max(largest, x[i]);
    sum *= Short::exp(before - largest);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) sum += Short::exp(x[i] - largest);
  }
  __device__ __forceinline__ void combine(const reduction_exp_sum& other) {
    const T before = largest;
    largest = Exact::max(largest, other.largest);
    sum = sum * Short::exp(before - largest) + other.sum * Short::exp(other.largest - largest);
  }
  // Nothing was added but minus infinity where there is no sum.
  __device__ __forceinline__ T maximum() const { return sum == T(0) ? kLowest<T> : largest; }
  // Infinity less itself is no number: of rows whose largest element is infinite, of either sign.
  __device__ __forceinline__ T result() const {
    return sum == T(0) || largest == kLargest<T> ? kLargest<T> - kLargest<T> : sum;
  }
};

// The sum of squares of the distances to the mean.
template <class T>
struct reduction_deviation {
  T count, mean, sum;
  __device__ __forceinline__ void init() { count = mean = sum = T(0); }
  // The count with the next element, and its share: the same for totals that grow side by side.
  struct Step {
    T count, share;
  };
  __device__ __forceinline__ Step next() const { return {count + T(1), reciprocal_short(count + T(1))}; }
  __device__ __forceinline__ void add(T x, const Step& step) {
    count = step.count;
    const T distance = x - mean;
    mean = multiply_add(distance, step.share, mean);
    sum = multiply_add(distance, x - mean, sum);
  }
  template <int N>
  __device__ __forceinline__ void add_lanes(const Vec<T, N>& x, int lanes = N) {
    if (lanes <= 0) return;
    const T added = static_cast<T>(lanes < N ? lanes : N);
    T total = T(0), squares = T(0);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < lanes) total += x[i];
    const T middle = total * reciprocal_short(added);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < lanes) squares = multiply_add(x[i] - middle, x[i] - middle, squares);
    const T distance = middle - mean, share = added * reciprocal_short(count + added);
    sum += multiply_add(distance * distance, count * share, squares);
    mean = multiply_add(distance, share, mean);
    count += added;
  }
  // The same bits whichever of the two is `other`.
  __device__ __forceinline__ void combine(const reduction_deviation& other) {
    const T all = count + other.count, share = all > T(0) ? reciprocal_short(all) : T(0);
    const T distance = mean - other.mean;
    sum = (sum + other.sum) + distance * distance * (count * other.count * share);
    mean = (mean * count + other.mean * other.count) * share;
    count = all;
  }
  __device__ __forceinline__ T result() const { return sum; }
  __device__ __forceinline__ T result(T elements) const { return divide_by_count(sum, elements); }
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
