// Owns what the kernels of the depthwise engine share: the window in the terms of the config, which channels
// and strips a thread works on, and how a strip's columns are loaded and its results stored.
//
//   channels adjacent    thread = lane * width + column      a load takes kVector channels of one pixel
//   planes               thread = column * lanes + lane      a load takes kLoad pixels of one channel
#pragma once

#include "codegen/device/depthwise/window.cuh"

enum : int {
  kThreads = 128,
  kVector = Config::vector,  // adjacent channels of a thread; 1 in planes
  kLoad = Config::load,      // neighbours along the last axis that a load of columns takes
  kLead = Config::lead,      // those of a strip's first load that lie in front of its columns
  kAlong = Config::along,    // neighbouring results of a strip that one access moves
  kRows = Config::rows,
  kStrip = Config::strip,
  kTaps = Config::taps,  // of a piece of a row of the window
};
/// Columns between neighbours of a run, or kTaps where they share none; result i meets column i * kSpread +
/// k. In a strided gradient of planes, where runs are neighbours, results of kPhases phases take turns.
enum : int {
  kSpread = Config::spread,
  kPhases = Config::phases,
  kPhase = Config::phase,
  kColumns = kPhases > 1 ? (kStrip - 1 + kTaps - 1 + kPhase) / kPhases + 1 : (kStrip - 1) * kSpread + kTaps,
};
/// The column that result i meets through the k-th tap, or -1.
FUSOR_DEVICE constexpr int column_met(int i, int k) {
  if (kPhases == 1) return i * kSpread + k;
  return (i + k + kPhase) % kPhases == 0 ? (i + k + kPhase) / kPhases : -1;
}

static_assert(kVector == 1 || kLoad * kAlong == 1, "vectors lie along one axis");

using Window =
    SlidingWindow<Config::strided_gradient, kRows, kStrip, Index, i64, FastDivisor, Config::picks_taps>;

/// Channels in vectors of kVector: a block has `width` of them, and each of its lanes one strip at a time.
struct ChannelTiling {
  i64 vectors;        // all
  FastDivisor width;  // of a block
  FastDivisor tiles;  // blocks that cover all vectors
  i64 lanes;          // of a block
};

/// The column of this thread; its lane is left in `lane`.
FUSOR_DEVICE Index column_of_thread(const ChannelTiling& channels, Index& lane) {
  lane = threadIdx.x;
  if constexpr (!Config::planes) return channels.width.split(lane);
  const u32 column = threadIdx.x / static_cast<u32>(channels.lanes);
  lane = threadIdx.x - column * static_cast<u32>(channels.lanes);
  return Index(column);
}

/// A vector of a line's element: an array in registers.
template <int kCount>
struct Line {
  float at[kCount][kVector];
};

FUSOR_DEVICE Index clamped(Index x, Index end) { return x < 0 ? Index(0) : x < end ? x : end - 1; }

/// The loads of a line of kCount elements.
template <int kCount, int kGroup, int kLength, int kBefore>
using LineLoads = SlidingLoads<kCount, kGroup, kLength, kBefore, Index>;

/// Lane `v` of the i-th load becomes an element of the line, if it is one.
template <class Loads, int kCount>
FUSOR_DEVICE void put(Line<kCount>& line, int i, int v, float value) {
  const int element = Loads::element(i, v / kVector);
  if (element >= 0 && element < kCount) line.at[element][v % kVector] = value;
}

/// Loads a line. Elements beyond [0, end) are zero after the prologue: what is read in their place keeps the
/// loads free of branches, so that all are in flight at once.
template <class Site, class Loads, int kCount>
FUSOR_DEVICE void load_line(const typename Site::Args& args, Index (&at)[5], const Loads& loads, Index end,
                            Line<kCount>& line) {
  constexpr int kWidth = kVector * Loads::kLength;
#pragma unroll
  for (int i = 0; i < Loads::kLoads; ++i) {
    at[4] = loads.clamped(i, end);
    const auto values = Site::template apply<kWidth>(args, at, kWidth);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) put<Loads>(line, i, v, static_cast<float>(values[v]));
  }
  if (loads.position(0) >= 0 && loads.position(Loads::kLoads - 1) < end) return;
#pragma unroll
  for (int i = 0; i < Loads::kLoads; ++i) {
    const bool inside = loads.position(i) >= 0 && loads.position(i) < end;
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const int element = Loads::element(i, v / kVector);
      if (element < 0 || element >= kCount) continue;
      line.at[element][v % kVector] = inside ? line.at[element][v % kVector] : 0.0f;
    }
  }
}

/// Columns that lie side by side.
enum : int { kColumnGroup = kSpread < kTaps ? kColumns : kTaps };

using ColumnLoads = LineLoads<kColumns, kColumnGroup, kLoad, kLead>;

/// The columns of a strip from position `first` on.
FUSOR_DEVICE ColumnLoads loads_of_columns(const Window::Axis& axis, Index first) {
  return {first, Index(axis.column_step), Index(axis.advance)};
}

/// Stores kAlong neighbours of a strip's results, from the i-th on.
template <class Site>
FUSOR_DEVICE void store_results(const typename Site::Args& args, const Index (&at)[5],
                                const Line<kStrip>& sums, int i) {
  constexpr int kWidth = kVector * kAlong;
  Vec<float, kWidth> values;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) values[v] = sums.at[i + v / kVector][v % kVector];
  Site::template apply<kWidth>(args, at, kWidth, values);
}
