// Owns the march of depthwise fprop and dgrad: a strip's rows of results, of which those that a line meets
// are unfinished.
//
//   operand row   i + 1: fetched                         i: added to all rows that it meets
//   sums[kRing]   row r: complete --> finish             r + 1: partial      r + 2: partial ...
//                 then the ring shifts by one: r + 1 becomes the first
#pragma once

#include "codegen/device/depthwise/filters.cuh"
#include "codegen/device/depthwise/lines.cuh"

/// The sums of unfinished rows of results; the next one to be finished is the first.
using Sums = Line<kStrip>[kRing];

/// The next row of results becomes the first.
FUSOR_DEVICE void shift(Sums& sums) {
#pragma unroll
  for (int r = 0; r < kRing; ++r)
#pragma unroll
    for (int i = 0; i < kStrip; ++i)
#pragma unroll
      for (int v = 0; v < kVector; ++v) sums[r].at[i][v] = r + 1 < kRing ? sums[r + 1].at[i][v] : 0.0f;
}

/// The first taps that a strip meets: strides of a gradient leave some out. Without `any` all columns are
/// zeros, which filters of the first plane multiply.
struct Taps {
  Index plane, row, column;
  bool any;

  __device__ __forceinline__ Taps(const Window& window, const Window::AxisRun (&runs)[3])
      : plane(runs[0].tap), row(runs[1].tap), column(runs[2].tap) {
    any = window.axis[0].has_position(runs[0].position);
    if constexpr (Config::strided_gradient) {
      any = any && plane < window.axis[0].window.divisor && column < window.axis[2].window.divisor;
      if (!any) plane = 0;
    }
  }
};

/// Adds to the r-th row of results what a line contributes: the `q`-th of the lines which the row after the
/// first one begins with. Its taps are numbers in the text where no stride of a gradient picks them.
FUSOR_DEVICE void add_line(const Window& window, const Filters& filters, const Taps& taps, int q, int r,
                           const Line<kColumns>& columns, Line<kStrip>& sums) {
  const Window::Axis &rows = window.axis[1], &axis = window.axis[2];
  const int line = kLines + q - (r + 1) * kAdvance;
  if (line < 0) return;
  const Index row_tap = Config::strided_gradient ? taps.row + line * Index(rows.tap_step) : Index(line);
  if (Config::strided_gradient && row_tap >= rows.window.divisor) return;
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    const Index tap = Config::picks_taps ? taps.column + k * Index(axis.tap_step) : Index(k);
    if (Config::picks_taps && tap >= axis.window.divisor) break;
    float filter[kVector];
    filters.read(Config::strided_gradient ? window.tap_row(taps.plane, row_tap) + tap : row_tap * kTaps + tap,
                 filter);
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      if (column_met(i, k) < 0) continue;
#pragma unroll
      for (int v = 0; v < kVector; ++v)
        sums.at[i][v] = multiply_add(columns.at[column_met(i, k)][v], filter[v], sums.at[i][v]);
    }
  }
}

/// Goes down a strip. What lines() returns gives the columns of a line, as Lines of depthwise/lines.cuh does;
/// finish(to, sums) takes the row of results at `to`.
/// `at` has the image and the channel.
template <class Lines, class Finish>
FUSOR_DEVICE void march_down(const Window& window, Index length, const Filters& filters,
                             const Window::AxisRun (&runs)[3], Index (&at)[5], const Lines& lines,
                             const Finish& finish) {
  const Window::Axis& rows = window.axis[1];
  const Taps taps(window, runs);
  Index to[5] = {at[0], at[1], runs[0].result};
  at[2] = clamped(runs[0].position, Index(window.axis[0].positions));
  auto incoming = lines();
  // The first line of the run meets its first row of results as the last of kRing.
  Index position = runs[1].position + (kLines - kRing * kAdvance) * Index(rows.column_step);
  to[3] = runs[1].result - (kRing - 1) * rows.spacing.divisor;
  // Sums stay zero until there are lines.
  while (to[3] < runs[1].result && position + (kAdvance - 1) * Index(rows.column_step) < 0) {
    position += kAdvance * Index(rows.column_step);
    to[3] += rows.spacing.divisor;
  }
  const auto fetch = [&] {
    at[3] = clamped(position, Index(rows.positions));
    incoming.fetch(at);
  };
  fetch();
  Index end = runs[1].result + length * rows.spacing.divisor;
  if (end > Index(rows.results)) end = Index(rows.results);
  Sums sums = {};
#pragma unroll 1
  for (; to[3] < end; to[3] += rows.spacing.divisor) {
    shift(sums);
#pragma unroll
    for (int q = 0; q < kAdvance; ++q) {
      Line<kColumns> columns;
      incoming.take(columns, taps.any && rows.has_position(position));
      position += Index(rows.column_step);
      fetch();
#pragma unroll
      for (int r = 0; r < kRing; ++r) {
        add_line(window, filters, taps, q, r, columns, sums[r]);
        // Its registers are free before the last row's are needed.
        if (q == kAdvance - 1 && r == 0 && to[3] >= runs[1].result) finish(to, sums[0]);
      }
    }
  }
}
