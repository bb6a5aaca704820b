// Owns depthwise fprop and dgrad by marching down the rows, for windows whose rows overlap.
//
//   128 threads = width (vectors of channels; planes) x lanes; a lane's strip is kStrip columns by `rows`
//   rows
//
//   operand row   i + 1: in flight (plain 16-bit loads, as stored)    i: added to all rows that it meets
//   sums[kRing]   row r: complete --> Y      r + 1: partial      r + 2: partial ...
//                 then the ring shifts by one: r + 1 becomes the first
//   shared: filters[vector][tap], fp32
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/filters.cuh"
#include "codegen/device/depthwise/lines.cuh"

// strips: of the result; steps: of a block; rows: of a strip.

using Columns = Lines<A, ColumnLoads, Config::a_plain>;
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

FUSOR_DEVICE void finish(const Params& p, Index (&at)[5], Index first, const Line<kStrip>& sums) {
  const Window::Axis& axis = p.window.axis[2];
#pragma unroll
  for (int i = 0; i < kStrip; i += kAlong) {
    at[4] = first + i * axis.spacing.divisor;
    if (Config::tails && at[4] >= Index(axis.results)) continue;
    store_results<Y>(p.y, at, sums, i);
  }
}

FUSOR_DEVICE void make_strip(const Params& p, const Filters& filters, Index channel, Index strip) {
  const Window::Axis &rows = p.window.axis[1], &axis = p.window.axis[2];
  Window::AxisRun runs[3];
  Index from[5] = {0, channel};
  if (!p.window.locate(strip, runs, from[0], Index(p.rows))) return;
  const Taps taps(p.window, runs);
  from[2] = clamped(runs[0].position, Index(p.window.axis[0].positions));
  Index to[5] = {from[0], channel, runs[0].result};
  Columns incoming(p.a, {loads_of_columns(axis, runs[2].position), Index(axis.positions)});
  // The first line of the run meets its first row of results as the last of kRing.
  Index position = runs[1].position + (kLines - kRing * kAdvance) * Index(rows.column_step);
  to[3] = runs[1].result - (kRing - 1) * rows.spacing.divisor;
  // Sums stay zero until there are lines.
  while (to[3] < runs[1].result && position + (kAdvance - 1) * Index(rows.column_step) < 0) {
    position += kAdvance * Index(rows.column_step);
    to[3] += rows.spacing.divisor;
  }
  const auto fetch = [&] {
    from[3] = clamped(position, Index(rows.positions));
    incoming.fetch(from);
  };
  fetch();
  Index end = runs[1].result + Index(p.rows) * rows.spacing.divisor;
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
        add_line(p.window, filters, taps, q, r, columns, sums[r]);
        // Its registers are free before the last row's are needed.
        if (q == kAdvance - 1 && r == 0 && to[3] >= runs[1].result) finish(p, to, runs[2].result, sums[0]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise_march(const __grid_constant__ Params p) {
  extern __shared__ Filters::Pack shared_filters[];
  enter_launch();
  Index range = block_number();
  const Index tile = p.channels.tiles.split(range);
  Index lane;
  const Index column = column_of_thread(p.channels, lane);
  const Index vector = tile * p.channels.width.divisor + column;
  const bool works = vector < Index(p.channels.vectors);
  const Filters filters(shared_filters, p.window.taps(), column);
  if (works) filters.stage(p.window, p.b, vector * kVector, lane, Index(p.channels.lanes));
  __syncthreads();
  if (!works) return;
  Index strip = range * Index(p.steps * p.channels.lanes) + lane;
#pragma unroll 1
  for (Index step = 0; step < Index(p.steps) && strip < Index(p.strips); ++step) {
    make_strip(p, filters, vector * kVector, strip);
    strip += Index(p.channels.lanes);
  }
}
