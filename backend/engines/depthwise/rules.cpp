// Owns the rules of the depthwise engine.
#include "backend/engines/depthwise/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/depthwise/sliding_axis.h"
#include "backend/engines/rules.h"

namespace fusor {

namespace {

bool has_adjacent_channels(const Expr& pixels) {
  const Access* const access = primary_access(pixels);
  return access == nullptr || pixels.domain[1] == 1 || access->strides[1] == 1;
}

// The site of dx, dy, x or y that the kernels walk beside the first operand.
const Expr& second_over_images(const Fusion& fusion, const Contraction& view) {
  return view.op == ContractionOp::wgrad ? operand_site(fusion, 0, 1) : result_site(fusion);
}

// Whether images fit planes and adjacent channels alike: values that are computed, and images of one pixel.
bool fits_every_order(const Expr& pixels) {
  int64_t count = 1;
  for (int i = 2; i < pixels.domain.rank(); ++i) count *= pixels.domain[i];
  return primary_access(pixels) == nullptr || (count == 1 && has_adjacent_channels(pixels));
}

// The axis along which the pixels of one tensor are adjacent; -1 where its channels are; nothing where
// neither are.
std::optional<int> plane_axis(const Expr& pixels) {
  if (has_adjacent_channels(pixels)) return -1;
  const Access& access = *primary_access(pixels);
  for (int i = pixels.domain.rank() - 1; i >= 2; --i)
    if (pixels.domain[i] > 1 && access.strides[i] == 1) return i - 2;
  return std::nullopt;
}

Refusal not_depthwise(const Fusion& fusion, const Contraction& view) {
  return refusal_at_anchor(fusion, "one-channel-groups", "one input and one output channel in every group",
                           fmt::format("{} and {}", view.input_channels, view.output_channels));
}

std::optional<Refusal> refuse_channels(const Fusion& fusion, const Expr& site) {
  if (has_adjacent_channels(site)) return std::nullopt;
  const Access& access = *primary_access(site);
  return Refusal{"adjacent-channels",
                 fusion.op_name(fusion.anchors[0].op),
                 fusion.name_of(access.operand),
                 "channels, or the pixels of all images along one axis, next to each other in memory",
                 fmt::format("stride {}", access.strides[1]),
                 "store all images channels last (NHWC), or all as planes (NCHW)",
                 -1};
}

// Weight gradients of planes are made by marching only.
std::optional<Refusal> refuse_planes(const Fusion& fusion, const Contraction& view) {
  const std::optional<int> axis = plane_axis(fusion, view);
  if (axis == -1) return std::nullopt;
  if (!axis) {
    if (auto refusal = refuse_channels(fusion, operand_site(fusion, 0, 0))) return refusal;
    return refuse_channels(fusion, second_over_images(fusion, view));
  }
  if (view.op != ContractionOp::wgrad) return std::nullopt;
  const SlidingAxes axes = sliding_axes(view, axis_order(view, *axis), true);
  if (meets_lines_once(axes)) return std::nullopt;
  return refusal_at_anchor(
      fusion, "marched-window",
      fmt::format("in planes (NCHW), a window of one plane, up to {} wide, that passes over no row of x",
                  kMaxSlidingTaps),
      fmt::format("a window of {} x {} x {} with a stride of {} from row to row", axes[0].window,
                  axes[1].window, axes[2].window, axes[1].stride),
      "store all images channels last (NHWC)");
}

std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view) {
  int64_t taps = 1;
  for (const WindowAxis& axis : view.axes) taps *= axis.window;
  if (view.op == ContractionOp::wgrad || bytes_of_filters(taps, 8) <= kMaxFilterBytes) return std::nullopt;
  return refusal_at_anchor(fusion, "window-in-shared-memory",
                           fmt::format("a window of at most {} taps", kMaxFilterBytes / 32 - 1),
                           std::to_string(taps));
}

}  // namespace

int64_t bytes_of_filters(int64_t taps, int64_t vector) {
  const int64_t pack = std::min<int64_t>(vector, 4);
  return (taps * (vector / pack) | 1) * pack * 4;
}

std::optional<int> plane_axis(const Fusion& fusion, const Contraction& view) {
  const Expr &first = operand_site(fusion, 0, 0), &second = second_over_images(fusion, view);
  if (fits_every_order(first)) return plane_axis(second);
  if (fits_every_order(second)) return plane_axis(first);
  const std::optional<int> axis = plane_axis(first);
  return axis == plane_axis(second) ? axis : std::nullopt;
}

bool has_channels_apart(const Fusion& fusion, const Contraction& view) {
  return !has_adjacent_channels(operand_site(fusion, 0, 0)) ||
         !has_adjacent_channels(second_over_images(fusion, view));
}

std::optional<Refusal> refuse_depthwise(const Fusion& fusion) {
  if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
  const auto view = contraction_of(fusion);
  if (!view) return refuse_other_domain(fusion);
  if (view->input_channels != 1 || view->output_channels != 1) return not_depthwise(fusion, *view);
  if (auto refusal = refuse_other_sums(fusion, *view)) return refusal;
  if (auto refusal = refuse_planes(fusion, *view)) return refusal;
  return refuse_window(fusion, *view);
}

}  // namespace fusor
