// Owns the rules of the depthwise engine.
#include "backend/engines/depthwise/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/rules.h"

namespace fusor {

namespace {

bool has_adjacent_channels(const Expr& pixels) {
  const Access* const access = primary_access(pixels);
  return access == nullptr || pixels.domain[1] == 1 || access->strides[1] == 1;
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
                 "channels next to each other in memory",
                 fmt::format("stride {}", access.strides[1]),
                 "store the tensor channels last (NHWC)",
                 -1};
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

std::optional<Refusal> refuse_depthwise(const Fusion& fusion) {
  if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
  const auto view = contraction_of(fusion);
  if (!view) return refuse_other_domain(fusion);
  if (view->input_channels != 1 || view->output_channels != 1) return not_depthwise(fusion, *view);
  if (auto refusal = refuse_other_sums(fusion, *view)) return refusal;
  if (auto refusal = refuse_channels(fusion, operand_site(fusion, 0, 0))) return refusal;
  if (auto refusal = refuse_channels(
          fusion, view->op == ContractionOp::wgrad ? operand_site(fusion, 0, 1) : result_site(fusion)))
    return refusal;
  return refuse_window(fusion, *view);
}

}  // namespace fusor
