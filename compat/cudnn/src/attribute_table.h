// Owns the table of descriptors: which attributes each has, of which type and count, who sets them, and which
// tensors an op reads and writes. Checks of set, get and finalize follow from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compat/cudnn/include/cudnn_graph.h"

namespace fusor::cudnn {

/// Who gives an attribute its value.
enum class Need : uint8_t {
  required,  ///< the client, before finalize
  optional,  ///< the client, perhaps
  answer,    ///< the library: it can only be asked for
};

/// What an op does with a tensor.
enum class Flow : uint8_t { none, reads, writes };

struct AttributeRow {
  cudnnBackendAttributeName_t name;
  std::string_view words;
  cudnnBackendAttributeType_t type;
  int64_t least = 1, most = 1;  ///< elements
  Need need = Need::required;
  Flow flow = Flow::none;
  cudnnBackendDescriptorType_t child = CUDNN_BACKEND_TENSOR_DESCRIPTOR;  ///< of type BACKEND_DESCRIPTOR
  cudnnBackendAttributeType_t or_type = CUDNN_TYPE_HANDLE;               ///< HANDLE: no second type
  bool is_address = false;  ///< the array of elements is not copied: its address is the value
};

struct DescriptorRow {
  cudnnBackendDescriptorType_t type;
  std::string_view name;
  std::span<const AttributeRow> attributes;

  const AttributeRow* find(cudnnBackendAttributeName_t attribute) const;
  bool is_operation() const;
};

/// The row of a descriptor's type, or null for a type that does not exist or is not supported here.
const DescriptorRow* row_of(cudnnBackendDescriptorType_t type);
/// Every row, for tests and for the table in the docs.
std::span<const DescriptorRow> descriptor_rows();

/// Bytes of one element, or 0 for a type that does not exist.
size_t bytes_of(cudnnBackendAttributeType_t type);
std::string_view name_of(cudnnBackendAttributeType_t type);
/// Whether a type is an enumeration, and if so whether the number is one of its values.
bool is_enumeration(cudnnBackendAttributeType_t type);
bool has_value(cudnnBackendAttributeType_t type, int value);

}  // namespace fusor::cudnn
