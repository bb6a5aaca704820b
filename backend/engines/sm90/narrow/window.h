// Owns the window of a convolution of few input channels as the wgmma_narrow engine sees it: in slots of
// pixels, which lie in shared memory row by row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "backend/engines/contraction/product.h"
#include "core/ceil_div.h"

namespace fusor::narrow {

// The constants of the kernels and of codegen/device/sm90/narrow/rows.cuh.
inline constexpr int64_t kElementBytes = 2, kUnitBytes = 16, kStep = 16, kBlock = 64;
inline constexpr int64_t kConsumers = 2, kWarpgroup = 128;
inline constexpr int64_t kLeastGroups = 4, kMostAhead = 10;
inline constexpr int64_t kFewestPixels = 48, kMostPixels = 256;

struct Window {
  WindowAxis h, w;  // h is all ones where the convolution has one spatial axis
  bool tails;       // PixelSlots::kTail of the device's side

  explicit Window(const Contraction& view) : w(view.axes.back()), tails(view.op == ContractionOp::fprop) {
    if (view.axes.size() == 2) h = view.axes.front();
  }
  bool mirrored() const { return h.step < 0 || w.step < 0; }
  int64_t slot() const { return 8 / w.stride; }  // channels
  int64_t unit_pixels() const { return 8 / slot(); }
  int64_t steps() const { return ceil_div(ceil_div(w.window, unit_pixels()), 2); }  // of k, of a row
  int64_t dilation() const { return h.window == 1 ? 1 : std::abs(h.step); }
  int64_t reach() const { return (h.window - 1) * dilation(); }
  int64_t span() const { return reach() / h.stride; }
  int64_t filter_bytes() const { return h.window * steps() * kStep * kBlock * kElementBytes; }  // of a block

  int64_t pixels(int64_t tile) const { return (tile - 1) * w.stride + w.window; }
  int64_t row_bytes(int64_t tile) const {
    const bool tail = tails && w.window % unit_pixels() != 0;
    return round_up(pixels(tile) * slot() * kElementBytes, kUnitBytes) + (tail ? tile * kUnitBytes : 0);
  }
  int64_t group_bytes(int64_t tile) const { return h.stride * row_bytes(tile); }
  int64_t fewest_groups() const { return std::max(kLeastGroups, span() + 2); }
  // Rows of slots in the ring, and what else struct InputRows holds.
  int64_t ring_bytes(int64_t tile, int64_t groups) const {
    const int64_t rows = round_up(groups * group_bytes(tile), 128);
    return round_up(rows + tile * kUnitBytes + 16 * groups, 128);
  }
};

inline int64_t lower(const WindowAxis& axis) {
  return axis.start + std::min<int64_t>((axis.window - 1) * axis.step, 0);
}

}  // namespace fusor::narrow
