// Owns DataType: the element types of tensors and the types that ops compute in. Rows in core/dtype.def.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/api.h"

namespace fusor {

enum class DataType : uint8_t {
#define FUSOR_DTYPE(id, name, bits, kind, device) id,
#include "core/dtype.def"
#undef FUSOR_DTYPE
};

enum class NumberKind : uint8_t { real, integer, boolean };

struct DataTypeInfo {
  DataType type;
  std::string_view name;  ///< "fp16": files, messages, the command
  int bits;               ///< width of one element
  NumberKind kind;
  std::string_view device_type;  ///< "f16": its name in codegen/device/base/types.cuh
};

FUSOR_API const DataTypeInfo& info(DataType type);
FUSOR_API std::optional<DataType> data_type_named(std::string_view name);

inline std::string_view to_string(DataType type) { return info(type).name; }
/// Whether several elements share a byte. They are numbered from its lowest bits; strides and offsets count
/// elements, and may lead to any of a byte's.
inline bool is_packed(DataType type) { return info(type).bits < 8; }
inline int64_t elements_per_byte(DataType type) { return is_packed(type) ? 8 / info(type).bits : 1; }
/// Bytes of one element; of a packed one that lies alone: one.
inline int64_t byte_size(DataType type) { return is_packed(type) ? 1 : info(type).bits / 8; }
/// Bytes of neighbouring elements, the first of which begins a byte.
inline int64_t bytes_of(DataType type, int64_t elements) {
  const int64_t shared = elements_per_byte(type);
  return shared == 1 ? elements * byte_size(type) : elements / shared + (elements % shared != 0 ? 1 : 0);
}
/// The type of a byte an element that holds every value of a packed type; any other type itself.
FUSOR_API DataType unpacked(DataType type);
/// A number of 8 bits with a sign and a mantissa: what tensor cores multiply.
inline bool is_fp8(DataType type) { return type == DataType::f8_e4m3 || type == DataType::f8_e5m2; }
inline bool is_real(DataType type) { return info(type).kind == NumberKind::real; }

/// The type in which a value of `type` is held between steps: fp64, fp32, int64 or int32. On the device this
/// is the register type of every value; compute types are exactly the types that are their own carrier.
FUSOR_API DataType carrier(DataType type);
inline bool is_compute_type(DataType type) { return carrier(type) == type; }

}  // namespace fusor
