// Owns which taps meet which remainder, and as which taps of a window.
#include "backend/engines/repack/stride_phases.h"

#include <algorithm>

#include "core/ceil_div.h"

namespace fusor {

namespace {

int64_t floor_div(int64_t value, int64_t by) { return (value - ((value % by) + by) % by) / by; }

// input = stride * (output + offset) + remainder
int64_t offset_of(const WindowAxis& axis, int64_t tap) {
  return floor_div(tap * axis.step + axis.start, axis.stride);
}
int64_t remainder_of(const WindowAxis& axis, int64_t tap) {
  return tap * axis.step + axis.start - offset_of(axis, tap) * axis.stride;
}

std::optional<PhaseAxis> phase_axis(const WindowAxis& axis) {
  if (axis.stride > kMaxStridePhases) return std::nullopt;
  PhaseAxis phased;
  phased.tap_step = axis.step;
  phased.phases.resize(static_cast<size_t>(axis.stride));
  const auto [lowest, highest] = std::minmax({offset_of(axis, 0), offset_of(axis, axis.window - 1)});
  for (int64_t tap = 0; tap < std::min(axis.stride, axis.window); ++tap)
    phased.phases[static_cast<size_t>(remainder_of(axis, tap))] = {
        tap, ceil_div(axis.window - tap, axis.stride), offset_of(axis, tap) - lowest};
  // Too few taps, or a dilation that shares a factor with the stride.
  if (std::ranges::any_of(phased.phases, [](const PhaseTaps& taps) { return taps.count == 0; }))
    return std::nullopt;
  phased.window = highest - lowest + 1;
  phased.pre_padding = -lowest;
  phased.post_padding =
      axis.output - 1 + phased.window - ceil_div(axis.input, axis.stride) - phased.pre_padding;
  return phased;
}

ColumnsOfTap columns_of(const WindowAxis& axis, int64_t tap) {
  const int64_t offset = tap * axis.step + axis.start;
  ColumnsOfTap columns;
  columns.first_output = std::max<int64_t>(-floor_div(offset, axis.stride), 0);
  const int64_t behind = std::min(floor_div(axis.input - 1 - offset, axis.stride) + 1, axis.output);
  columns.outputs = std::max<int64_t>(behind - columns.first_output, 0);
  columns.first_input = columns.first_output * axis.stride + offset;
  return columns;
}

// The phase of every axis, the last one's fastest.
std::vector<PhaseTaps> taps_of(const StridePhases& phases, int64_t phase) {
  std::vector<PhaseTaps> taps(phases.axes.size());
  for (size_t i = taps.size(); i-- > 0;) {
    const auto strides = std::ssize(phases.axes[i].phases);
    taps[i] = phases.axes[i].phases[static_cast<size_t>(phase % strides)];
    phase /= strides;
  }
  return taps;
}

}  // namespace

Conv StridePhases::convolution(const Conv& of_strides) const {
  Conv conv = of_strides;
  conv.mode = ConvMode::cross_correlation;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = static_cast<int>(i);
    conv.pre_padding[axis] = axes[i].pre_padding;
    conv.post_padding[axis] = axes[i].post_padding;
    conv.stride[axis] = conv.dilation[axis] = 1;
  }
  return conv;
}

std::optional<StridePhases> stride_phases(const Contraction& view) {
  if (view.op != ContractionOp::wgrad || view.siblings != 1) return std::nullopt;
  const WindowAxis& last = view.axes.back();
  if ((view.has_unit_stride() && last.window == 1) || last.window > kMaxCopiedTaps) return std::nullopt;
  StridePhases phases;
  for (size_t i = 0; i + 1 < view.axes.size(); ++i) {
    const WindowAxis& axis = view.axes[i];
    const auto next = phase_axis(axis);
    if (!next) return std::nullopt;
    phases.axes.push_back(*next);
    JoinedAxis blocks;
    blocks.results = axis.input;
    blocks.block = axis.stride;
    blocks.positions = ceil_div(axis.input, axis.stride);
    phases.input.axes.push_back(blocks);
    phases.count *= axis.stride;
    if (phases.count > kMaxStridePhases) return std::nullopt;
  }
  phases.axes.push_back({.phases = {{.first = 0, .count = last.window}}});
  JoinedAxis columns;
  columns.results = columns.positions = last.output;
  phases.input.axes.push_back(columns);
  phases.stride = last.stride;
  for (int64_t tap = 0; tap < last.window; ++tap) phases.taps.push_back(columns_of(last, tap));
  int64_t step = last.window;
  for (size_t i = phases.input.axes.size() - 1; i-- > 0; step *= phases.input.axes[i].block)
    phases.input.axes[i].channel_step = step;
  phases.input.channel_step = phases.channels();
  phases.input.channels = view.entries * view.input_channels * phases.channels();
  return phases;
}

Expr of_tap(const Expr& image, const StridePhases& phases, const ColumnsOfTap& columns) {
  Expr part = image;
  const int last = image.domain.rank() - 1;
  part.domain[last] = columns.outputs;
  for (Node& node : part.nodes) {
    if (node.access.strides.rank() != image.domain.rank()) continue;
    node.access.offset += columns.first_input * node.access.strides[last];
    node.access.strides[last] *= phases.stride;
  }
  return part;
}

Expr of_phase(const Expr& filter, const StridePhases& phases, int64_t phase) {
  Expr part = filter;
  const std::vector<PhaseTaps> taps = taps_of(phases, phase);
  const auto narrow = [&](Access& access) {
    if (access.strides.rank() != filter.domain.rank()) return;
    for (size_t i = 0; i < taps.size(); ++i) {
      int64_t& stride = access.strides[2 + static_cast<int>(i)];
      access.offset += taps[i].first * stride;
      stride *= std::ssize(phases.axes[i].phases);
    }
  };
  for (size_t i = 0; i < taps.size(); ++i) part.domain[2 + static_cast<int>(i)] = taps[i].count;
  for (Node& node : part.nodes)
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::index) narrow(node.access);
  for (Store& result : part.stores) narrow(result.access);
  return part;
}

Access of_phase(const Access& windows, const StridePhases& phases, int64_t phase) {
  Access part = windows;
  part.offset += phase * std::ssize(phases.taps) * windows.strides[1];
  part.strides[1] *= phases.channels();
  const std::vector<PhaseTaps> taps = taps_of(phases, phase);
  for (size_t i = 0; i < taps.size(); ++i) {
    int64_t& stride = part.strides[2 + static_cast<int>(i)];
    part.offset += taps[i].first_of_window * stride;
    stride *= phases.axes[i].tap_step;
  }
  part.strides[part.strides.rank() - 1] = windows.strides[1];
  return part;
}

}  // namespace fusor
