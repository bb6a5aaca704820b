// Owns what stands behind the formulas of core/pointwise.def on the host: integers that wrap and the
// functions of fn::.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "core/philox.def"

namespace fusor::reference {

/// A signed integer whose arithmetic wraps, as the device's does.
template <class Integer>
struct Wrapped {
  using Unsigned = std::make_unsigned_t<Integer>;
  Integer value = 0;

  Wrapped() = default;
  constexpr explicit Wrapped(Integer value_) : value(value_) {}
  static constexpr Wrapped wrap(Unsigned bits) { return Wrapped(static_cast<Integer>(bits)); }
  constexpr Unsigned bits() const { return static_cast<Unsigned>(value); }

  friend constexpr Wrapped operator+(Wrapped a, Wrapped b) { return wrap(a.bits() + b.bits()); }
  friend constexpr Wrapped operator-(Wrapped a, Wrapped b) { return wrap(a.bits() - b.bits()); }
  friend constexpr Wrapped operator*(Wrapped a, Wrapped b) { return wrap(a.bits() * b.bits()); }
  friend constexpr Wrapped operator-(Wrapped a) { return wrap(Unsigned{0} - a.bits()); }
  friend constexpr bool operator==(Wrapped, Wrapped) = default;
  friend constexpr bool operator<(Wrapped a, Wrapped b) { return a.value < b.value; }
  friend constexpr bool operator>(Wrapped a, Wrapped b) { return a.value > b.value; }
  friend constexpr bool operator<=(Wrapped a, Wrapped b) { return a.value <= b.value; }
  friend constexpr bool operator>=(Wrapped a, Wrapped b) { return a.value >= b.value; }
};

/// The type that does the arithmetic of numbers stored as S, and the way back.
template <class S>
struct ArithmeticOf {
  using Type = Wrapped<S>;
};
template <std::floating_point S>
struct ArithmeticOf<S> {
  using Type = S;
};
template <class S>
using Arithmetic = typename ArithmeticOf<S>::Type;

template <std::floating_point S>
constexpr S stored(S value) {
  return value;
}
template <class S>
constexpr S stored(Wrapped<S> value) {
  return value.value;
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

inline uint64_t whole_product(uint32_t a, uint32_t b) { return uint64_t{a} * b; }
FUSOR_PHILOX(inline, philox_block, uint32_t, uint64_t, whole_product)

template <class S>
uint64_t bits_of(Wrapped<S> value) {
  return static_cast<uint64_t>(int64_t{value.value});
}
template <std::floating_point S>
uint64_t bits_of(S value) {
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

/// Elementary functions. Integers: division and remainder by zero give 0.
struct HostMath {
  template <std::floating_point T>
  static T div(T a, T b) {
    return a / b;
  }
  template <class I>
  static Wrapped<I> div(Wrapped<I> a, Wrapped<I> b) {
    if (b.value == 0) return Wrapped<I>(0);
    return b.value == -1 ? -a : Wrapped<I>(static_cast<I>(a.value / b.value));
  }
  template <std::floating_point T>
  static T mod(T a, T b) {
    return std::fmod(a, b);
  }
  template <class I>
  static Wrapped<I> mod(Wrapped<I> a, Wrapped<I> b) {
    if (b.value == 0 || b.value == -1) return Wrapped<I>(0);
    return Wrapped<I>(static_cast<I>(a.value % b.value));
  }
  // NaN wins over every number.
  template <class T>
  static T max(T a, T b) {
    return a > b || is_nan(a) ? a : b;
  }
  template <class T>
  static T min(T a, T b) {
    return a < b || is_nan(a) ? a : b;
  }
  template <std::floating_point T>
  static T abs(T a) {
    return std::fabs(a);
  }
  template <class I>
  static Wrapped<I> abs(Wrapped<I> a) {
    return a.value < 0 ? -a : a;
  }

  template <class T>
  static T pow(T a, T b) {
    return std::pow(a, b);
  }
  template <class T>
  static T sqrt(T a) {
    return std::sqrt(a);
  }
  template <class T>
  static T rsqrt(T a) {
    return T(1) / std::sqrt(a);
  }
  template <class T>
  static T exp(T a) {
    return std::exp(a);
  }
  template <class T>
  static T expm1(T a) {
    return std::expm1(a);
  }
  template <class T>
  static T log(T a) {
    return std::log(a);
  }
  template <class T>
  static T log1p(T a) {
    return std::log1p(a);
  }
  template <class T>
  static T sin(T a) {
    return std::sin(a);
  }
  template <class T>
  static T cos(T a) {
    return std::cos(a);
  }
  template <class T>
  static T tan(T a) {
    return std::tan(a);
  }
  template <class T>
  static T ceil(T a) {
    return std::ceil(a);
  }
  template <class T>
  static T floor(T a) {
    return std::floor(a);
  }
  template <class T>
  static T erf(T a) {
    return std::erf(a);
  }
  template <class T>
  static T tanh(T a) {
    return std::tanh(a);
  }
  // exp of a non-positive number only: neither tail overflows, and the lower one keeps its digits.
  template <class T>
  static T sigmoid(T a) {
    const T tail = std::exp(-std::fabs(a));
    return (a >= T(0) ? T(1) : tail) / (T(1) + tail);
  }
  // The slope of sigmoid, of either sign's tail alone: no difference of numbers that are nearly equal.
  template <class T>
  static T logistic_slope(T a) {
    const T tail = std::exp(-std::fabs(a));
    return tail / ((T(1) + tail) * (T(1) + tail));
  }
  // sigmoid(u) * (1 + v * sigmoid(-u)), both of one exponential of a non-positive number.
  template <class T>
  static T gated_slope(T u, T v) {
    const T tail = std::exp(-std::fabs(u)), larger = T(1) / (T(1) + tail), smaller = tail / (T(1) + tail);
    return u < T(0) ? smaller * (T(1) + v * larger) : larger * (T(1) + v * smaller);
  }
  // Within -bound and bound; NaN stays.
  template <class T>
  static T clip(T a, T bound) {
    return a > bound ? bound : a < -bound ? -bound : a;
  }
  // Through erfc, whose lower tail keeps its digits where 1 + erf would cancel.
  template <class T>
  static T normal_cdf(T a) {
    return T(0.5) * std::erfc(-a / std::numbers::sqrt2_v<T>);
  }
  template <class T>
  static T normal_pdf(T a) {
    return T(0.3989422804014327) * std::exp(T(-0.5) * a * a);
  }
  template <class T>
  static T philox(T seed, T offset, T index) {
    uint32_t words[4];
    philox_block(bits_of(seed), bits_of(offset), bits_of(index) >> 2, words);
    const uint32_t word = words[bits_of(index) & 3];
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(word);
    else
      return T(static_cast<decltype(T::value)>(word));
  }
  template <class T>
  static T multiply_add(T a, T b, T c) {
    return a * b + c;
  }
};

}  // namespace fusor::reference
