// Owns SlidingAxis: the host's side of the sliding-window view of a depthwise convolution
// (codegen/device/depthwise/window.cuh), and the axes over which its kernels speak.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "backend/engines/contraction/product.h"
#include "core/ceil_div.h"
#include "core/expr.h"
#include "core/lowered.h"

namespace fusor {

class Parameters;

/// Spatial axes of the kernels; a convolution's fewer ones are filled up.
inline constexpr int kSlidingAxes = 3;
/// Longer rows of the window are worked off in pieces.
inline constexpr int64_t kMaxSlidingTaps = 7;

/// The device's SlidingAxis explains the fields.
struct SlidingAxis {
  int64_t results = 1, positions = 1, window = 1;
  int64_t stride = 1, dilation = 1, start = 0;
  bool strided_gradient = false, mirrored = false;
  bool of_neighbours = false;  // runs of a strided gradient are neighbouring results

  int64_t divisor() const { return std::gcd(stride, dilation); }
  int64_t spacing() const {
    return of_neighbours ? 1 : (strided_gradient ? stride * dilation : dilation) / divisor();
  }
  int64_t column_step() const { return strided_gradient ? dilation / divisor() : dilation; }
  int64_t tap_step() const { return picks_taps() ? stride / divisor() : 1; }
  int64_t advance() const { return strided_gradient ? 1 : stride / divisor(); }
  bool picks_taps() const { return strided_gradient && !of_neighbours; }
  /// Results of so many phases take turns in a run; column 0 of its first result is `phase` in front of a
  /// tap.
  int64_t phases() const { return of_neighbours ? stride : 1; }
  int64_t phase() const { return (start % phases() + phases()) % phases(); }
  int64_t taps() const { return ceil_div(window, tap_step()); }
  int64_t lift() const { return strided_gradient ? ceil_div(std::max<int64_t>(0, -start), stride) : 0; }
  int64_t runs(int64_t length) const { return ceil_div(results, length * spacing()) * spacing(); }
  int64_t largest_index(int64_t length) const {
    const int64_t longest = results + (length + 1) * spacing() + (window + kMaxSlidingTaps) * dilation;
    return longest * (strided_gradient ? 1 : stride) + std::abs(start) + (lift() + 1) * stride + positions;
  }

  void append_to(Parameters& p, int64_t length) const;
};

/// One axis of a pass of the convolution; `strided_gradient`: of a dgrad of strides.
SlidingAxis sliding_axis(const WindowAxis& axis, ContractionOp op, bool strided_gradient);

using SlidingAxes = std::array<SlidingAxis, kSlidingAxes>;

/// The order in which the kernels walk the spatial axes: runs lie along the last one, the widest of the
/// window, or `last` where that is an axis. Axes of one pixel and one tap are left out, unless that tap meets
/// padding.
Dims axis_order(const Contraction& view, int last = -1);
/// The axes in that order, filled up in front. In planes, runs of a strided gradient are neighbours where the
/// last axis allows for that.
SlidingAxes sliding_axes(const Contraction& view, const Dims& order, bool planes);

/// Pieces in which the rows of the window are worked off.
inline int64_t pieces_of_rows(const SlidingAxes& axes) {
  return ceil_div(axes.back().taps(), kMaxSlidingTaps);
}
/// Whether threads can march down the rows and meet each line of the operand once: windows of one plane,
/// whose rows are not in pieces and pass over no line.
inline bool meets_lines_once(const SlidingAxes& axes) {
  return axes[0].window == 1 && axes[1].taps() >= axes[1].advance() && pieces_of_rows(axes) == 1;
}

/// A site over the axes that the kernels speak of: two of images and channels, three spatial ones.
Expr over_kernel_axes(const Expr& site, const Dims& order);

}  // namespace fusor
