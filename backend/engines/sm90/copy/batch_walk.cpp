// Owns which axes of a batch are one in a map, and what maps and kernels are told of them.
#include "backend/engines/sm90/copy/batch_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "backend/engines/sm90/copy/units.h"
#include "codegen/text/parameters.h"

namespace fusor {

using copy_rules::slice;
using copy_rules::WalkedAxes;

namespace {

// From the last axis to the first, the way the number of an entry is taken apart.
std::vector<BatchWalk::Axis> axes_of(const WalkedAxes& batch) {
  std::vector<BatchWalk::Axis> axes;
  int64_t shared = 1;
  for (int axis = batch.extents.rank() - 1; axis >= 0; --axis) {
    const int64_t extent = batch.extents[axis], stride = batch.strides[axis];
    if (extent == 1) continue;
    if (stride == 0) {
      shared *= extent;
    } else if (shared == 1 && !axes.empty() && stride == axes.back().stride * axes.back().extent) {
      axes.back().first = axis;
      axes.back().extent *= extent;
    } else {
      axes.push_back({axis, axis + 1, std::exchange(shared, 1), extent, stride});
    }
  }
  return axes;
}

}  // namespace

bool BatchWalk::has_own_entries() const {
  int64_t own = 1;
  for (const Axis& axis : axes) own *= axis.extent;
  return own == entries;
}

bool BatchWalk::is_plain() const { return axes.empty() || (axes.size() == 1 && has_own_entries()); }

void BatchWalk::append_to(TensorMap& map) const {
  const int64_t bytes = byte_size(map.type);
  for (const Axis& axis : axes) {
    map.dims.push_back(axis.extent);
    map.stride_bytes.push_back(axis.stride * bytes);
  }
  const int rank = is_plain() ? 3 : 2 + kMostAxes;
  // The stride of a single element says no more than on what multiples lines begin, by which they are
  // fetched in pairs.
  const int64_t stride = is_plain() ? kCopyUnit : map.stride_bytes.back();
  while (map.dims.rank() < rank) {
    map.dims.push_back(1);
    map.stride_bytes.push_back(stride);
  }
}

void BatchWalk::append_to(Parameters& p) const {
  std::array<int64_t, kMostAxes> shared{}, extent{};
  shared.fill(1);
  extent.fill(1);
  for (size_t i = 0; i < axes.size(); ++i) {
    shared[kMostAxes - 1 - i] = axes[i].shared;
    extent[kMostAxes - 1 - i] = axes[i].extent;
  }
  p.divisors("shared", shared);
  p.divisors("extent", extent);
}

void BatchWalk::append_extents(Parameters& p) const {
  Dims extents;
  for (const Axis& axis : axes) extents.insert(0, axis.extent);
  p.divisors("extent", extents);
}

std::optional<BatchWalk> batch_walk(const WalkedAxes& batch) {
  BatchWalk walk{axes_of(batch), element_count(batch.extents)};
  if (std::ssize(walk.axes) > BatchWalk::kMostAxes) return std::nullopt;
  return walk;
}

std::optional<BatchWalk> batch_walk_like(const BatchWalk& like, const WalkedAxes& batch) {
  BatchWalk walk = like;
  for (BatchWalk::Axis& axis : walk.axes) {
    const auto stride =
        one_stride(slice(batch.extents, axis.first, axis.end), slice(batch.strides, axis.first, axis.end));
    if (!stride || *stride == 0) return std::nullopt;
    axis.stride = *stride;
  }
  return walk;
}

std::string to_string(const BatchWalk& walk) {
  std::string text;
  for (const BatchWalk::Axis& axis : walk.axes) {
    const std::string extent =
        axis.shared == 1 ? fmt::format("{}", axis.extent) : fmt::format("{} x {}", axis.extent, axis.shared);
    text = text.empty() ? extent : fmt::format("{}, {}", extent, text);
  }
  return fmt::format("[{}]", text);
}

}  // namespace fusor
