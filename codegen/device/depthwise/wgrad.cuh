// Owns the first kernel of depthwise wgrad with adjacent channels.
//
//   128 threads = columns (row piece of the window, vector of channels) x lanes; no shared memory
//
//   lane: every strip of dy in its share    gradients[kStrip], columns of x[kColumns] --> zeros where padding
//         sums[kTaps] += gradients * columns, in registers for the whole share
//   partials[part][tap][channel]  --> depthwise/finish.cuh; a part is one lane of one block
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/tiling.cuh"

// columns: (row piece, vector) pairs of a block; row_tiles: blocks that cover all row pieces; pieces: of a
// row of the window; partials: [part][tap][channel].

/// The taps of a thread: those of one piece of one row of the window.
struct TapRow {
  Index plane, row, first;
};

FUSOR_DEVICE TapRow tap_row(const Params& p, Index row_piece) {
  TapRow taps;
  taps.first = p.pieces.split(row_piece) * kTaps;
  taps.row = p.window.axis[1].window.split(row_piece);
  taps.plane = row_piece;
  return taps;
}

/// Adds what one strip of dy and the columns of x under it contribute.
FUSOR_DEVICE void add_strip(const Params& p, const TapRow& taps, Index channel, Index strip,
                            Line<kTaps>& sums) {
  const Window::Axis &planes = p.window.axis[0], &rows = p.window.axis[1], &axis = p.window.axis[2];
  Window::AxisRun runs[3];
  Index at[5] = {0, channel};
  if (!p.window.locate(strip, runs, at[0])) return;
  const Index plane = runs[0].position + taps.plane * Index(planes.column_step);
  const Index row = runs[1].position + taps.row * Index(rows.column_step);
  if (!planes.has_position(plane) || !rows.has_position(row)) return;
  Line<kStrip> gradients;
  at[2] = runs[0].result;
  at[3] = runs[1].result;
  const LineLoads<kStrip, kStrip, 1, 0> loads{runs[2].result, axis.spacing.divisor, 0};
  load_line<A>(p.a, at, loads, Index(axis.results), gradients);
  Line<kColumns> columns;
  at[2] = plane;
  at[3] = row;
  const Index first = runs[2].position + taps.first * Index(axis.column_step);
  load_line<B>(p.b, at, loads_of_columns(axis, first), Index(axis.positions), columns);
#pragma unroll
  for (int k = 0; k < kTaps; ++k)
#pragma unroll
    for (int i = 0; i < kStrip; ++i)
#pragma unroll
      for (int v = 0; v < kVector; ++v)
        sums.at[k][v] = multiply_add(gradients.at[i][v], columns.at[i * kSpread + k][v], sums.at[k][v]);
}

FUSOR_DEVICE void write_part(const Params& p, const TapRow& taps, Index channel, i64 part,
                             const Line<kTaps>& sums) {
  const Index window = p.window.axis[2].window.divisor;
  const i64 tap = part * p.window.taps() + p.window.tap_row(taps.plane, taps.row) + taps.first;
  const i64 channels = p.channels.vectors * kVector;
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    if (taps.first + k >= window) break;
    Vec<float, kVector> values;
#pragma unroll
    for (int v = 0; v < kVector; ++v) values[v] = sums.at[k][v];
    *reinterpret_cast<Vec<float, kVector>*>(p.partials + (tap + k) * channels + channel) = values;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise_wgrad(const __grid_constant__ Params p) {
  enter_launch();
  Index range = block_number();
  const Index tile = p.channels.tiles.split(range);
  const Index row_tile = p.row_tiles.split(range);
  Index lane = threadIdx.x;
  Index row_piece = p.columns.split(lane);
  const Index vector = tile * p.channels.width.divisor + p.channels.width.split(row_piece);
  row_piece += row_tile * Index(p.rows_per_block);
  if (vector >= Index(p.channels.vectors) || row_piece >= Index(p.row_pieces)) return;
  const TapRow taps = tap_row(p, row_piece);
  Line<kTaps> sums;
#pragma unroll
  for (int k = 0; k < kTaps; ++k)
#pragma unroll
    for (int v = 0; v < kVector; ++v) sums.at[k][v] = 0.0f;
  const Index begin = range * Index(p.strips_per_block);
  Index end = begin + Index(p.strips_per_block);
  if (end > Index(p.strips)) end = Index(p.strips);
#pragma unroll 1
  for (Index strip = begin + lane; strip < end; strip += Index(p.channels.lanes))
    add_strip(p, taps, vector * kVector, strip, sums);
  write_part(p, taps, vector * kVector, i64(range) * p.channels.lanes + lane, sums);
}
