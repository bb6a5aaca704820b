// Owns depthwise fprop and dgrad, bound by memory.
//
//   128 threads = width (vectors of channels; planes) x lanes; a lane computes strips of kRows x kStrip
//
//   shared: filters[vector][tap], fp32, staged once      registers: sums[kRows][kStrip], columns[kColumns]
//   for every operand row under the strip:  columns: load --> prologue --> zeros where padding
//     for every result row that it meets:   sums += columns * filter row      (each column loaded once a row)
//   finish: sums --> Y
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/filters.cuh"

// strips: of the result; steps: of a block; pieces: of a row of the window.

using Sums = Line<kStrip>;

/// Adds what the columns contribute through one piece of a row of the window.
FUSOR_DEVICE void add_row(const Params& p, const Filters& filters, Index row, Index first_tap,
                          const Line<kColumns>& columns, Sums& sums) {
  const Window::Axis& axis = p.window.axis[2];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    const Index tap = first_tap + k * Index(axis.tap_step);
    if (!Config::whole_rows && tap >= axis.window.divisor) break;
    float filter[kVector];
    filters.read(row + tap, filter);
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      if (column_met(i, k) < 0) continue;
#pragma unroll
      for (int v = 0; v < kVector; ++v)
        sums.at[i][v] = multiply_add(columns.at[column_met(i, k)][v], filter[v], sums.at[i][v]);
    }
  }
}

/// Adds up one piece of the window, over all its planes and rows.
FUSOR_DEVICE void add_piece(const Params& p, const Filters& filters, const Window::AxisRun (&runs)[3],
                            Index piece, Index (&at)[5], Sums (&sums)[kRows]) {
  const Window::Axis &planes = p.window.axis[0], &rows = p.window.axis[1], &axis = p.window.axis[2];
  const Index first_tap = runs[2].tap + piece * kTaps * Index(axis.tap_step);
  const Index first = runs[2].position + piece * kTaps * Index(axis.column_step);
  if (first_tap >= axis.window.divisor) return;
#pragma unroll 1
  for (Index plane = 0; plane < Index(planes.taps); ++plane) {
    const Index plane_tap = planes.tap(runs[0], plane, 0);
    at[2] = runs[0].position + plane * Index(planes.column_step);
    if (plane_tap >= planes.window.divisor || !planes.has_position(at[2])) continue;
#pragma unroll 1
    for (Index row = 0; row < (kRows - 1) * Index(rows.advance) + Index(rows.taps); ++row) {
      at[3] = runs[1].position + row * Index(rows.column_step);
      if (!rows.has_position(at[3])) continue;
      Line<kColumns> columns;
      load_line<A>(p.a, at, loads_of_columns(axis, first), Index(axis.positions), columns);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Index row_tap = rows.tap(runs[1], row, r);
        if (row_tap < rows.window.divisor)
          add_row(p, filters, p.window.tap_row(plane_tap, row_tap), first_tap, columns, sums[r]);
      }
    }
  }
}

FUSOR_DEVICE void finish(const Params& p, const Window::AxisRun (&runs)[3], Index (&at)[5],
                         const Sums (&sums)[kRows]) {
  const Window::Axis &rows = p.window.axis[1], &axis = p.window.axis[2];
  at[2] = runs[0].result;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    at[3] = runs[1].result + r * rows.spacing.divisor;
#pragma unroll
    for (int i = 0; i < kStrip; i += kAlong) {
      at[4] = runs[2].result + i * axis.spacing.divisor;
      if (at[3] >= Index(rows.results) || at[4] >= Index(axis.results)) continue;
      store_results<Y>(p.y, at, sums[r], i);
    }
  }
}

FUSOR_DEVICE void make_strip(const Params& p, const Filters& filters, Index channel, Index strip) {
  Window::AxisRun runs[3];
  Index at[5] = {0, channel};
  if (!p.window.locate(strip, runs, at[0])) return;
  Sums sums[kRows] = {};
  if constexpr (Config::whole_rows) {
    add_piece(p, filters, runs, 0, at, sums);
  } else {
#pragma unroll 1
    for (Index piece = 0; piece < Index(p.pieces); ++piece) add_piece(p, filters, runs, piece, at, sums);
  }
  finish(p, runs, at, sums);
}

// Blocks walk over strips that lie next to each other, so that the rows which strips share are still in L1.
extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise(const __grid_constant__ Params p) {
  extern __shared__ Vec<float, Filters::kPack> shared_filters[];
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
