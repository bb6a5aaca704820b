// Owns fp32 numbers as sums of three bf16, so that tensor cores multiply them: 24 bits are 8 + 8 + 8.
//
//   high = x rounded to bf16, middle = x - high rounded, low = the rest, which has 8 bits
//   |middle| <= 2^-9 |x|, |low| <= 2^-18 |x|: products of middle and low, or of low and low, stay below 2^-26
//
// A number whose parts do not add up to it, because it is infinite, NaN, larger than any bf16, or so small
// that a part is below all bf16, is kept as its own bits, halved.
#pragma once

/// In place of the low part: the other two are the upper and the lower half of the number's bits.
enum : u32 { kHalves = 0x7fff };  // a NaN, which no part is

/// Parts of two neighbours, each a pair of bf16.
struct PairOfParts {
  u32 part[3];  // high, middle, low
  u32 rest;     // 0 where these add up to both numbers
};

FUSOR_DEVICE u32 round_to_bf16(float first, float second) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
FUSOR_DEVICE float first_of(u32 pair) { return __uint_as_float(pair << 16); }
FUSOR_DEVICE float second_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

FUSOR_DEVICE PairOfParts parts_of(float first, float second) {
  PairOfParts parts;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    parts.part[i] = round_to_bf16(first, second);
    first -= first_of(parts.part[i]);
    second -= second_of(parts.part[i]);
  }
  parts.rest = __float_as_uint(first) | __float_as_uint(second);
  return parts;
}

FUSOR_DEVICE PairOfParts halves_of(float first, float second) {
  const u32 a = __float_as_uint(first), b = __float_as_uint(second);
  return {{__byte_perm(a, b, 0x7632), __byte_perm(a, b, 0x5410), kHalves | kHalves << 16}, 0};
}

FUSOR_DEVICE float float_of_parts(bf16 high, bf16 middle, bf16 low) {
  const float sum = widen(high) + widen(middle) + widen(low);
  return low.bits == kHalves ? __uint_as_float(u32(high.bits) << 16 | middle.bits) : sum;
}
