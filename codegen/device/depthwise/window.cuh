// Owns the sliding-window view of a depthwise convolution: which operand positions and which taps the results
// of a strip meet. Templates over the integer and the divisor, so that a host test runs them.
//
// Taps are counted in the order in which positions grow. Along every spatial axis
//   fprop, wgrad, dgrad of stride 1    position = result * stride + tap * dilation + start
//   dgrad of other strides             position * stride = result + tap * dilation + start
// A run is a few results, `spacing` apart, whose positions are columns of one grid: result i meets, through
// the k-th tap that leads anywhere, column i * advance + k. With g the greatest common divisor of stride and
// dilation,
//                  spacing                 column_step     advance       tap_step
//   first form     dilation / g            dilation        stride / g    1
//   second form    stride * dilation / g   dilation / g    1             stride / g
// so that neighbours of a run share columns, whatever the stride and the dilation.
//
// In the second form with a dilation of 1, a run may instead be neighbouring results (spacing 1, tap_step 1),
// from a multiple of the stride on. Then result i meets column (i + k + phase) / stride through tap k where
// that has no remainder; phase is start modulo stride.
#pragma once

/// The first result of a run, and where its first tap that leads anywhere meets the operand: that position
/// may be padding. `tap` is not below the window where no tap does.
template <class Index>
struct Run {
  Index result, position, tap;
};

/// The fields are arguments: 8 bytes each (a Divisor: 3 of them).
template <bool kStridedGradient, class Index, class Wide, class Divisor>
struct SlidingAxis {
  Divisor runs, spacing, stride, window;
  Wide results, positions;  // extents
  Wide taps;                // the most that lead a result anywhere
  Wide dilation, start;     // as above
  Wide lift;                // in the second form: positions that keep a dividend from being negative
  Wide column_step, tap_step, advance;
  Wide stored_first, stored_step;  // tap t is stored as stored_first + t * stored_step

  __device__ Run<Index> run(Index number, Index length) const {
    const Index phase = spacing.split(number);
    const Index result = number * length * spacing.divisor + phase;
    if constexpr (kStridedGradient) {
      return first_meeting(result);
    } else {
      return {result, result * stride.divisor + Index(start), Index(0)};
    }
  }
  /// A run of neighbours in the second form; its position is that of column 0.
  __device__ Run<Index> run_of_neighbours(Index number, Index length) const {
    const Index result = number * length;
    const Index product = result + Index(start) + Index(lift) * stride.divisor;
    return {result, stride.divide(product) - Index(lift), Index(0)};
  }
  __device__ bool has_position(Index position) const { return position >= 0 && position < Index(positions); }
  /// The tap through which result i of a run meets a column; not below the window where none does.
  __device__ Index tap(const Run<Index>& run, Index column, int i) const {
    const Index k = column - Index(i) * Index(advance);
    return k < 0 ? window.divisor : run.tap + k * Index(tap_step);
  }
  __device__ Index stored(Index tap) const { return Index(stored_first) + tap * Index(stored_step); }

 private:
  __device__ Run<Index> first_meeting(Index result) const {
    for (Index tap = 0; tap < Index(tap_step); ++tap) {
      const Index product = result + tap * Index(dilation) + Index(start) + Index(lift) * stride.divisor;
      const Index quotient = stride.divide(product);
      if (quotient * stride.divisor == product) return {result, quotient - Index(lift), tap};
    }
    return {result, Index(0), window.divisor};
  }
};

/// Where a line of kCount elements of the last axis is loaded from: `first + offset * step`, where `offset`
/// counts kGroup neighbours and then goes on at the next multiple of `jump`. Loads of several neighbours take
/// elements one apart, all of one group, and begin on multiples of their length, kBefore elements in front of
/// the first: where the axis is as many of them long, each lies in [0, end) or beyond it.
///
///   kLength 4, kBefore 3, kCount 10     . . . 0 | 1 2 3 4 | 5 6 7 8 | 9 . . .
template <int kCount, int kGroup, int kLength_, int kBefore, class Index>
struct SlidingLoads {
  enum : int { kLength = kLength_, kLoads = (kBefore + kCount + kLength - 1) / kLength };
  static_assert(kLength > 1 || kBefore == 0, "loads of one element begin where it is");
  Index first, step, jump;

  __device__ Index position(int i) const {
    if constexpr (kLength > 1) return first + Index(i * kLength - kBefore);
    return first + (i / kGroup * jump + i % kGroup) * step;
  }
  __device__ Index clamped(int i, Index end) const {
    const Index at = position(i);
    return at < 0 ? Index(0) : at < end ? at : end - kLength;
  }
  /// The element that lane `v` of load i holds; none of the line where it lies outside of [0, kCount).
  static constexpr __device__ int element(int i, int v) { return i * kLength + v - kBefore; }
};

/// Three spatial axes, those that a convolution lacks with extents of 1. A strip is kStrip results of the
/// last axis by rows of the one before it: kRows where nothing else is said. Runs of a strided gradient are
/// neighbours along the last axis unless their taps are picked.
template <bool kStridedGradient, int kRows, int kStrip, class Index, class Wide, class Divisor,
          bool kPicksTaps = kStridedGradient>
struct SlidingWindow {
  using Axis = SlidingAxis<kStridedGradient, Index, Wide, Divisor>;
  using AxisRun = Run<Index>;
  Axis axis[3];

  /// The runs of a strip of so many rows and its image; false where the strip lies beyond the results.
  __device__ bool locate(Index strip, AxisRun (&runs)[3], Index& image, Index rows = kRows) const {
    const Index number = axis[2].runs.split(strip);
    if constexpr (kStridedGradient && !kPicksTaps)
      runs[2] = axis[2].run_of_neighbours(number, kStrip);
    else
      runs[2] = axis[2].run(number, kStrip);
    runs[1] = axis[1].run(axis[1].runs.split(strip), rows);
    runs[0] = axis[0].run(axis[0].runs.split(strip), 1);
    image = strip;
    return runs[0].result < Index(axis[0].results) && runs[1].result < Index(axis[1].results) &&
           runs[2].result < Index(axis[2].results);
  }
  /// All taps, counted row by row.
  __device__ Index taps() const {
    return axis[0].window.divisor * axis[1].window.divisor * axis[2].window.divisor;
  }
  __device__ Index tap_row(Index plane, Index row) const {
    return (plane * axis[1].window.divisor + row) * axis[2].window.divisor;
  }
  /// Where tap number `tap` is stored: the spatial coordinates of the filter.
  __device__ void stored(Index tap, Index (&at)[5]) const {
    at[4] = axis[2].stored(axis[2].window.split(tap));
    at[3] = axis[1].stored(axis[1].window.split(tap));
    at[2] = axis[0].stored(tap);
  }
};
