// Owns what stands behind fn in core/pointwise.def on the device: Exact (CUDA's own functions, a few ulp) and
// Short (special-function instructions; relative errors below 1e-5, for results stored in 16 bits or less; of
// normal_cdf and what is made of it where that is above 1e-9).
#pragma once

// A generated header includes this file and no other: its sites also load, store and find their places.
#include "codegen/device/base/conversions.cuh"
#include "codegen/device/base/indexing.cuh"
#include "codegen/device/base/memory.cuh"
#include "core/philox.def"

// The ends of a carrier's range; the infinities of reals.
template <class T>
constexpr T kLargest = T(0.5) != T(0)   ? static_cast<T>(__builtin_bit_cast(double, 0x7ff0000000000000ll))
                       : sizeof(T) == 8 ? static_cast<T>(0x7fffffffffffffffll)
                                        : static_cast<T>(0x7fffffff);
template <class T>
constexpr T kLowest = T(0.5) != T(0) ? -kLargest<T> : -kLargest<T> - T(1);

// One instruction; of a product of two u64 that are zero-extended, an addition of zero is left.
FUSOR_DEVICE u64 whole_product(u32 a, u32 b) {
  u64 product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}
FUSOR_PHILOX(FUSOR_DEVICE, philox_block, u32, u64, whole_product)

// Word `index` of the stream.
FUSOR_DEVICE u32 philox_word(u64 seed, u64 offset, u64 index) {
  u32 words[4];
  philox_block(seed, offset, index >> 2, words);
  const u32 low = index & 1 ? words[1] : words[0], high = index & 1 ? words[3] : words[2];
  return index & 2 ? high : low;
}

// Random words of a vector's lanes, asked for in order. Lane i reads the word kFirst + i * kStep behind a
// multiple of four, so that a block of words serves neighbours.
template <int N, int kStep, int kFirst>
struct RandomWords {
  u32 block[4];

  __device__ __forceinline__ i64 at(int lane, i64 seed, i64 offset, i64 index) {
    const u64 key = static_cast<u64>(seed), counter = static_cast<u64>(offset),
              word = static_cast<u64>(index);
    if constexpr (N * kStep % 4 != 0) return philox_word(key, counter, word);  // a vector may begin anywhere
    const int place = kFirst + lane * kStep;
    if (lane == 0 || place % 4 < kStep) philox_block(key, counter, word >> 2, block);
    return block[place % 4];
  }
};

// Whether a word of 32 bits is less than a limit that all lanes share: one comparison a lane.
FUSOR_DEVICE i32 is_word_below(i64 word, i64 limit) {
  const u32 last = limit > 0x100000000ll ? 0xffffffffu : static_cast<u32>(limit - 1);
  return limit > 0 && static_cast<u32>(word) <= last;
}

// Functions of one argument that CUDA has for both widths: name, the one for float, the one for double.
#define FUSOR_BUILTIN(name, narrow_form, wide_form)           \
  FUSOR_DEVICE float name(float a) { return narrow_form(a); } \
  FUSOR_DEVICE double name(double a) { return wide_form(a); }

struct Exact {
  FUSOR_BUILTIN(sqrt, ::sqrtf, ::sqrt)
  FUSOR_BUILTIN(rsqrt, ::rsqrtf, ::rsqrt)
  FUSOR_BUILTIN(exp, ::expf, ::exp)
  FUSOR_BUILTIN(expm1, ::expm1f, ::expm1)
  FUSOR_BUILTIN(log, ::logf, ::log)
  FUSOR_BUILTIN(log1p, ::log1pf, ::log1p)
  FUSOR_BUILTIN(sin, ::sinf, ::sin)
  FUSOR_BUILTIN(cos, ::cosf, ::cos)
  FUSOR_BUILTIN(tan, ::tanf, ::tan)
  FUSOR_BUILTIN(tanh, ::tanhf, ::tanh)
  FUSOR_BUILTIN(erf, ::erff, ::erf)
  FUSOR_BUILTIN(normal_cdf, ::normcdff, ::normcdf)
  FUSOR_BUILTIN(ceil, ::ceilf, ::ceil)
  FUSOR_BUILTIN(floor, ::floorf, ::floor)

  // exp of a non-positive number only: neither tail overflows, and the lower one keeps its digits.
  template <class T>
  FUSOR_DEVICE T sigmoid(T a) {
    const T tail = exp(-abs(a));
    return (a < T(0) ? tail : T(1)) / (T(1) + tail);
  }
  // The slope of sigmoid, of either sign's tail alone: no difference of numbers that are nearly equal.
  template <class T>
  FUSOR_DEVICE T logistic_slope(T a) {
    const T tail = exp(-abs(a));
    return tail / ((T(1) + tail) * (T(1) + tail));
  }
  // sigmoid(u) * (1 + v * sigmoid(-u)), both of one exponential of a non-positive number.
  template <class T>
  FUSOR_DEVICE T gated_slope(T u, T v) {
    const T tail = exp(-abs(u)), larger = T(1) / (T(1) + tail), smaller = tail / (T(1) + tail);
    return u < T(0) ? smaller * (T(1) + v * larger) : larger * (T(1) + v * smaller);
  }
  // Within -bound and bound; NaN stays.
  template <class T>
  FUSOR_DEVICE T clip(T a, T bound) {
    return max(min(a, bound), -bound);
  }
  template <class T>
  FUSOR_DEVICE T normal_pdf(T a) {
    return T(0.3989422804014327) * exp(T(-0.5) * a * a);
  }
  template <class T>
  FUSOR_DEVICE T multiply_add(T a, T b, T c) {
    return ::multiply_add(a, b, c);
  }

  template <class T>
  FUSOR_DEVICE T philox(T seed, T offset, T index) {
    return static_cast<T>(
        philox_word(static_cast<u64>(seed), static_cast<u64>(offset), static_cast<u64>(index)));
  }
  FUSOR_DEVICE float pow(float a, float b) { return ::powf(a, b); }
  FUSOR_DEVICE double pow(double a, double b) { return ::pow(a, b); }
  // The remainder has the dividend's sign.
  FUSOR_DEVICE float mod(float a, float b) { return ::fmodf(a, b); }
  FUSOR_DEVICE double mod(double a, double b) { return ::fmod(a, b); }
  FUSOR_DEVICE float div(float a, float b) { return a / b; }
  FUSOR_DEVICE double div(double a, double b) { return a / b; }

  // Integers: a division by zero gives zero, the overflowing one wraps. Without branches, and one division
  // for a quotient and its remainder.
  template <class T>
  FUSOR_DEVICE T div(T a, T b) {
    const T quotient = a / regular_divisor(b);
    return b == 0 ? T(0) : b == T(-1) ? T(0) - a : quotient;
  }
  template <class T>
  FUSOR_DEVICE T mod(T a, T b) {
    const T divisor = regular_divisor(b);
    return a - a / divisor * divisor;
  }
  template <class T>
  FUSOR_DEVICE T regular_divisor(T b) {
    return b == 0 || b == T(-1) ? T(1) : b;
  }

  template <class T>
  FUSOR_DEVICE T abs(T a) {
    return a < T(0) ? -a : a;
  }
  FUSOR_DEVICE float abs(float a) { return ::fabsf(a); }
  FUSOR_DEVICE double abs(double a) { return ::fabs(a); }

  // NaN wins.
  template <class T>
  FUSOR_DEVICE T max(T a, T b) {
    return a > b || a != a ? a : b;
  }
  template <class T>
  FUSOR_DEVICE T min(T a, T b) {
    return a < b || a != a ? a : b;
  }
  FUSOR_DEVICE float max(float a, float b) {
    if constexpr (Config::arch >= 800) {
      float y;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    } else {
      return max<float>(a, b);
    }
  }
  FUSOR_DEVICE float min(float a, float b) {
    if constexpr (Config::arch >= 800) {
      float y;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    } else {
      return min<float>(a, b);
    }
  }
};
#undef FUSOR_BUILTIN

// One special-function instruction each.
FUSOR_DEVICE float exp2_short(float a) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
FUSOR_DEVICE float reciprocal_short(float a) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
// Divides by one number again and again: a is scaled where the number has no normal reciprocal.
struct ShortDivisor {
  float scale, reciprocal;
  ShortDivisor() = default;
  __device__ __forceinline__ explicit ShortDivisor(float divisor) {
    const float size = ::fabsf(divisor);
    scale = size < 0x1p-100f ? 0x1p64f : size > 0x1p100f ? 0x1p-64f : 1.0f;
    reciprocal = reciprocal_short(divisor * scale);
  }
  __device__ __forceinline__ float operator()(float a) const { return a * scale * reciprocal; }
};
FUSOR_DEVICE float log2_short(float a) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}

template <class T>
constexpr T kLog2E = T(1.4426950408889634);
template <class T>
constexpr T kLn2 = T(0.6931471805599453);

// float only; what is not named here, doubles and integers are Exact's.
struct Short : Exact {
  using Exact::div;
  using Exact::erf;
  using Exact::exp;
  using Exact::expm1;
  using Exact::gated_slope;
  using Exact::log;
  using Exact::log1p;
  using Exact::logistic_slope;
  using Exact::normal_cdf;
  using Exact::normal_pdf;
  using Exact::sigmoid;
  using Exact::sqrt;
  using Exact::tanh;

  FUSOR_DEVICE float div(float a, float b) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }
  FUSOR_DEVICE float sqrt(float a) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
  }
  FUSOR_DEVICE float exp(float a) { return exp2_short(a * kLog2E<float>); }
  FUSOR_DEVICE float sigmoid(float a) { return reciprocal_short(1.0f + exp2_short(a * -kLog2E<float>)); }
  FUSOR_DEVICE float logistic_slope(float a) {
    const float tail = exp2_short(::fabsf(a) * -kLog2E<float>);
    const float scale = reciprocal_short(1.0f + tail);
    return tail * scale * scale;
  }
  FUSOR_DEVICE float gated_slope(float u, float v) {
    const float tail = exp2_short(::fabsf(u) * -kLog2E<float>);
    const float larger = reciprocal_short(1.0f + tail), smaller = tail * larger;
    const float own = u < 0.0f ? smaller : larger, other = u < 0.0f ? larger : smaller;
    return multiply_add(own * v, other, own);
  }

  // Where the closed forms below would subtract numbers that are nearly equal, the first terms of the series.
  FUSOR_DEVICE float expm1(float a) {
    const float series =
        a * multiply_add(a, multiply_add(a, multiply_add(a, 1.0f / 24, 1.0f / 6), 0.5f), 1.0f);
    return ::fabsf(a) < 0.03f ? series : exp(a) - 1.0f;
  }
  FUSOR_DEVICE float log(float a) {
    const float from_one = a - 1.0f;
    return ::fabsf(from_one) < 0.02f ? log1p_series(from_one) : log2_short(a) * kLn2<float>;
  }
  FUSOR_DEVICE float log1p(float a) {
    return ::fabsf(a) < 0.02f ? log1p_series(a) : log2_short(1.0f + a) * kLn2<float>;
  }
  FUSOR_DEVICE float tanh(float a) {
    const float square = a * a;
    const float series =
        a * multiply_add(
                square, multiply_add(square, multiply_add(square, -17.0f / 315, 2.0f / 15), -1.0f / 3), 1.0f);
    const float closed =
        multiply_add(-2.0f, reciprocal_short(1.0f + exp2_short(a * (2 * kLog2E<float>))), 1.0f);
    return ::fabsf(a) < 0.25f ? series : closed;
  }

  // Phi(-|a|) = 2 to the power of a polynomial in |a|, whose coefficients are fitted here for the least
  // relative error on 0 <= |a| <= 6 (3.3e-6). Beyond, where Phi is below 1e-9, it falls off a little faster
  // than Phi does.
  FUSOR_DEVICE float normal_tail(float magnitude) {
    float power = multiply_add(magnitude, -1.834793984e-6f, 6.159788927e-5f);
    power = multiply_add(magnitude, power, -9.305211429e-4f);
    power = multiply_add(magnitude, power, 8.507873852e-3f);
    power = multiply_add(magnitude, power, -5.39600274e-2f);
    power = multiply_add(magnitude, power, -0.4584644458f);
    power = multiply_add(magnitude, power, -1.151251016f);
    power = multiply_add(magnitude, power, -0.9999952963f);
    return exp2_short(power);
  }
  FUSOR_DEVICE float normal_cdf(float a) {
    const float tail = normal_tail(::fabsf(a));
    return a < 0.0f ? tail : 1.0f - tail;
  }
  // Its factor is part of the power of two.
  FUSOR_DEVICE float normal_pdf(float a) {
    return exp2_short(multiply_add(a * (-0.5f * kLog2E<float>), a, -1.3257480647361593f));
  }
  FUSOR_DEVICE float erf(float a) {
    const float square = a * a;
    float series = multiply_add(square, 1.0f / 216, -1.0f / 42);
    series = multiply_add(square, series, 0.1f);
    series = multiply_add(square, series, -1.0f / 3);
    series = a * 1.1283791670955126f * multiply_add(square, series, 1.0f);
    const float closed = multiply_add(-2.0f, normal_tail(::fabsf(a) * 1.4142135623730951f), 1.0f);
    return ::fabsf(a) < 0.5f ? series : ::copysignf(closed, a);
  }

 private:
  FUSOR_DEVICE float log1p_series(float a) {
    return a * multiply_add(a, multiply_add(a, multiply_add(a, -0.25f, 1.0f / 3), -0.5f), 1.0f);
  }
};
