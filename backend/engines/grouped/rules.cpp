// Owns the rules of the grouped engine.
#include "backend/engines/grouped/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/grouped/lowering.h"
#include "backend/engines/reach.h"
#include "backend/engines/rules.h"

namespace fusor {

using namespace grouped;

namespace {

constexpr int64_t kMostChannels = 48;
// Chunks of 8 channels that a row of the window has at most; taps along each axis.
constexpr int64_t kMostLineChunks = 24, kMostTaps = 7, kMostStride = 4;

std::optional<Refusal> refuse_groups(const Fusion& fusion, const Contraction& view) {
  const auto fits = [](int64_t channels) {
    return channels % kChunk == 0 && channels >= kChunk && channels <= kMostChannels;
  };
  if (view.entries > 1 && fits(view.input_channels) && fits(view.output_channels)) return std::nullopt;
  return refusal_at_anchor(
      fusion, "few-channel-groups",
      fmt::format("several groups of {} to {} input and output channels, multiples of {}", kChunk,
                  kMostChannels, kChunk),
      fmt::format("{} groups of {} and {}", view.entries, view.input_channels, view.output_channels));
}

// Nothing may be computed in front of the products: what is loaded goes to shared memory as it is.
std::optional<Refusal> refuse_operands(const Fusion& fusion) {
  const Expr &a = operand_site(fusion, 0, 0), &b = operand_site(fusion, 0, 1);
  const Node& value = yielded_node(a);
  const bool is_half = value.type == DataType::f16 || value.type == DataType::bf16;
  if (is_half && yielded_node(b).type == value.type && is_chunk_load(fusion, a)) return std::nullopt;
  Refusal refusal = refusal_at_anchor(
      fusion, "plain-half-operands",
      "images of fp16 or bf16 as they are in memory, their channels adjacent in vectors of 16 bytes, and "
      "filters of the same type",
      fmt::format("{} and {}", to_string(value.type), to_string(yielded_node(b).type)),
      "store images channels last (NHWC)");
  if (value.kind == Node::Kind::load) refusal.tensor = fusion.name_of(value.access.operand);
  if (value.kind == Node::Kind::pointwise) refusal.op = value.op;
  return refusal;
}

std::optional<Refusal> refuse_results(const Fusion& fusion) {
  const Access* const access = primary_access(result_site(fusion));
  if (access == nullptr || access->strides[1] == 1) return std::nullopt;
  return Refusal{"adjacent-channels",
                 fusion.op_name(fusion.anchors[0].op),
                 fusion.name_of(access->operand),
                 "channels next to each other in memory",
                 fmt::format("stride {}", access->strides[1]),
                 "store images channels last (NHWC)",
                 -1};
}

bool is_small(const SlidingAxis& axis) {
  const bool has_phases = axis.strided_gradient;
  return axis.window <= kMostTaps && axis.stride <= kMostStride && (!has_phases || axis.dilation == 1);
}

std::optional<Refusal> refuse_window(const Fusion& fusion, const Problem& problem) {
  const SlidingAxis &rows = problem.rows(), &columns = problem.columns();
  const SlidingAxis& planes = problem.axes[0];
  const bool is_flat = planes.window == 1 && planes.positions == 1 && planes.results == 1;
  if (is_flat && is_small(rows) && is_small(columns) && problem.line_chunks() <= kMostLineChunks &&
      problem.has_setting())
    return std::nullopt;
  return refusal_at_anchor(
      fusion, "small-window",
      fmt::format("a window of one plane, up to {} x {}, of up to {} channels a row, strides of up to {}, no "
                  "dilation in the gradient of a stride",
                  kMostTaps, kMostTaps, kMostLineChunks * kChunk, kMostStride),
      fmt::format("a window of {} x {} x {}, {} channels a row, strides of {} and {}", planes.window,
                  rows.window, columns.window, problem.line_chunks() * kChunk, rows.stride, columns.stride));
}

}  // namespace

std::optional<Refusal> refuse_grouped(const Fusion& fusion, const DeviceInfo& device) {
  if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
  const auto view = contraction_of(fusion);
  if (!view) return refuse_other_domain(fusion);
  if (view->op == ContractionOp::wgrad)
    return refusal_at_anchor(fusion, "fprop-or-dgrad", "a convolution or its data gradient",
                             "a filter gradient");
  if (auto refusal = refuse_groups(fusion, *view)) return refusal;
  if (auto refusal = refuse_other_sums(fusion, *view)) return refusal;
  if (auto refusal = refuse_operands(fusion)) return refusal;
  if (auto refusal = refuse_results(fusion)) return refusal;
  const Problem problem(fusion, device);
  if (auto refusal = refuse_window(fusion, problem)) return refusal;
  return refuse_wide_coordinates(fusion, "elements",
                                 std::max({reach(problem.a), reach(problem.b), reach(problem.y)}));
}

}  // namespace fusor
