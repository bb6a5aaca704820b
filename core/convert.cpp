// Owns the bit patterns behind the host's conversions.
#include "core/convert.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace fusor {

namespace {

/// A floating type of up to 16 bits: sign, exponent, mantissa.
struct SmallFormat {
  int exponent_bits;
  int mantissa_bits;
  uint32_t infinity;  ///< smallest magnitude that is infinity, or NaN in a format without infinities
  uint32_t overflow;  ///< magnitude that stands for what is too large
  uint32_t nan;

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
};

constexpr SmallFormat kF16{5, 10, 0x7c00, 0x7c00, 0x7fff};
constexpr SmallFormat kBf16{8, 7, 0x7f80, 0x7f80, 0x7fff};
constexpr SmallFormat kF8E4M3{4, 3, 0x7f, 0x7e, 0x7f};
constexpr SmallFormat kF8E5M2{5, 2, 0x7c, 0x7b, 0x7f};
constexpr SmallFormat kF4E2M1{2, 1, 0x8, 0x7, 0x7};  // neither infinities nor NaN, which becomes the largest

template <class Real>
struct Ieee;
template <>
struct Ieee<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23, kBias = 127;
};
template <>
struct Ieee<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023;
};

// 2^exponent for exponents of normal numbers.
template <class Real>
constexpr Real power_of_two(int exponent) {
  using I = Ieee<Real>;
  return std::bit_cast<Real>(static_cast<typename I::Bits>(exponent + I::kBias) << I::kMantissa);
}

// A choice by masks: loops over it vectorise, and zeros strewn among numbers cost no mispredicted jumps.
template <class Bits>
constexpr Bits select(bool condition, Bits yes, Bits no) {
  const Bits mask = Bits{0} - static_cast<Bits>(condition);
  return (yes & mask) | (no & ~mask);
}

template <SmallFormat F>
inline float decode(uint32_t bits) {
  const uint32_t magnitude = bits & (F.sign() - 1);
  const uint32_t sign = (bits & F.sign()) << (32 - F.bits());
  constexpr int kShift = 23 - F.mantissa_bits;
  if constexpr (F.exponent_bits == 8) return std::bit_cast<float>(sign | magnitude << kShift);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) *
                          power_of_two<float>(1 - F.bias() - F.mantissa_bits);
  const uint32_t normal = (magnitude << kShift) + (static_cast<uint32_t>(127 - F.bias()) << 23);
  uint32_t value = select(magnitude < (1u << F.mantissa_bits), std::bit_cast<uint32_t>(subnormal), normal);
  constexpr uint32_t kSpecial = F.infinity == F.nan ? 0x7fffffffu : 0x7f800000u;
  value = select(magnitude >= F.infinity, kSpecial | (magnitude - F.infinity) << kShift, value);
  return std::bit_cast<float>(sign | value);
}

// Rounds to nearest even. Subnormals of the target: adding the power of two whose last place is their quantum
// lets the adder round. NaN is the canonical one that the device's conversions give.
template <SmallFormat F, class Real>
inline uint32_t encode(Real value) {
  using I = Ieee<Real>;
  using Bits = typename I::Bits;
  constexpr int kShift = I::kMantissa - F.mantissa_bits;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Real) - 1);
  constexpr Bits kInfinity = ~kSign & ~((Bits{1} << I::kMantissa) - 1);
  constexpr Bits kSmallestNormal = static_cast<Bits>(1 - F.bias() + I::kBias) << I::kMantissa;

  const Bits bits = std::bit_cast<Bits>(value);
  const Bits magnitude = bits & ~kSign;
  const Bits rounded = (magnitude + ((Bits{1} << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1)) >> kShift;
  Bits result = rounded - (static_cast<Bits>(I::kBias - F.bias()) << F.mantissa_bits);
  if constexpr (F.bias() != I::kBias) {
    constexpr Real kQuantumPlace = power_of_two<Real>(1 - F.bias() - F.mantissa_bits + I::kMantissa);
    const Bits subnormal = std::bit_cast<Bits>(std::bit_cast<Real>(magnitude) + kQuantumPlace) -
                           std::bit_cast<Bits>(kQuantumPlace);
    result = select(magnitude < kSmallestNormal, subnormal, result);
  }
  result = select(result > F.overflow, Bits{F.overflow}, result);
  const uint32_t sign = static_cast<uint32_t>(bits >> (8 * sizeof(Real) - F.bits())) & F.sign();
  const uint32_t number = static_cast<uint32_t>(result) | sign;
  return select(magnitude > kInfinity, F.nan, number);
}

// A power of two with nothing else: 2^(bits - 127), 0xff is NaN. Rounds up, so that what a scale divides
// stays in range; what is not positive gives the smallest.
inline float decode_e8m0(uint32_t bits) {
  return std::bit_cast<float>(bits == 0xff ? 0x7fffffffu : bits == 0 ? 0x00400000u : bits << 23);
}
inline uint8_t encode_e8m0(double value) {
  if (std::isnan(value)) return 0xff;
  if (!(value > 0x1p-127)) return 0;
  if (value >= 0x1p127) return 0xfe;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return static_cast<uint8_t>(exponent + 127 - (fraction == 0.5 ? 1 : 0));
}

template <class Integer>
Integer saturate(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // int64's largest value becomes 2^63 here, which is the first number that does not fit: both ways >= is
  // right.
  if (rounded >= static_cast<double>(std::numeric_limits<Integer>::max()))
    return std::numeric_limits<Integer>::max();
  if (rounded <= static_cast<double>(std::numeric_limits<Integer>::min()))
    return std::numeric_limits<Integer>::min();
  return static_cast<Integer>(rounded);
}

template <class Integer>
Integer clamp(int64_t value) {
  return static_cast<Integer>(
      std::clamp<int64_t>(value, std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max()));
}

template <class T>
T element(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
void put(void* data, int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Bits of element `index` of an array of a packed type.
uint32_t packed_element(DataType type, const void* data, int64_t index) {
  const int bits = info(type).bits;
  const int64_t shared = elements_per_byte(type);
  return static_cast<const uint8_t*>(data)[index / shared] >> (index % shared * bits) & ((1u << bits) - 1);
}

// Leaves the byte's other elements as they are, also where another thread stores one of them meanwhile.
void put_packed(DataType type, void* data, int64_t index, uint32_t element_bits) {
  const int bits = info(type).bits;
  const int64_t shared = elements_per_byte(type);
  const auto shift = static_cast<int>(index % shared) * bits;
  const auto mask = static_cast<uint8_t>(((1u << bits) - 1) << shift);
  const std::atomic_ref<uint8_t> byte(static_cast<uint8_t*>(data)[index / shared]);
  uint8_t before = byte.load(std::memory_order_relaxed), after = 0;
  do {
    after = static_cast<uint8_t>((before & ~mask) | ((element_bits << shift) & mask));
  } while (!byte.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

template <class Value>
int64_t clamp_to_int4(Value value) {
  const int64_t whole = std::is_floating_point_v<Value> ? saturate<int8_t>(static_cast<double>(value))
                                                        : clamp<int8_t>(static_cast<int64_t>(value));
  return std::clamp<int64_t>(whole, -8, 7);
}

template <SmallFormat F, class Storage>
void decode_all(const void* data, int64_t count, float* out) {
  const Storage* from = static_cast<const Storage*>(data);
  for (int64_t i = 0; i < count; ++i) out[i] = decode<F>(from[i]);
}

template <SmallFormat F, class Storage>
void encode_all(void* data, int64_t count, const float* values) {
  Storage* to = static_cast<Storage*>(data);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Storage>(encode<F>(values[i]));
}

// 256 values: a table is faster than arithmetic.
template <SmallFormat F>
void decode_bytes(const void* data, int64_t count, float* out) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (uint32_t bits = 0; bits < 256; ++bits) values[bits] = decode<F>(bits);
    return values;
  }();
  const uint8_t* from = static_cast<const uint8_t*>(data);
  for (int64_t i = 0; i < count; ++i) out[i] = table[from[i]];
}

}  // namespace

double load_real(DataType type, const void* data, int64_t index) {
  switch (type) {
    case DataType::f64:
      return element<double>(data, index);
    case DataType::f32:
      return element<float>(data, index);
    case DataType::f16:
      return decode<kF16>(element<uint16_t>(data, index));
    case DataType::bf16:
      return decode<kBf16>(element<uint16_t>(data, index));
    case DataType::f8_e4m3:
      return decode<kF8E4M3>(element<uint8_t>(data, index));
    case DataType::f8_e5m2:
      return decode<kF8E5M2>(element<uint8_t>(data, index));
    case DataType::f8_e8m0:
      return decode_e8m0(element<uint8_t>(data, index));
    case DataType::f4_e2m1:
      return decode<kF4E2M1>(packed_element(type, data, index));
    default:
      return static_cast<double>(load_int(type, data, index));
  }
}

int64_t load_int(DataType type, const void* data, int64_t index) {
  switch (type) {
    case DataType::i64:
      return element<int64_t>(data, index);
    case DataType::i32:
      return element<int32_t>(data, index);
    case DataType::i8:
      return element<int8_t>(data, index);
    case DataType::u8:
      return element<uint8_t>(data, index);
    case DataType::b8:
      return element<uint8_t>(data, index) != 0 ? 1 : 0;
    case DataType::i4:
      return static_cast<int64_t>(packed_element(type, data, index) ^ 8u) - 8;
    case DataType::b1:
      return packed_element(type, data, index);
    default:
      return saturate<int64_t>(load_real(type, data, index));
  }
}

void store_real(DataType type, void* data, int64_t index, double value) {
  switch (type) {
    case DataType::f64:
      return put(data, index, value);
    case DataType::f32:
      return put(data, index, static_cast<float>(value));
    case DataType::f16:
      return put(data, index, static_cast<uint16_t>(encode<kF16>(value)));
    case DataType::bf16:
      return put(data, index, static_cast<uint16_t>(encode<kBf16>(value)));
    case DataType::f8_e4m3:
      return put(data, index, static_cast<uint8_t>(encode<kF8E4M3>(value)));
    case DataType::f8_e5m2:
      return put(data, index, static_cast<uint8_t>(encode<kF8E5M2>(value)));
    case DataType::f8_e8m0:
      return put(data, index, encode_e8m0(value));
    case DataType::i64:
      return put(data, index, saturate<int64_t>(value));
    case DataType::i32:
      return put(data, index, saturate<int32_t>(value));
    case DataType::i8:
      return put(data, index, saturate<int8_t>(value));
    case DataType::u8:
      return put(data, index, saturate<uint8_t>(value));
    case DataType::b8:
      return put(data, index, static_cast<uint8_t>(value != 0));
    case DataType::f4_e2m1:
      return put_packed(type, data, index, encode<kF4E2M1>(value));
    case DataType::i4:
      return put_packed(type, data, index, static_cast<uint32_t>(clamp_to_int4(value)));
    case DataType::b1:
      return put_packed(type, data, index, value != 0 ? 1 : 0);
  }
}

void store_int(DataType type, void* data, int64_t index, int64_t value) {
  switch (type) {
    case DataType::f32:
      return put(data, index, static_cast<float>(value));
    case DataType::i64:
      return put(data, index, value);
    case DataType::i32:
      return put(data, index, clamp<int32_t>(value));
    case DataType::i8:
      return put(data, index, clamp<int8_t>(value));
    case DataType::u8:
      return put(data, index, clamp<uint8_t>(value));
    case DataType::b8:
      return put(data, index, static_cast<uint8_t>(value != 0));
    case DataType::i4:
      return put_packed(type, data, index, static_cast<uint32_t>(clamp_to_int4(value)));
    case DataType::b1:
      return put_packed(type, data, index, value != 0 ? 1 : 0);
    default:
      return store_real(type, data, index, static_cast<double>(value));
  }
}

double round_to(DataType type, double value) {
  if (type == DataType::f64) return value;
  std::array<std::byte, 8> element_bytes{};
  store_real(type, element_bytes.data(), 0, value);
  return load_real(type, element_bytes.data(), 0);
}

int64_t round_to(DataType type, int64_t value) {
  if (type == DataType::i64) return value;
  std::array<std::byte, 8> element_bytes{};
  store_int(type, element_bytes.data(), 0, value);
  return load_int(type, element_bytes.data(), 0);
}

double epsilon(DataType type) {
  switch (type) {
    case DataType::f64:
      return std::numeric_limits<double>::epsilon();
    case DataType::f32:
      return std::numeric_limits<float>::epsilon();
    case DataType::f16:
      return std::ldexp(1.0, -kF16.mantissa_bits);
    case DataType::bf16:
      return std::ldexp(1.0, -kBf16.mantissa_bits);
    case DataType::f8_e4m3:
      return std::ldexp(1.0, -kF8E4M3.mantissa_bits);
    case DataType::f8_e5m2:
      return std::ldexp(1.0, -kF8E5M2.mantissa_bits);
    case DataType::f8_e8m0:
      return 1;
    case DataType::f4_e2m1:
      return std::ldexp(1.0, -kF4E2M1.mantissa_bits);
    default:
      return 0;
  }
}

double unit_in_last_place(DataType type, double value) {
  const auto least_exponent = [&] {
    switch (type) {
      case DataType::f64:
        return std::numeric_limits<double>::min_exponent - 1;
      case DataType::f16:
        return 1 - kF16.bias();
      case DataType::f8_e4m3:
        return 1 - kF8E4M3.bias();
      case DataType::f8_e5m2:
        return 1 - kF8E5M2.bias();
      case DataType::f4_e2m1:
        return 1 - kF4E2M1.bias();
      default:
        return std::numeric_limits<float>::min_exponent - 1;
    }
  };
  if (info(type).kind != NumberKind::real) return 1;
  const int exponent = value == 0 ? least_exponent() : std::max(least_exponent(), std::ilogb(value));
  return std::ldexp(epsilon(type), exponent);
}

double largest_number(DataType type) {
  switch (type) {
    case DataType::f64:
      return std::numeric_limits<double>::max();
    case DataType::f32:
      return std::numeric_limits<float>::max();
    case DataType::f16:
      return decode<kF16>(kF16.infinity - 1);
    case DataType::bf16:
      return decode<kBf16>(kBf16.infinity - 1);
    case DataType::f8_e4m3:
      return decode<kF8E4M3>(kF8E4M3.infinity - 1);
    case DataType::f8_e5m2:
      return decode<kF8E5M2>(kF8E5M2.infinity - 1);
    case DataType::f8_e8m0:
      return 0x1p127;
    case DataType::f4_e2m1:
      return decode<kF4E2M1>(kF4E2M1.overflow);
    default:
      return static_cast<double>(round_to(type, std::numeric_limits<int64_t>::max()));
  }
}

void load_floats(DataType type, const void* data, int64_t count, float* out) {
  switch (type) {
    case DataType::f32:
      std::memcpy(out, data, static_cast<size_t>(count) * sizeof(float));
      return;
    case DataType::f16:
      return decode_all<kF16, uint16_t>(data, count, out);
    case DataType::bf16:
      return decode_all<kBf16, uint16_t>(data, count, out);
    case DataType::f8_e4m3:
      return decode_bytes<kF8E4M3>(data, count, out);
    case DataType::f8_e5m2:
      return decode_bytes<kF8E5M2>(data, count, out);
    case DataType::i64:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(load_int(type, data, i));
      return;
    default:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(load_real(type, data, i));
  }
}

void store_floats(DataType type, void* data, int64_t count, const float* values) {
  switch (type) {
    case DataType::f32:
      std::memcpy(data, values, static_cast<size_t>(count) * sizeof(float));
      return;
    case DataType::f16:
      return encode_all<kF16, uint16_t>(data, count, values);
    case DataType::bf16:
      return encode_all<kBf16, uint16_t>(data, count, values);
    case DataType::f8_e4m3:
      return encode_all<kF8E4M3, uint8_t>(data, count, values);
    case DataType::f8_e5m2:
      return encode_all<kF8E5M2, uint8_t>(data, count, values);
    default:
      for (int64_t i = 0; i < count; ++i) store_real(type, data, i, values[i]);
  }
}

}  // namespace fusor
