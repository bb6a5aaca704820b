// Owns the grid of positions from which a resident window is multiplied: the pixels of the result, and along
// every spatial axis as many positions more as the window reaches. A tap is then the same distance away from
// every position. Templates over the integer and the divisor, so that a host test runs them.
#pragma once

#include "codegen/device/contraction/product.cuh"

/// Fields are arguments: 8 bytes each (a Divisor: 3 of them).
template <int kSpatial, class Index, class Wide, class Divisor>
struct PaddedGrid {
  using Key = Point<Index>;

  struct Axis {
    Divisor positions;
    Wide pixels;  // the first of them; the rest are no pixels of the result
  };
  Wide count;  // of positions, in all images
  Axis axis[kSpatial];

  template <class Problem>
  __device__ Wide rows(const Problem&) const {
    return count;
  }

  /// The pixel at a position. Where there is none: a negative lead, or, with kClamped, another pixel.
  template <bool kClamped, class Problem, class Tile>
  __device__ Key row(const Problem&, const Tile&, Index index) const {
    if (index >= Index(count)) {
      if constexpr (!kClamped) return {Index(-1), {Index(0), Index(0), Index(0)}};
      index = Index(count) - 1;
    }
    Key key{Index(0), {Index(0), Index(0), Index(0)}};
    bool exists = true;
    for (int i = kSpatial - 1; i >= 0; --i) {
      const Index position = axis[i].positions.split(index), last = Index(axis[i].pixels) - 1;
      exists &= position <= last;
      key.at[i] = kClamped && position > last ? last : position;
    }
    key.lead = kClamped || exists ? index : Index(-1);
    return key;
  }
};
