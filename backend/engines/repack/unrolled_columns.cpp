// Owns which column of a run meets which tap, and how far runs lie apart.
#include "backend/engines/repack/unrolled_columns.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "backend/engines/sm90/copy/units.h"
#include "core/ceil_div.h"

namespace fusor {

int64_t UnrolledColumns::image_columns(int64_t input) const {
  return std::max<int64_t>(std::min(input, first_column + columns) - image_begin(), 0);
}

Conv UnrolledColumns::convolution(const Conv& of_columns) const {
  Conv conv = of_columns;
  const int last = conv.stride.rank() - 1;
  conv.pre_padding[last] = conv.post_padding[last] = 0;
  conv.stride[last] = conv.dilation[last] = 1;
  return conv;
}

std::optional<UnrolledColumns> unrolled_columns(const Contraction& view, DataType type) {
  const bool is_wgrad = view.op == ContractionOp::wgrad;
  if ((view.op != ContractionOp::fprop && !is_wgrad) || view.entries != 1 || view.siblings != 1)
    return std::nullopt;
  if (is_wgrad && !may_lie_across(type)) return std::nullopt;
  const WindowAxis& axis = view.axes.back();
  const int64_t bytes = byte_size(type);
  UnrolledColumns unrolled;
  unrolled.stride = axis.stride;
  unrolled.tap_step = axis.step;
  unrolled.window = (axis.window - 1) * std::abs(axis.step) + 1;
  unrolled.first_tap = axis.step < 0 ? unrolled.window - 1 : 0;
  unrolled.first_column = axis.start - unrolled.first_tap;
  // Rows begin a multiple of the stride apart, too, as TMA's maps have it.
  unrolled.columns = round_up((axis.output - 1) * axis.stride + unrolled.window, axis.stride);
  unrolled.channels_of_column =
      round_up(view.input_channels, kCopyUnit / std::gcd(kCopyUnit, axis.stride * bytes));
  unrolled.channels = unrolled.window * unrolled.channels_of_column;
  const int64_t line = box_line(type);
  const int64_t steps = axis.window * ceil_div(view.input_channels, line);
  if (2 * view.input_channels > line || ceil_div(unrolled.channels, line) >= steps) return std::nullopt;
  if (unrolled.image_columns(axis.input) == 0) return std::nullopt;
  return unrolled;
}

}  // namespace fusor
