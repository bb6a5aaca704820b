// Owns the division of a chain of products into slices that the CPU device evaluates one after another:
// what lies between two products, attention's scores, is never in memory as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/fusion.h"

namespace fusor::reference {

/// Elements that a slice has at most behind a product, where axes allow it.
inline constexpr int64_t kSliceElements = 1 << 22;

/// One coordinate of a fusion: of each site, the axis that walks it, or -1.
struct FreeAxis {
  std::vector<int> axes;
  int64_t extent = 1;
};

/// The coordinates that no product and no reduction of a chain sums over, of the largest site behind a
/// product, from the outermost on. None where sites and products are joined in ways that are not followed.
std::vector<FreeAxis> free_axes(const Fusion& fusion);

/// Coordinates of each of these axes in a slice: the largest site behind a product has `most` elements then,
/// or a few more.
std::vector<int64_t> slice_extents(const Fusion& fusion, const std::vector<FreeAxis>& axes,
                                   int64_t most = kSliceElements);

/// A coordinate that products sum over, and nothing else: its slices give parts of their results, which add
/// up.
struct SummedAxis {
  FreeAxis axis;
  std::vector<size_t> anchors;  ///< those products
  std::vector<bool> is_late;    ///< by site: whether it waits for their sums, and for nothing else
  int64_t count = 1;            ///< of coordinates in a slice
};

/// The outermost such coordinate of the largest site behind a product; nothing where there is none, or where
/// the site has no more than `most` elements. A slice of it has about so many.
std::optional<SummedAxis> summed_axis(const Fusion& fusion, int64_t most = kSliceElements);

/// The fusion of `count` coordinates of an axis.
Fusion slice_of(const Fusion& fusion, const FreeAxis& axis, int64_t first, int64_t count);

/// Slices that cover the fusion, each made when it is visited; the fusion itself where it is small.
template <class Visit>
void for_each_slice(const Fusion& fusion, const std::vector<FreeAxis>& axes,
                    const std::vector<int64_t>& extents, Visit&& visit, size_t from = 0) {
  while (from < axes.size() && extents[from] == axes[from].extent) ++from;
  if (from == axes.size()) {
    visit(fusion);
    return;
  }
  for (int64_t first = 0; first < axes[from].extent; first += extents[from]) {
    const int64_t count = std::min(extents[from], axes[from].extent - first);
    for_each_slice(slice_of(fusion, axes[from], first, count), axes, extents, visit, from + 1);
  }
}

}  // namespace fusor::reference
