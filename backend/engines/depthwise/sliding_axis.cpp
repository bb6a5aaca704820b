// Owns the arithmetic of sliding windows and the order of their axes.
#include "backend/engines/depthwise/sliding_axis.h"

#include "backend/engines/contraction/epilogue.h"
#include "codegen/text/parameters.h"

namespace fusor {

namespace {

void insert_unit_axis(Expr& site, int at) {
  const int rank = site.domain.rank();
  site.domain.insert(at, 1);
  const auto widen = [&](Access& access) {
    if (access.strides.rank() == rank) access.strides.insert(at, 0);
  };
  for (Node& node : site.nodes) {
    widen(node.access);
    if (node.kind == Node::Kind::index && node.axis >= at) ++node.axis;
  }
  for (Store& result : site.stores) widen(result.access);
}

}  // namespace

void SlidingAxis::append_to(Parameters& p, int64_t length) const {
  p.divisor("runs", runs(length));
  p.divisor("spacing", spacing());
  p.divisor("stride", stride);
  p.divisor("window", window);
  p.wide("results", results);
  p.wide("positions", positions);
  p.wide("taps", taps());
  p.wide("dilation", dilation);
  p.wide("start", start);
  p.wide("lift", lift());
  p.wide("column_step", column_step());
  p.wide("tap_step", tap_step());
  p.wide("advance", advance());
  p.wide("stored_first", mirrored ? window - 1 : 0);
  p.wide("stored_step", mirrored ? -1 : 1);
}

SlidingAxis sliding_axis(const WindowAxis& axis, ContractionOp op, bool strided_gradient) {
  SlidingAxis sliding{axis.output,         axis.input, axis.window,      axis.stride,
                      std::abs(axis.step), axis.start, strided_gradient, axis.step < 0};
  const int64_t reach = (axis.window - 1) * sliding.dilation;
  if (sliding.mirrored) sliding.start -= reach;
  if (op != ContractionOp::dgrad) return sliding;
  // input = output * stride + tap * dilation + start, solved for the output, taps counted backwards.
  std::swap(sliding.results, sliding.positions);
  sliding.start = -sliding.start - reach;
  sliding.mirrored = !sliding.mirrored;
  return sliding;
}

Dims axis_order(const Contraction& view, int last) {
  Dims order;
  for (int i = 0; i < static_cast<int>(view.axes.size()); ++i) {
    const WindowAxis& axis = view.axes[static_cast<size_t>(i)];
    const bool is_one_pixel = axis.input == 1 && axis.output == 1 && axis.window == 1 && axis.start == 0;
    if (!is_one_pixel) order.push_back(i);
  }
  const auto taps = [&](int64_t i) {
    const WindowAxis& axis = view.axes[static_cast<size_t>(i)];
    return axis.input > 1 && axis.output > 1 ? axis.window : 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return taps(a) < taps(b); });
  std::stable_partition(order.begin(), order.end(), [&](int64_t i) { return i != last; });
  return order;
}

SlidingAxes sliding_axes(const Contraction& view, const Dims& order, bool planes) {
  SlidingAxes axes;
  const bool strided_gradient = view.op == ContractionOp::dgrad && !view.has_unit_stride();
  auto slot = axes.end() - order.rank();
  for (const int64_t i : order)
    *slot++ = sliding_axis(view.axes[static_cast<size_t>(i)], view.op, strided_gradient);
  for (SlidingAxis& axis : axes) axis.strided_gradient = strided_gradient;
  SlidingAxis& last = axes.back();
  last.of_neighbours = planes && strided_gradient && last.dilation == 1 && last.window <= kMaxSlidingTaps &&
                       last.stride <= kMaxSlidingTaps;
  return axes;
}

Expr over_kernel_axes(const Expr& site, const Dims& order) {
  Dims selected{0, 1};
  for (const int64_t axis : order) selected.push_back(2 + axis);
  Expr out = select_axes(site, selected);
  while (out.domain.rank() < 2 + kSlidingAxes) insert_unit_axis(out, 2);
  return out;
}

}  // namespace fusor
