// Owns integers of the form unit * kScale + kRest: the unit is a coordinate that only the run knows, scale
// and rest are template arguments, so that the compiler folds arithmetic on indices.
#pragma once

#include "codegen/device/base/memory.cuh"

// unit * kScale + kRest. The unit is 0 or more where it is the coordinate along an axis.
template <int kAxis_, int kScale_, int kRest_>
struct Counted {
  enum : int { kAxis = kAxis_, kScale = kScale_, kRest = kRest_ };
  enum : bool { kIsNumber = kScale == 0 };  // known at compile time
  Index unit;
  __device__ __forceinline__ Index value() const { return unit * kScale + kRest; }
  __device__ __forceinline__ operator Index() const { return value(); }
};
template <int kRest>
using Number = Counted<-1, 0, kRest>;
// A number of which nothing is known.
using Unknown = Counted<-1, 1, 0>;

// A boolean that is known at compile time.
template <bool kHolds>
struct Known {
  __device__ __forceinline__ constexpr operator bool() const { return kHolds; }
};
template <class Truth>
constexpr int kKnown = -1;  // 0 or 1 where it is known
template <bool kHolds>
constexpr int kKnown<Known<kHolds>> = kHolds;

template <int kSign, class A, class B>
FUSOR_DEVICE auto count_sum(A a, B b) {
  if constexpr (B::kIsNumber)
    return Counted<A::kAxis, A::kScale, A::kRest + kSign * B::kRest>{a.unit};
  else if constexpr (A::kIsNumber)
    return Counted<B::kAxis, kSign * B::kScale, A::kRest + kSign * B::kRest>{b.unit};
  else if constexpr (A::kAxis >= 0 && A::kAxis == B::kAxis)
    return Counted<A::kAxis, A::kScale + kSign * B::kScale, A::kRest + kSign * B::kRest>{a.unit};
  else
    return Unknown{a.value() + kSign * b.value()};
}
template <class A, class B>
FUSOR_DEVICE auto count_add(A a, B b) {
  return count_sum<1>(a, b);
}
template <class A, class B>
FUSOR_DEVICE auto count_sub(A a, B b) {
  return count_sum<-1>(a, b);
}
template <class A, class B>
FUSOR_DEVICE auto count_mul(A a, B b) {
  if constexpr (B::kIsNumber)
    return Counted<A::kAxis, A::kScale * B::kRest, A::kRest * B::kRest>{a.unit};
  else if constexpr (A::kIsNumber)
    return Counted<B::kAxis, B::kScale * A::kRest, B::kRest * A::kRest>{b.unit};
  else
    return Unknown{a.value() * b.value()};
}
// A division by zero gives zero.
template <class A, class B>
FUSOR_DEVICE auto count_div(A a, B b) {
  if constexpr (!B::kIsNumber || B::kRest <= 0) {
    // Without a branch, behind which the quotient would not serve all places of a window.
    const Index x = a.value(), y = b.value();
    const bool divides = y != 0 && y != -1;
    const Index quotient = x / (divides ? y : 1);
    return Unknown{divides ? quotient : y == 0 ? 0 : -x};
  } else if constexpr (A::kIsNumber) {
    return Number<A::kRest / B::kRest>{0};
  } else if constexpr (A::kAxis >= 0 && A::kScale > 0 && A::kRest >= 0 && A::kScale % B::kRest == 0) {
    return Counted<A::kAxis, A::kScale / B::kRest, A::kRest / B::kRest>{a.unit};
  } else {
    return Unknown{a.value() / B::kRest};
  }
}
template <class A, class B>
FUSOR_DEVICE auto count_min(A a, B b) {
  if constexpr (A::kIsNumber && B::kIsNumber)
    return Number<(A::kRest < B::kRest ? A::kRest : B::kRest)>{0};
  else
    return Unknown{a.value() < b.value() ? a.value() : b.value()};
}
template <class A, class B>
FUSOR_DEVICE auto count_max(A a, B b) {
  if constexpr (A::kIsNumber && B::kIsNumber)
    return Number<(A::kRest > B::kRest ? A::kRest : B::kRest)>{0};
  else
    return Unknown{a.value() > b.value() ? a.value() : b.value()};
}
template <class A>
FUSOR_DEVICE A count_identity(A a) {
  return a;
}
template <class A, class B>
FUSOR_DEVICE auto count_cmp_ge(A a, B b) {
  constexpr bool kAlike =
      A::kIsNumber ? B::kIsNumber : A::kAxis >= 0 && A::kAxis == B::kAxis && A::kScale == B::kScale;
  if constexpr (kAlike)
    return Known<(A::kRest >= B::kRest)>{};
  else if constexpr (A::kAxis >= 0 && A::kScale > 0 && B::kIsNumber && A::kRest >= B::kRest)
    return Known<true>{};
  else
    return a.value() >= b.value();
}
template <class A, class B>
FUSOR_DEVICE auto count_cmp_lt(A a, B b) {
  const auto other = count_cmp_ge(a, b);
  if constexpr (kKnown<decltype(count_cmp_ge(a, b))> >= 0)
    return Known<kKnown<decltype(count_cmp_ge(a, b))> == 0>{};
  else
    return !other;
}
template <class A, class B>
FUSOR_DEVICE auto count_logical_and(A a, B b) {
  if constexpr (kKnown<A> == 0 || kKnown<B> == 0)
    return Known<false>{};
  else if constexpr (kKnown<A> == 1)
    return b;
  else if constexpr (kKnown<B> == 1)
    return a;
  else
    return static_cast<bool>(a & b);
}
template <class A, class B, class Truth>
FUSOR_DEVICE auto count_binary_select(A a, B b, Truth holds) {
  if constexpr (kKnown<Truth> == 1)
    return a;
  else if constexpr (kKnown<Truth> == 0)
    return b;
  else
    return Unknown{holds ? a.value() : b.value()};
}
// Whether it is one of 0 ... extent - 1.
template <class A>
FUSOR_DEVICE auto is_within(A a, Index extent) {
  if constexpr (A::kIsNumber && A::kRest < 0)
    return Known<false>{};
  else
    return static_cast<UnsignedIndex>(a.value()) < static_cast<UnsignedIndex>(extent);
}

template <int N, class T>
FUSOR_DEVICE Vec<T, N> splat(T element) {
  Vec<T, N> all;
#pragma unroll
  for (int i = 0; i < N; ++i) all.lane[i] = element;
  return all;
}

// N adjacent elements where `holds`, else N times `other`; in whole accesses.
template <int N, class T, class Truth>
FUSOR_DEVICE Vec<T, N> load_counted(const T* from, Truth holds, T other) {
  if constexpr (kKnown<Truth> == 0) {
    return splat<N>(other);
  } else if constexpr (kKnown<Truth> == 1) {
    return load_whole<N>(from, N);
  } else {
    constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
    Vec<T, N> to = splat<N>(other);
    Words<kBytes> pieces[N * sizeof(T) / kBytes] = {};
    memcpy(&pieces, &to, sizeof to);
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / kBytes); ++i)
      load_words_where(reinterpret_cast<const char*>(from) + i * kBytes, pieces[i], holds);
    memcpy(&to, &pieces, sizeof to);
    return to;
  }
}
// The same, N elements `apart`.
template <int N, class T, class Truth>
FUSOR_DEVICE Vec<T, N> load_counted_strided(const T* from, Index apart, Truth holds, T other) {
  if constexpr (kKnown<Truth> == 0) {
    return splat<N>(other);
  } else {
    Vec<T, N> to = splat<N>(other);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (holds) to.lane[i] = load(from + i * apart);
    return to;
  }
}
