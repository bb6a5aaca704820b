// Owns what it means that a slice takes a part of its operand along one axis, and how totals of parts become
// those of all.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "core/graph.h"

namespace fusor {

/// Coordinates along an axis, from the first up to the second.
using Range = std::pair<int64_t, int64_t>;

struct Part {
  int axis = 0;
  Range range;
};

/// How the totals of parts are joined, shares of means summed; nothing where they are not.
inline std::optional<PointwiseMode> joined_by(ReductionMode mode) {
  switch (mode) {
    case ReductionMode::add:
    case ReductionMode::avg:
      return PointwiseMode::add;
    case ReductionMode::max:
      return PointwiseMode::max;
    case ReductionMode::min:
      return PointwiseMode::min;
    default:
      return std::nullopt;
  }
}

/// The part that a slice takes of an operand of such dims, all of the other axes with it; nothing where the
/// op is none, skips elements, or takes a part of no axis or of several.
inline std::optional<Part> part_taken(const Op& op, const Dims& dims) {
  const auto* const slice = std::get_if<Slice>(&op.attributes);
  if (slice == nullptr) return std::nullopt;
  std::optional<Part> found;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (slice->step[axis] != 1) return std::nullopt;
    if (slice->start[axis] == 0 && slice->limit[axis] == dims[axis]) continue;
    if (found) return std::nullopt;
    found = Part{axis, {slice->start[axis], slice->limit[axis]}};
  }
  return found;
}

}  // namespace fusor
