// Tests of core/data_type: the table of element types.
#include "core/data_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/convert.h"

namespace fusor {
namespace {

constexpr DataType kAll[] = {
#define FUSOR_DTYPE(id, name, bits, kind, device) DataType::id,
#include "core/dtype.def"
#undef FUSOR_DTYPE
};

TEST(DataType, NamesAreFoundAgain) {
  std::set<std::string_view> names;
  for (const DataType type : kAll) {
    EXPECT_EQ(info(type).type, type);
    EXPECT_EQ(data_type_named(to_string(type)), type);
    EXPECT_TRUE(names.insert(to_string(type)).second) << to_string(type);
  }
  EXPECT_TRUE(names.contains("fp8_e4m3"));
  EXPECT_EQ(data_type_named("float"), std::nullopt);
  EXPECT_EQ(data_type_named(""), std::nullopt);
}

TEST(DataType, SizesAreInBytes) {
  EXPECT_EQ(byte_size(DataType::f64), 8);
  EXPECT_EQ(byte_size(DataType::f32), 4);
  EXPECT_EQ(byte_size(DataType::bf16), 2);
  EXPECT_EQ(byte_size(DataType::f8_e5m2), 1);
  EXPECT_EQ(byte_size(DataType::b8), 1);
}

TEST(DataType, PackedElementsShareBytes) {
  EXPECT_TRUE(is_packed(DataType::i4));
  EXPECT_FALSE(is_packed(DataType::i8));
  EXPECT_EQ(elements_per_byte(DataType::f4_e2m1), 2);
  EXPECT_EQ(elements_per_byte(DataType::b1), 8);
  EXPECT_EQ(elements_per_byte(DataType::f16), 1);
  EXPECT_EQ(byte_size(DataType::b1), 1);
  EXPECT_EQ(bytes_of(DataType::i4, 0), 0);
  EXPECT_EQ(bytes_of(DataType::i4, 7), 4);
  EXPECT_EQ(bytes_of(DataType::b1, 17), 3);
  EXPECT_EQ(bytes_of(DataType::f32, 7), 28);
}

TEST(DataType, EveryTypeHasOneOfWholeBytesThatHoldsItsValues) {
  for (const DataType type : kAll) {
    const DataType wide = unpacked(type);
    EXPECT_FALSE(is_packed(wide));
    EXPECT_EQ(is_packed(type), wide != type);
    if (!is_packed(type)) continue;
    for (uint8_t bits = 0; bits < 1 << info(type).bits; ++bits) {
      const double value = load_real(type, &bits, 0), held = round_to(wide, value);
      EXPECT_EQ(held, value) << to_string(type) << " " << int{bits};
      EXPECT_EQ(std::signbit(held), std::signbit(value));
    }
  }
}

TEST(DataType, KindsTellRealsFromIntegers) {
  EXPECT_TRUE(is_real(DataType::f8_e4m3));
  EXPECT_FALSE(is_real(DataType::i64));
  EXPECT_FALSE(is_real(DataType::b8));
  EXPECT_EQ(info(DataType::b8).kind, NumberKind::boolean);
  EXPECT_EQ(info(DataType::u8).kind, NumberKind::integer);
}

TEST(DataType, CarriersAreTheComputeTypes) {
  EXPECT_EQ(carrier(DataType::f16), DataType::f32);
  EXPECT_EQ(carrier(DataType::f8_e4m3), DataType::f32);
  EXPECT_EQ(carrier(DataType::f64), DataType::f64);
  EXPECT_EQ(carrier(DataType::i8), DataType::i32);
  EXPECT_EQ(carrier(DataType::b8), DataType::i32);
  EXPECT_EQ(carrier(DataType::i64), DataType::i64);
  std::set<DataType> compute;
  for (const DataType type : kAll)
    if (is_compute_type(type)) compute.insert(type);
  EXPECT_EQ(compute, (std::set<DataType>{DataType::f64, DataType::f32, DataType::i64, DataType::i32}));
}

}  // namespace
}  // namespace fusor
