// Tests core/convert: every bit pattern of the small floats, ties, subnormals, overflow, integers and the
// bulk forms.
#include "core/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace fusor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

uint32_t stored_bits(DataType type, double value) {
  uint32_t bits = 0;
  store_real(type, &bits, 0, value);
  return bits;
}

double value_of(DataType type, uint32_t bits) { return load_real(type, &bits, 0); }

struct Patterns {
  DataType type;
  uint32_t count;
  uint32_t nan;
};
constexpr Patterns kSmall[] = {{DataType::f16, 1u << 16, 0x7fff},
                               {DataType::bf16, 1u << 16, 0x7fff},
                               {DataType::f8_e4m3, 1u << 8, 0x7f},
                               {DataType::f8_e5m2, 1u << 8, 0x7f},
                               {DataType::f4_e2m1, 1u << 4, 0x7}};

TEST(Convert, EveryPatternOfASmallFloatRoundTrips) {
  for (const Patterns& format : kSmall)
    for (uint32_t bits = 0; bits < format.count; ++bits) {
      const double value = value_of(format.type, bits);
      uint32_t expected = std::isnan(value) ? format.nan : bits;
      if (format.type == DataType::f8_e5m2 && std::isinf(value)) expected = bits - 1;  // saturates
      ASSERT_EQ(stored_bits(format.type, value), expected) << to_string(format.type) << " " << bits;
    }
}

TEST(Convert, PowersOfTwoRoundTripAndOtherNumbersRoundUp) {
  const DataType type = DataType::f8_e8m0;
  for (uint32_t bits = 0; bits < 255; ++bits) {
    const double value = value_of(type, bits);
    ASSERT_EQ(value, std::ldexp(1.0, static_cast<int>(bits) - 127));
    ASSERT_EQ(stored_bits(type, value), bits);
    if (bits < 254) {
      ASSERT_EQ(stored_bits(type, std::nextafter(value, kInf)), bits + 1);
      ASSERT_EQ(stored_bits(type, 1.99 * value), bits + 1);
    }
  }
  EXPECT_EQ(stored_bits(type, kNaN), 0xffU);
  EXPECT_TRUE(std::isnan(value_of(type, 0xff)));
  EXPECT_EQ(stored_bits(type, kInf), 254U);
  for (const double small : {0.0, -1.0, -kInf, 1e-300}) EXPECT_EQ(stored_bits(type, small), 0U);
}

// The decoder against a second, literal reading of the formats.
TEST(Convert, PatternsHaveTheirTextbookValues) {
  struct Format {
    DataType type;
    int exponent_bits, mantissa_bits;
  };
  for (const Format& f :
       {Format{DataType::f16, 5, 10}, Format{DataType::bf16, 8, 7}, Format{DataType::f8_e4m3, 4, 3},
        Format{DataType::f8_e5m2, 5, 2}, Format{DataType::f4_e2m1, 2, 1}}) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    for (uint32_t bits = 0; bits < 1u << (f.exponent_bits + f.mantissa_bits); ++bits) {
      const int exponent = static_cast<int>(bits >> f.mantissa_bits);
      const double mantissa = bits & ((1u << f.mantissa_bits) - 1);
      const bool top = exponent == (1 << f.exponent_bits) - 1;
      double expected =
          exponent == 0 ? std::ldexp(mantissa, 1 - bias - f.mantissa_bits)
                        : std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
      if (f.type == DataType::f8_e4m3) {
        if (bits == 0x7f) expected = kNaN;
      } else if (top && f.type != DataType::f4_e2m1) {
        expected = mantissa == 0 ? kInf : kNaN;
      }
      const double value = value_of(f.type, bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(value)) << to_string(f.type) << " " << bits;
      } else {
        ASSERT_EQ(value, expected) << to_string(f.type) << " " << bits;
      }
    }
  }
}

TEST(Convert, BetweenTwoNeighboursTheNearestWinsAndTiesGoToEven) {
  for (const Patterns& format : kSmall)
    for (uint32_t bits = 0; bits + 1 < format.count / 2; ++bits) {
      const double low = value_of(format.type, bits), high = value_of(format.type, bits + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (low + high) / 2;
      ASSERT_EQ(stored_bits(format.type, middle), bits + (bits & 1)) << to_string(format.type) << " " << bits;
      ASSERT_EQ(stored_bits(format.type, std::nextafter(middle, -kInf)), bits) << to_string(format.type);
      ASSERT_EQ(stored_bits(format.type, std::nextafter(middle, kInf)), bits + 1) << to_string(format.type);
      const uint32_t sign = format.count / 2;
      ASSERT_EQ(stored_bits(format.type, -middle), sign | (bits + (bits & 1))) << to_string(format.type);
    }
}

TEST(Convert, DoublesAreRoundedOnce) {
  // Through float this would be a tie and go to 1.
  EXPECT_GT(round_to(DataType::f16, 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)), 1.0);
}

TEST(Convert, SixteenBitOverflowIsInfinity) {
  EXPECT_EQ(round_to(DataType::f16, 65519.99), 65504);
  EXPECT_EQ(round_to(DataType::f16, 65520.0), kInf);
  EXPECT_EQ(round_to(DataType::f16, -1e30), -kInf);
  EXPECT_EQ(round_to(DataType::f16, kInf), kInf);
  EXPECT_EQ(round_to(DataType::bf16, 1e39), kInf);
  EXPECT_EQ(round_to(DataType::bf16, -kInf), -kInf);
}

TEST(Convert, EightBitFloatsSaturate) {
  EXPECT_EQ(round_to(DataType::f8_e4m3, 449.0), 448);
  EXPECT_EQ(round_to(DataType::f8_e4m3, 1e9), 448);
  EXPECT_EQ(round_to(DataType::f8_e4m3, -kInf), -448);
  EXPECT_EQ(round_to(DataType::f8_e5m2, 1e9), 57344);
  EXPECT_EQ(round_to(DataType::f8_e5m2, kInf), 57344);
  EXPECT_EQ(round_to(DataType::f8_e5m2, -61440.0), -57344);
}

TEST(Convert, FourBitFloatsSaturateAndHaveNoNaN) {
  std::vector<double> values;
  for (uint32_t bits = 0; bits < 8; ++bits) values.push_back(value_of(DataType::f4_e2m1, bits));
  EXPECT_EQ(values, (std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6}));
  EXPECT_EQ(round_to(DataType::f4_e2m1, 5.0), 4);
  EXPECT_EQ(round_to(DataType::f4_e2m1, 5.01), 6);
  EXPECT_EQ(round_to(DataType::f4_e2m1, -kInf), -6);
  EXPECT_EQ(round_to(DataType::f4_e2m1, kNaN), 6);
  EXPECT_TRUE(std::signbit(round_to(DataType::f4_e2m1, -0.2)));
  EXPECT_EQ(largest_number(DataType::f4_e2m1), 6);
  EXPECT_EQ(unit_in_last_place(DataType::f4_e2m1, 4.0), 2);
  EXPECT_EQ(unit_in_last_place(DataType::f4_e2m1, 0.0), 0.5);
}

TEST(Convert, IntegersOfFourBitsSaturate) {
  EXPECT_EQ(round_to(DataType::i4, 7.5), 7);
  EXPECT_EQ(round_to(DataType::i4, 2.5), 2);
  EXPECT_EQ(round_to(DataType::i4, -1e9), -8);
  EXPECT_EQ(round_to(DataType::i4, kNaN), 0);
  EXPECT_EQ(round_to(DataType::i4, int64_t{1} << 40), 7);
  EXPECT_EQ(round_to(DataType::i4, int64_t{-9}), -8);
  EXPECT_EQ(round_to(DataType::b1, 0.3), 1);
  EXPECT_EQ(round_to(DataType::b1, -0.0), 0);
  EXPECT_EQ(largest_number(DataType::i4), 7);
}

// The first element lies in a byte's lowest bits, and a store leaves the byte's others as they are.
TEST(Convert, PackedElementsShareBytes) {
  for (const DataType type : {DataType::f4_e2m1, DataType::i4, DataType::b1})
    for (const int background : {0x00, 0xff})
      for (int64_t index = 0; index < 24; ++index) {
        const int width = info(type).bits;
        std::vector<uint8_t> bytes(24, static_cast<uint8_t>(background));
        store_real(type, bytes.data(), index, background == 0 ? 1 : 0);
        EXPECT_EQ(load_real(type, bytes.data(), index), background == 0 ? 1 : 0);
        for (int64_t bit = 0; bit < 8 * 24; ++bit) {
          const int got = bytes[static_cast<size_t>(bit / 8)] >> (bit % 8) & 1;
          if (bit / width != index) {
            EXPECT_EQ(got, background & 1) << to_string(type) << " " << index << " bit " << bit;
          }
        }
      }
  const std::vector<uint8_t> two{0x8f, 0x25};
  EXPECT_EQ(load_int(DataType::i4, two.data(), 0), -1);
  EXPECT_EQ(load_int(DataType::i4, two.data(), 1), -8);
  EXPECT_EQ(load_int(DataType::i4, two.data(), 3), 2);
  EXPECT_EQ(load_real(DataType::f4_e2m1, two.data(), 2), 3);
  EXPECT_EQ(load_int(DataType::b1, two.data(), 4), 0);
  EXPECT_EQ(load_int(DataType::b1, two.data(), 13), 1);
}

// Neighbours of one byte from two threads: run under TSan.
TEST(Convert, ThreadsStoreElementsOfOneByte) {
  std::vector<uint8_t> bytes(64, 0);
  const auto store = [&](int64_t first) {
    for (int64_t i = first; i < 128; i += 2) store_int(DataType::i4, bytes.data(), i, i % 15 - 7);
  };
  std::thread other(store, 1);
  store(0);
  other.join();
  for (int64_t i = 0; i < 128; ++i) ASSERT_EQ(load_int(DataType::i4, bytes.data(), i), i % 15 - 7) << i;
}

TEST(Convert, SmallestSubnormalsAndUnderflow) {
  EXPECT_EQ(round_to(DataType::f16, std::ldexp(1.0, -24)), std::ldexp(1.0, -24));
  EXPECT_EQ(round_to(DataType::f16, std::ldexp(1.0, -25)), 0);
  EXPECT_EQ(round_to(DataType::f16, std::ldexp(1.1, -25)), std::ldexp(1.0, -24));
  EXPECT_EQ(round_to(DataType::f8_e4m3, std::ldexp(1.0, -9)), std::ldexp(1.0, -9));
  EXPECT_EQ(round_to(DataType::f8_e5m2, std::ldexp(1.0, -16)), std::ldexp(1.0, -16));
  EXPECT_TRUE(std::signbit(round_to(DataType::f16, -0.0)));
  EXPECT_EQ(round_to(DataType::bf16, 1e-300), 0);
}

TEST(Convert, RealsBecomeIntegersToNearestEvenAndSaturate) {
  EXPECT_EQ(round_to(DataType::i32, 2.5), 2);
  EXPECT_EQ(round_to(DataType::i32, 3.5), 4);
  EXPECT_EQ(round_to(DataType::i32, -2.5), -2);
  EXPECT_EQ(round_to(DataType::i8, 127.6), 127);
  EXPECT_EQ(round_to(DataType::i8, -1e9), -128);
  EXPECT_EQ(round_to(DataType::u8, -0.6), 0);
  EXPECT_EQ(round_to(DataType::u8, kInf), 255);
  EXPECT_EQ(round_to(DataType::i32, kNaN), 0);
  int64_t wide = 0;
  store_real(DataType::i64, &wide, 0, 1e19);
  EXPECT_EQ(wide, std::numeric_limits<int64_t>::max());
  store_real(DataType::i64, &wide, 0, -kInf);
  EXPECT_EQ(wide, std::numeric_limits<int64_t>::min());
}

TEST(Convert, IntegersSaturateAndWideOnesKeepTheirBits) {
  EXPECT_EQ(round_to(DataType::i8, int64_t{300}), 127);
  EXPECT_EQ(round_to(DataType::u8, int64_t{-5}), 0);
  EXPECT_EQ(round_to(DataType::i32, int64_t{1} << 40), std::numeric_limits<int32_t>::max());
  const int64_t big = (int64_t{1} << 53) + 1;
  int64_t kept = 0;
  store_int(DataType::i64, &kept, 0, big);
  EXPECT_EQ(load_int(DataType::i64, &kept, 0), big);
}

TEST(Convert, Bool8IsNotZero) {
  EXPECT_EQ(round_to(DataType::b8, 0.25), 1);
  EXPECT_EQ(round_to(DataType::b8, -0.0), 0);
  EXPECT_EQ(round_to(DataType::b8, int64_t{256}), 1);
  const uint8_t seven = 7;
  EXPECT_EQ(load_int(DataType::b8, &seven, 0), 1);
}

TEST(Convert, BulkFormsGiveWhatSingleElementsGive) {
  std::vector<float> values;
  for (int exponent = -30; exponent < 20; ++exponent)
    for (const float mantissa : {1.0f, 1.0f + 1.0f / 2048, 1.3f, 1.9999f, -1.5f, -1.0625f})
      values.push_back(std::ldexp(mantissa, exponent));
  for (const double special : {0.0, -0.0, kInf, -kInf, kNaN}) values.push_back(static_cast<float>(special));
  const int64_t count = static_cast<int64_t>(values.size());
  for (const DataType type :
       {DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3, DataType::f8_e5m2, DataType::i32,
        DataType::i8, DataType::u8, DataType::b8, DataType::i64, DataType::f64}) {
    std::vector<int64_t> stored(values.size());
    store_floats(type, stored.data(), count, values.data());
    std::vector<float> loaded(values.size());
    load_floats(type, stored.data(), count, loaded.data());
    for (int64_t i = 0; i < count; ++i) {
      const double expected = round_to(type, static_cast<double>(values[static_cast<size_t>(i)]));
      const float got = loaded[static_cast<size_t>(i)];
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << to_string(type);
      } else {
        EXPECT_EQ(got, static_cast<float>(expected))
            << to_string(type) << " " << values[static_cast<size_t>(i)];
      }
    }
  }
}

TEST(Convert, EpsilonIsTheStepAboveOne) {
  for (const DataType type :
       {DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3, DataType::f8_e5m2}) {
    EXPECT_EQ(round_to(type, 1 + epsilon(type)), 1 + epsilon(type)) << to_string(type);
    EXPECT_NE(round_to(type, 1 + 0.5 * epsilon(type)), 1 + 0.5 * epsilon(type)) << to_string(type);
  }
  EXPECT_EQ(epsilon(DataType::i32), 0);
}

}  // namespace
}  // namespace fusor
