// Owns the look-ups in the table of data types.
#include "core/data_type.h"

#include <array>

namespace fusor {

namespace {

constexpr std::array kTypes = {
#define FUSOR_DTYPE(id, name, bits, kind, device) \
  DataTypeInfo{DataType::id, name, bits, NumberKind::kind, #device},
#include "core/dtype.def"
#undef FUSOR_DTYPE
};

}  // namespace

const DataTypeInfo& info(DataType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<DataType> data_type_named(std::string_view name) {
  for (const DataTypeInfo& row : kTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

DataType unpacked(DataType type) {
  switch (type) {
    case DataType::f4_e2m1:
      return DataType::f8_e4m3;
    case DataType::i4:
      return DataType::i8;
    case DataType::b1:
      return DataType::b8;
    default:
      return type;
  }
}

DataType carrier(DataType type) {
  if (type == DataType::f64 || type == DataType::i64) return type;
  return is_real(type) ? DataType::f32 : DataType::i32;
}

}  // namespace fusor
