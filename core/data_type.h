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
inline int64_t byte_size(DataType type) { return info(type).bits / 8; }
inline bool is_real(DataType type) { return info(type).kind == NumberKind::real; }

/// The type in which a value of `type` is held between steps: fp64, fp32, int64 or int32. On the device this
/// is the register type of every value; compute types are exactly the types that are their own carrier.
FUSOR_API DataType carrier(DataType type);
inline bool is_compute_type(DataType type) { return carrier(type) == type; }

}  // namespace fusor
