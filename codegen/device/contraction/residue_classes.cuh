// Owns the classes of a strided dgrad: input positions of one remainder along every spatial axis. Templates
// over the integer and the divisor, so that a host test runs them.
//
//   stride 2, 3 taps, padding 1     input      0 1 2 3 4 5 6 7
//   every class is a product        class 0    x   x   x   x       tap 1            input = position * stride
//   of stride 1 with its taps       class 1      x   x   x   x     taps 0 and 2             + class
//
// All classes have the grid of the largest: where the stride does not divide the input, a position may lie
// beyond its end.
#pragma once

#include "codegen/device/contraction/product.cuh"

/// Fields are arguments: 8 bytes each (a Divisor: 3 of them).
template <int kSpatial, int kClasses, class Index, class Wide, class Divisor>
struct ResidueClasses {
  using Key = Point<Index>;

  struct Axis {
    Divisor positions;  // of every class
    Wide tap_step;      // how far a class' next tap along the axis lies in the filter, tap by tap
  };
  struct ClassAxis {
    Wide remainder;
    Wide taps;    // 1 or more, even where there are none
    Wide origin;  // of the offsets of its taps: see WindowWalk
  };
  struct Class {
    Wide steps;      // of k
    Wide first_tap;  // in the filter
    ClassAxis axis[kSpatial];
  };

  Wide rows;  // of a class
  Axis axis[kSpatial];
  Class classes[kClasses];

  /// The input pixel of a class' row. Beyond the end: a negative lead, or, with kClamped, another pixel.
  template <bool kClamped, class Problem>
  __device__ Key row(const Problem& problem, int number, Index index) const {
    if (index >= Index(rows)) {
      if constexpr (!kClamped) return {Index(-1), {Index(0), Index(0), Index(0)}};
      index = Index(rows) - 1;
    }
    Key key{Index(0), {Index(0), Index(0), Index(0)}};
    bool inside = true;
    for (int i = kSpatial - 1; i >= 0; --i) {
      const Index position = axis[i].positions.split(index) * problem.axis[i].stride.divisor +
                             Index(classes[number].axis[i].remainder);
      const Index extent = problem.axis[i].input.divisor;
      const bool exists = position < extent;
      inside &= exists;
      key.at[i] = kClamped && !exists ? extent - 1 : position;
    }
    key.lead = kClamped || inside ? index : Index(-1);
    return key;
  }

  /// A class' tap, counted row-major, taken apart; returns its number in the filter.
  template <class Int>
  __device__ Int split_tap(int number, Int tap, Int (&at)[kSpatial]) const {
    const Class& mine = classes[number];
    Int in_filter = Int(mine.first_tap);
    for (int i = kSpatial - 1; i >= 0; --i) {
      const Int taps = Int(mine.axis[i].taps);
      at[i] = tap % taps;
      tap /= taps;
      in_filter += at[i] * Int(axis[i].tap_step);
    }
    return in_filter;
  }
};
