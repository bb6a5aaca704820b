// Owns depthwise fprop and dgrad by marching down the rows, for windows whose rows overlap.
//
//   128 threads = width (vectors of channels; planes) x lanes; a lane's strip is kStrip columns by `rows`
//   ones
//
//   row i of the operand: added to all rows of results that it meets     row i + 1: in flight (plain 16-bit
//   loads) shared: filters[vector][tap], fp32
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/lines.cuh"
#include "codegen/device/depthwise/ring.cuh"

// strips: of the result; steps: of a block; rows: of a strip.

using Columns = Lines<A, ColumnLoads, Config::a_plain>;

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
  const Window::Axis& axis = p.window.axis[2];
  Window::AxisRun runs[3];
  Index from[5] = {0, channel};
  if (!p.window.locate(strip, runs, from[0], Index(p.rows))) return;
  const auto lines = [&] {
    return Columns(p.a, {loads_of_columns(axis, runs[2].position), Index(axis.positions)});
  };
  march_down(p.window, Index(p.rows), filters, runs, from, lines,
             [&](Index(&to)[5], const Line<kStrip>& sums) { finish(p, to, runs[2].result, sums); });
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
