// Owns which contractions the wgmma engine refuses, and why.
#include "backend/engines/sm90/wgmma/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/result_reduction.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/load/threads.h"
#include "backend/engines/sm90/wgmma/tiling.h"

namespace fusor::wgmma {

namespace {

constexpr int64_t kLargestTile = 256;

// However they are cut.
int64_t most_tiles(const Contraction& view) {
  constexpr int64_t kLeastRows = 64, kLeastColumns = 16;
  const int64_t upright = ceil_div(view.m, kLeastRows) * ceil_div(view.n, kLeastColumns);
  const int64_t swapped = ceil_div(view.n, kLeastRows) * ceil_div(view.m, kLeastColumns);
  return view.entries * std::max<int64_t>(residue_class_count(view), 1) * std::max(upright, swapped);
}

// One wgmma reads the columns of both siblings.
std::optional<Refusal> refuse_sibling(const Fusion& fusion, const Contraction& view) {
  if (view.is_convolution()) return refuse_pair(fusion);
  if (auto refusal = refuse_loads(fusion, view, true, 1)) return refusal;
  const CopiedOperand first = copied_operand(fusion, view, true, kBoxLine);
  const CopiedOperand second = copied_operand(fusion, view, true, kBoxLine, 1);
  const auto words = [](const CopiedOperand& b) {
    return fmt::format("{}, adjacent {}, {}", to_string(b.map.type),
                       b.across_adjacent ? "along n" : "along k",
                       b.batched ? "entries " + to_string(b.batch) : "one for all entries");
  };
  if (words(first) == words(second)) return std::nullopt;
  const int op = fusion.anchors[1].op;
  return Refusal{"like-siblings",
                 fusion.op_name(op),
                 fusion.name_of(second.operand),
                 fmt::format("operands that lie alike: {}", words(first)),
                 words(second),
                 "",
                 op};
}

std::optional<Refusal> refuse_types(const Fusion& fusion) {
  const DataType first = operand_type(fusion), second = operand_type(fusion, true);
  const bool bytes = byte_size(first) == 1 && byte_size(second) == 1;
  if (first != second && !bytes)
    return refusal_at_anchor(fusion, "operands-of-one-type", "two operands of one type, or of 8 bits",
                             fmt::format("{} and {}", to_string(first), to_string(second)),
                             "convert one of them");
  return std::nullopt;
}

// Coordinates of copies, rows, columns, steps and numbers of tiles are 32-bit integers; addresses are as
// wide as the buffers need them.
std::optional<Refusal> refuse_extents(const Fusion& fusion, const Contraction& view) {
  return refuse_wide_coordinates(fusion, "extents and tiles",
                                 std::max(view.largest_index(kLargestTile), most_tiles(view)));
}

std::optional<Refusal> refuse_convolution(const Fusion& fusion, const Contraction& view) {
  if (view.is_convolution() && view.axes.size() > 3)
    return refusal_at_anchor(fusion, "spatial-axes", "up to 3 spatial axes",
                             fmt::format("{}", view.axes.size()));
  if (auto refusal = refuse_residue_classes(fusion, view)) return refusal;
  const Expr& first = operand_site(fusion, 0, 0);
  const int64_t block = box_line(yielded_node(first).type);
  const bool ragged = view.channels() % block != 0;
  const bool wgrad_taps = view.op == ContractionOp::wgrad && view.n != view.input_channels;
  if (view.is_convolution() && ragged && (view.entries > 1 || wgrad_taps) &&
      !fills_up_channels(fusion, view) && !plane_walk(fusion, view))
    return refusal_at_anchor(fusion, "channel-blocks",
                             fmt::format("channels of a group in multiples of {}", block),
                             fmt::format("{}", view.channels()));
  // Boxes of both operands begin with the channels of a group.
  const int64_t bytes = byte_size(yielded_node(first).type), outputs_bytes = view.m * bytes,
                inputs_bytes = view.input_channels * bytes;
  if (view.op == ContractionOp::wgrad && view.entries > 1 && inputs_bytes % kCopyUnit != 0 &&
      !plane_walk(fusion, view))
    return refusal_at_anchor(fusion, "16-byte-inputs", "input channels of a group in multiples of 16 bytes",
                             fmt::format("{} bytes", inputs_bytes));
  if (view.op == ContractionOp::wgrad && view.entries > 1 && outputs_bytes % kCopyUnit != 0 &&
      !plane_walk(fusion, view))
    return refusal_at_anchor(fusion, "16-byte-groups", "output channels of a group in multiples of 16 bytes",
                             fmt::format("{} bytes", outputs_bytes));
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> refuse(const Fusion& fusion) {
  const auto view = contraction_of(fusion);
  if (!view || residue_class_count(*view) > 0)
    if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
  if (!view) return refuse_other_domain(fusion);
  if (view->compute != DataType::f32 && view->compute != DataType::i32)
    return refusal_at_anchor(fusion, "fp32-sums", "compute type fp32 or int32",
                             std::string(to_string(view->compute)));
  if (auto refusal = refuse_reductions(fusion, *view)) return refusal;
  if (auto refusal = refuse_convolution(fusion, *view)) return refusal;
  if (auto refusal = refuse_extents(fusion, MatmulForm::view_of(fusion))) return refusal;
  for (const bool second : {false, true})
    if (auto refusal = refuse_loads(fusion, *view, second)) return refusal;
  if (auto refusal = refuse_types(fusion)) return refusal;
  return form_of(fusion) == Form::siblings ? refuse_sibling(fusion, *view) : std::nullopt;
}

}  // namespace fusor::wgmma
