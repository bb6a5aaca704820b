// Owns the first kernel of depthwise wgrad by marching: x and dy are read once.
//
//   128 threads = width (vectors of channels; planes) x lanes; a lane's strip is kStrip columns by `rows`
//   rows
//
//   dy row r + 1: in flight    ring[kRing] of dy rows: r, r - 1, ...     (those that the row of x meets)
//   x row i + 1: in flight     x row i: sums[kLines][kTaps] += ring * columns
//   finish: sums --> shared[rows of the window at once][kThreads] --> lanes added in order
//           --> partials[block][tap][channel] --> depthwise/finish.cuh
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/lines.cuh"

// strips: all of them; strips_per_block; rows: of a strip; partials: [part][tap][channel].

using GradientLoads = LineLoads<kStrip, kStrip, kAlong, 0>;
using Gradients = Lines<A, GradientLoads, Config::a_plain>;
using Columns = Lines<B, ColumnLoads, Config::b_plain>;
using Sums = Line<kTaps>[kLines];
/// Rows of dy, the youngest one first.
using Ring = Line<kStrip>[kRing];

FUSOR_DEVICE void make_room(Ring& ring) {
#pragma unroll
  for (int age = kRing - 1; age > 0; --age) ring[age] = ring[age - 1];
}

/// Adds what a line of x contributes: the `q`-th of those that meet the youngest row of dy first.
FUSOR_DEVICE void add_line(int q, const Line<kColumns>& columns, const Ring& ring, Sums& sums) {
#pragma unroll
  for (int age = 0; age < kRing; ++age) {
    const int line = q + age * kAdvance;
    if (line >= kLines) continue;
#pragma unroll
    for (int k = 0; k < kTaps; ++k)
#pragma unroll
      for (int i = 0; i < kStrip; ++i)
#pragma unroll
        for (int v = 0; v < kVector; ++v)
          sums[line].at[k][v] =
              multiply_add(ring[age].at[i][v], columns.at[i * kSpread + k][v], sums[line].at[k][v]);
  }
}

FUSOR_DEVICE void add_strip(const Params& p, Index channel, Index strip, Sums& sums) {
  const Window::Axis &rows = p.window.axis[1], &axis = p.window.axis[2];
  Window::AxisRun runs[3];
  Index pixel[5] = {0, channel};
  if (!p.window.locate(strip, runs, pixel[0], Index(p.rows))) return;
  if (!p.window.axis[0].has_position(runs[0].position)) return;
  pixel[2] = runs[0].position;
  Index result[5] = {pixel[0], channel, runs[0].result};
  Gradients gradients(p.a, {GradientLoads{runs[2].result, axis.spacing.divisor, 0}, Index(axis.results)});
  Columns incoming(p.b, {loads_of_columns(axis, runs[2].position), Index(axis.positions)});
  Index row = runs[1].result, position = runs[1].position;
  const auto fetch_gradients = [&] {
    result[3] = clamped(row, Index(rows.results));
    gradients.fetch(result);
  };
  const auto fetch_columns = [&] {
    pixel[3] = clamped(position, Index(rows.positions));
    incoming.fetch(pixel);
  };
  fetch_gradients();
  Index end = row + Index(p.rows) * rows.spacing.divisor;
  if (end > Index(rows.results)) end = Index(rows.results);
  const Index last = end + (kRing - 1) * rows.spacing.divisor;
  Ring ring = {};
  const auto take_gradients = [&] {
    gradients.take(ring[0], row < end);
    row += rows.spacing.divisor;
    fetch_gradients();
  };
  // These rows of dy lie before the first row of x.
#pragma unroll 1
  while (row < last && position + (kAdvance - 1) * Index(rows.column_step) < 0) {
    take_gradients();
    make_room(ring);
    position += kAdvance * Index(rows.column_step);
  }
  fetch_columns();
#pragma unroll 1
  while (row < last && position < Index(rows.positions)) {
    take_gradients();
#pragma unroll
    for (int q = 0; q < kAdvance; ++q) {
      Line<kColumns> columns;
      incoming.take(columns, rows.has_position(position));
      position += Index(rows.column_step);
      fetch_columns();
      add_line(q, columns, ring, sums);
    }
    make_room(ring);
  }
}

// Rows of the window that the lanes of a block add up at a time.
enum : int {
  kLinesInShared = 8192 / (kTaps * kThreads * kVector),
  kAtOnce = kLinesInShared < 1        ? 1
            : kLinesInShared < kLines ? kLinesInShared
                                      : kLines,
};

/// Adjacent channels: adds up the sums of the lanes of a block, in their order, and writes them to the
/// block's part: lanes share out the taps.
FUSOR_DEVICE void write_part(const Params& p, Index part, Index vector, int column, int lane,
                             const Sums& sums) {
  using Value = Vec<float, kVector>;
  __shared__ Value shared[kAtOnce * kTaps][kThreads];
  const int width = int(p.channels.width.divisor), lanes = int(p.channels.lanes);
  const i64 channels = p.channels.vectors * kVector;
  float* const to = p.partials + part * (kLines * kTaps) * channels + vector * kVector;
#pragma unroll
  for (int first = 0; first < kLines; first += kAtOnce) {
    if (first > 0) __syncthreads();
#pragma unroll
    for (int i = 0; i < kAtOnce * kTaps; ++i) {
      if (first + i / kTaps >= kLines) break;
      Value value;
#pragma unroll
      for (int v = 0; v < kVector; ++v) value[v] = sums[first + i / kTaps].at[i % kTaps][v];
      shared[i][threadIdx.x] = value;
    }
    __syncthreads();
    const int end = (kLines - first < kAtOnce ? kLines - first : kAtOnce) * kTaps;
#pragma unroll 1
    for (int i = lane; i < end && vector < Index(p.channels.vectors); i += lanes) {
      Value total = shared[i][column];
#pragma unroll 1
      for (int other = 1; other < lanes; ++other) {
        const Value value = shared[i][other * width + column];
#pragma unroll
        for (int v = 0; v < kVector; ++v) total[v] += value[v];
      }
      *reinterpret_cast<Value*>(to + (first * kTaps + i) * channels) = total;
    }
  }
}

/// Planes: the same, where several lanes share a tap, each of which adds up neighbours; then one adds up what
/// they have.
FUSOR_DEVICE void write_part_of_planes(const Params& p, Index part, Index channel, int column, int lane,
                                       const Sums& sums) {
  // One float more than there are threads: lanes that read different taps meet no bank twice.
  __shared__ float shared[kAtOnce * kTaps][kThreads + 1];
  __shared__ float shares[kThreads];
  const int lanes = int(p.channels.lanes), first_lane = column * lanes;
  const bool writes = channel < Index(p.channels.vectors);
  float* const to = p.partials + part * (kLines * kTaps) * p.channels.vectors + channel;
#pragma unroll
  for (int first = 0; first < kLines; first += kAtOnce) {
    const int count = (kLines - first < kAtOnce ? kLines - first : kAtOnce) * kTaps;
    const int helpers = lanes > count ? lanes / count : 1, share = (lanes + helpers - 1) / helpers;
    if (first > 0) __syncthreads();
#pragma unroll
    for (int i = 0; i < count; ++i) shared[i][threadIdx.x] = sums[first + i / kTaps].at[i % kTaps][0];
    __syncthreads();
    const auto write = [&](int tap, float total) {
      if (writes) to[(first * kTaps + tap) * p.channels.vectors] = total;
    };
#pragma unroll 1
    for (int i = lane; i < count * helpers; i += lanes) {
      const int tap = i % count, begin = i / count * share;
      const int end = begin + share < lanes ? begin + share : lanes;
      float total = 0.0f;
#pragma unroll 4
      for (int other = begin; other < end; ++other) total += shared[tap][first_lane + other];
      if (helpers == 1)
        write(tap, total);
      else
        shares[first_lane + i] = total;
    }
    if (helpers == 1) continue;
    __syncthreads();
    if (lane >= count) continue;
    float total = 0.0f;
#pragma unroll 1
    for (int helper = 0; helper < helpers; ++helper) total += shares[first_lane + helper * count + lane];
    write(lane, total);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise_march_wgrad(const __grid_constant__ Params p) {
  enter_launch();
  Index range = block_number();
  const Index tile = p.channels.tiles.split(range);
  Index lane;
  const Index column = column_of_thread(p.channels, lane);
  const Index vector = tile * p.channels.width.divisor + column;
  const Index begin = range * Index(p.strips_per_block);
  Index end = begin + Index(p.strips_per_block);
  if (end > Index(p.strips)) end = Index(p.strips);
  if (vector >= Index(p.channels.vectors)) end = begin;
  Sums sums = {};
#pragma unroll 1
  for (Index strip = begin + lane; strip < end; strip += Index(p.channels.lanes))
    add_strip(p, vector * kVector, strip, sums);
  if constexpr (Config::planes)
    write_part_of_planes(p, range, vector, int(column), int(lane), sums);
  else
    write_part(p, range, vector, int(column), int(lane), sums);
}
