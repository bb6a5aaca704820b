// Owns how the entries of a matmul's batch lie in a tensor that TMA (Hopper's Tensor Memory Accelerator)
// walks: by one stride, or along up to three axes of its map.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/engines/sm90/copy/rules.h"
#include "core/dims.h"
#include "core/tensor_map.h"

namespace fusor {

class Parameters;

/// The axes that a stride each walks, innermost first; what all entries share has none.
struct BatchWalk {
  /// A map has five axes, of which a tile takes two: its lines and their elements.
  static constexpr int kMostAxes = 3;

  struct Axis {
    int first = 0, end = 0;  ///< axes of the batch that are one here
    int64_t shared = 1;      ///< entries that follow one another and have the same coordinate
    int64_t extent = 1, stride = 0;

    bool operator==(const Axis&) const = default;
  };
  std::vector<Axis> axes;
  int64_t entries = 1;  ///< of the batch

  bool operator==(const BatchWalk&) const = default;
  /// Whether no two entries are the same elements.
  bool has_own_entries() const;
  /// Whether one stride walks all entries, or they are all the same.
  bool is_plain() const;

  /// The batch axes of a map of such elements: one, or where the walk is not plain three.
  void append_to(TensorMap& map) const;
  /// The members of an EntryWalk (codegen/device/sm90/pipeline/map_entry.cuh).
  void append_to(Parameters& p) const;
  /// Appends the extents of an OwnEntryWalk, by which a result's entry is taken apart.
  void append_extents(Parameters& p) const;
};

/// Nothing where more than three strides are needed.
std::optional<BatchWalk> batch_walk(const copy_rules::WalkedAxes& batch);
/// The walk of another tensor along the axes of `like`, of which it has its own entries; or nothing.
std::optional<BatchWalk> batch_walk_like(const BatchWalk& like, const copy_rules::WalkedAxes& batch);
/// "[8, 3 x 2]": extents outermost first, each with the entries that share a coordinate, where there are any.
std::string to_string(const BatchWalk& walk);

}  // namespace fusor
