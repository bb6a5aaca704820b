// Owns what tests read from a launch: its arguments, a value of its config, and an operand as TMA sees it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/convert.h"
#include "core/lowered.h"

namespace fusor::test {

/// The arguments behind the one that all kernels have (`turn`).
inline std::span<const std::byte> own_arguments(const Launch& launch) {
  return std::span(launch.arguments.bytes()).subspan(static_cast<size_t>(launch.source->parameters.at(1).at));
}

/// The value of a name that is there.
inline int64_t config_value(const KernelSource& source, std::string_view name) {
  return std::ranges::find(source.config, name, &ConfigValue::name)->number();
}

/// A tensor that a launch copies: its map and where it begins.
struct CopiedTensor {
  const TensorMap& map;
  const std::byte* tensor;

  CopiedTensor(const Launch& launch, size_t i, const std::vector<void*>& operands)
      : map(launch.arguments.maps()[i]) {
    const Patch& patch = launch.arguments.patches()[i];
    tensor = static_cast<const std::byte*>(operands[static_cast<size_t>(patch.index)]) + patch.byte_offset;
  }

  /// The element there, zero outside. Coordinates innermost first.
  double at(std::span<const int64_t> position) const {
    const std::byte* from = tensor;
    for (int i = 0; i < map.dims.rank(); ++i) {
      const int64_t each = position[static_cast<size_t>(i)];
      if (each < 0 || each >= map.dims[i]) return 0;
      if (i > 0) from += each * map.stride_bytes[i - 1];
    }
    return load_real(map.type, from, position[0]);
  }
};

}  // namespace fusor::test
