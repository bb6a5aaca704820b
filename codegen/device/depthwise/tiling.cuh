// Owns what the kernels of the depthwise engine share: the window in the terms of the config, which channels
// and strips a thread works on, and the loading of a strip's columns.
#pragma once

#include "codegen/device/depthwise/window.cuh"

enum : int {
  kThreads = 128,
  kVector = Config::vector,  // adjacent channels of a thread
  kRows = Config::rows,
  kStrip = Config::strip,
  kTaps = Config::taps,  // of a piece of a row of the window
};
/// Columns between neighbours of a run, or kTaps where they share none; result i meets column i * kSpread +
/// k.
enum : int {
  kSpread = Config::spread,
  kColumns = (kStrip - 1) * kSpread + kTaps,
};

using Window = SlidingWindow<Config::strided_gradient, kRows, kStrip, Index, i64, FastDivisor>;

/// Channels in vectors of kVector: a block has `width` of them, and each of its lanes one strip at a time.
struct ChannelTiling {
  i64 vectors;        // all
  FastDivisor width;  // of a block
  FastDivisor tiles;  // blocks that cover all vectors
  i64 lanes;          // of a block
};

/// A vector of a line's element: an array in registers.
template <int kCount>
struct Line {
  float at[kCount][kVector];
};

FUSOR_DEVICE Index clamped(Index x, Index end) { return x < 0 ? Index(0) : x < end ? x : end - 1; }

/// Loads elements `first + offset * step` of the last axis, where `offset` counts kGroup neighbours and then
/// goes on at the next multiple of `jump`. Elements beyond [0, end) are zero after the prologue: what is read
/// in their place keeps the loads free of branches, so that all are in flight at once.
template <class Site, int kCount, int kGroup>
FUSOR_DEVICE void load_line(const typename Site::Args& args, Index (&at)[5], Index first, Index step,
                            Index jump, Index end, Line<kCount>& line) {
  const auto position = [&](int i) { return first + (i / kGroup * jump + i % kGroup) * step; };
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    at[4] = clamped(position(i), end);
    const auto values = Site::template apply<kVector>(args, at, kVector);
#pragma unroll
    for (int v = 0; v < kVector; ++v) line.at[i][v] = static_cast<float>(values[v]);
  }
  if (first >= 0 && position(kCount - 1) < end) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool inside = position(i) >= 0 && position(i) < end;
#pragma unroll
    for (int v = 0; v < kVector; ++v) line.at[i][v] = inside ? line.at[i][v] : 0.0f;
  }
}

/// The columns of a strip from position `first` on.
template <class Site>
FUSOR_DEVICE void load_columns(const typename Site::Args& args, Index (&at)[5], const Window::Axis& axis,
                               Index first, Line<kColumns>& columns) {
  constexpr int kGroup = kSpread < kTaps ? kColumns : kTaps;
  load_line<Site, kColumns, kGroup>(args, at, first, Index(axis.column_step), Index(axis.advance),
                                    Index(axis.positions), columns);
}
