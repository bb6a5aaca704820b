// Owns Tensor: the plain description of one tensor of a graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "core/data_type.h"
#include "core/dims.h"

namespace fusor {

/// Bytes that one tensor may span: as many as a GPU can address, and so few that what engines make of a few
/// of them (padded copies, partial sums, numbers of tiles) never overflows 64 bits.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 48;

/// A number known on the host: real or integer.
using Scalar = std::variant<double, int64_t>;

/// Bytes of the longest name of a tensor, an op or a graph.
inline constexpr size_t kLongestName = 1024;

/// Where a tensor's elements come from.
enum class Memory : uint8_t {
  device,     ///< the user binds a pointer to the plan's device memory
  workspace,  ///< virtual: exists between ops only; the plan may keep it in registers or in the workspace
  host,       ///< a by-value scalar, read from host memory during each run
  constant,   ///< a scalar whose value is part of the graph
};

/// The GraphBuilder that returned a tensor, known by the name of its graph: one string object for each
/// builder. Null for tensors of a Graph. It does not count where tensors are compared.
struct Origin {
  std::shared_ptr<const std::string> graph;
  friend bool operator==(const Origin&, const Origin&) { return true; }
};

/// Shape: dims (up to 8) with strides in elements. A virtual tensor's type is its rounding, fused or not.
struct Tensor {
  std::string name;  ///< unique in its graph
  int64_t uid = 0;   ///< unique in its graph; any value
  DataType type = DataType::f32;
  Dims dims;
  Strides strides;
  Memory memory = Memory::device;
  int64_t alignment = 16;  ///< bytes that the bound pointer is promised to be a multiple of; a power of two
  Scalar value = 0.0;      ///< Memory::constant only
  Origin origin = {};      ///< set by GraphBuilder

  bool is_virtual() const { return memory == Memory::workspace; }
  bool is_scalar() const { return memory == Memory::host || memory == Memory::constant; }
  /// In memory, elements of a virtual tensor have a byte each at least: ops store them from many threads.
  DataType stored_type() const { return is_virtual() ? unpacked(type) : type; }
  int64_t bytes() const { return bytes_of(stored_type(), span_elements(dims, strides)); }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

}  // namespace fusor
