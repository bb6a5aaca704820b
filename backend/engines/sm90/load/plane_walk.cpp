// Owns the rules for planes, and the choice between walking them row by row and as a whole.
#include "backend/engines/sm90/load/plane_walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/engines/sm90/copy/rules.h"
#include "backend/engines/sm90/copy/units.h"

namespace fusor {

using namespace copy_rules;

namespace {

// An operand of a wgrad: [image][channel][position], positions side by side.
std::optional<Refusal> refuse_runs(const Fusion& fusion, const Contraction& view, const Expr& site) {
  if (auto refusal = refuse_operand(fusion, view, site)) return refusal;
  const Access& access = site.nodes[0].access;
  const Strides& strides = access.strides;
  const int64_t bytes = byte_size(type_of(fusion, access));
  const WalkedAxes positions = taps_of(site);
  if (one_stride(positions.extents, positions.strides) != 1)
    return refusal("whole-planes", fusion.name_of(access.operand),
                   "the positions of a channel side by side (NCHW), without gaps between rows",
                   to_string(strides));
  for (const int axis : {0, 1})
    if (site.domain[axis] != 1 && !is_line_stride(strides[axis], bytes))
      return refusal("16-byte-lines", fusion.name_of(access.operand), "planes a multiple of 16 bytes apart",
                     fmt::format("{} bytes along axis {}", strides[axis] * bytes, axis));
  return std::nullopt;
}
bool has_planes(const Fusion& fusion, const Contraction& view, const Expr& site) {
  return !refuse_runs(fusion, view, site);
}

// The farthest that inputs lie from the output that they meet.
struct Overhang {
  int64_t before = 0, behind = 0;  // of the input's first, of its last position
};
Overhang overhang_of(const WindowAxis& axis) {
  const int64_t reach = (axis.window - 1) * axis.step;
  const int64_t first = axis.start + std::min<int64_t>(reach, 0),
                last = axis.start + std::max<int64_t>(reach, 0);
  return {std::max<int64_t>(-first, 0), std::max<int64_t>(axis.output - 1 + last - (axis.input - 1), 0)};
}

// How far neighbours along a spatial axis lie apart, in positions.
int64_t pitch_of(const Expr& site, int axis) {
  return 2 + axis == site.domain.rank() - 1 ? 1 : site.nodes[0].access.strides[2 + axis];
}

bool can_walk_flat(const Fusion& fusion, const Contraction& view) {
  const Expr &y = operand_site(fusion, 0, 0), &x = operand_site(fusion, 0, 1);
  const int axes = static_cast<int>(view.axes.size());
  if (axes == 1) return true;
  for (const Expr* site : {&y, &x})
    if (!fusion.operands[static_cast<size_t>(site->nodes[0].access.operand)].zero_gaps) return false;
  const Dims least = flat_rows(view, type_of(fusion, x.nodes[0].access));
  for (int i = 1; i < axes; ++i) {
    const int64_t whole = pitch_of(x, i - 1), part = pitch_of(x, i);
    if (part <= 0 || pitch_of(y, i - 1) != whole || whole % part != 0 || whole / part < least[i])
      return false;
  }
  return true;
}

// So many that the taps along the first axis fit a tile together, and not many channels are filled up.
int64_t channel_block(const Contraction& view) {
  constexpr int64_t kWidest = 256, kLeast = 16;
  int64_t block = kBoxLine;
  const auto is_wasteful = [&] {
    const int64_t tail = view.input_channels % block;
    return tail != 0 && tail <= block / 2;
  };
  while (block > kLeast && (view.axes[0].window * block > kWidest || is_wasteful())) block /= 2;
  return block;
}

}  // namespace

std::optional<Refusal> refuse_planes(const Fusion& fusion, const Contraction& view, const Expr& site) {
  const Access& access = site.nodes[0].access;
  const std::string& tensor = fusion.name_of(access.operand);
  const int64_t bytes = byte_size(type_of(fusion, access));
  const int last = site.domain.rank() - 1;
  if (view.axes.size() > 3 || !view.has_unit_stride())
    return refusal("unit-stride", tensor, "a wgrad of up to 3 spatial axes whose strides are 1",
                   "strides of the convolution", "leave it to the engine mma");
  if (view.reduces)
    return refusal("plain-wgrad", tensor, "a wgrad without reductions of its result", "a reduction",
                   "give it a fusion of its own");
  if (site.domain[last] != 1 && access.strides[last] != 1)
    return refusal(
        "adjacent-k", tensor,
        "positions side by side (NCHW): they are the k of a wgrad, and only 16 bits may lie across it",
        fmt::format("a stride of {} between them", access.strides[last]), "leave it to wgmma_repacked");
  for (int axis = 0; axis < last; ++axis)
    if (site.domain[axis] != 1 && !is_line_stride(access.strides[axis], bytes))
      return refusal("16-byte-lines", tensor, "rows and planes a multiple of 16 bytes apart",
                     fmt::format("{} bytes along axis {}", access.strides[axis] * bytes, axis),
                     "leave it to wgmma_repacked");
  return std::nullopt;
}

std::optional<Refusal> refuse_taps(const Fusion& fusion, const Contraction& view) {
  const Access& access = operand_site(fusion, 0, 1).nodes[0].access;
  const WindowAxis& axis = view.axes.back();
  const int64_t bytes = byte_size(type_of(fusion, access));
  for (int64_t tap = 0; tap < axis.window; ++tap) {
    const int64_t offset = axis.start + tap * axis.step;
    if (offset * bytes % kCopyUnit != 0)
      return refusal("aligned-taps", fusion.name_of(access.operand),
                     "taps that lie multiples of 16 bytes off along the last axis",
                     fmt::format("{} bytes", offset * bytes), "leave it to wgmma_repacked");
  }
  return std::nullopt;
}

int64_t plane_length(const Expr& site) {
  int64_t length = 1;
  for (int axis = 2; axis < site.domain.rank(); ++axis)
    length += (site.domain[axis] - 1) * pitch_of(site, axis - 2);
  return length;
}

bool sums_planes(const Fusion& fusion, const Contraction& view) {
  return view.op == ContractionOp::wgrad && view.is_pointwise() &&
         has_planes(fusion, view, operand_site(fusion, 0, 0)) &&
         has_planes(fusion, view, operand_site(fusion, 0, 1));
}

std::optional<Refusal> refuse_whole_planes(const Fusion& fusion, const Contraction& view, bool second) {
  return refuse_runs(fusion, view, operand_site(fusion, 0, second ? 1 : 0));
}

Dims flat_rows(const Contraction& view, DataType type) {
  Dims rows;
  for (const WindowAxis& axis : view.axes) {
    const auto [before, behind] = overhang_of(axis);
    rows.push_back(rows.empty() ? 1 : std::max(axis.output, axis.input + std::max(before, behind)));
  }
  // Where there is only the first axis, planes are those of neighbours.
  const int last = rows.rank() - 1;
  const int64_t unit = kCopyUnit / byte_size(type);
  if (last > 0) rows[last] = (rows[last] + unit - 1) / unit * unit;
  return rows;
}

std::optional<PlaneWalk> plane_walk(const Fusion& fusion, const Contraction& view) {
  if (view.op != ContractionOp::wgrad || view.siblings != 1 || sums_planes(fusion, view)) return std::nullopt;
  const Expr &y = operand_site(fusion, 0, 0), &x = operand_site(fusion, 0, 1);
  for (const Expr* site : {&y, &x})
    if (refuse_operand(fusion, view, *site) || refuse_planes(fusion, view, *site)) return std::nullopt;
  if (refuse_taps(fusion, view)) return std::nullopt;
  const DataType type = type_of(fusion, x.nodes[0].access);
  if (byte_size(type_of(fusion, y.nodes[0].access)) != byte_size(type)) return std::nullopt;
  if (may_lie_across(type) && !refuse_channel_strides(fusion, y, 1) && !refuse_channel_strides(fusion, x, 1))
    return std::nullopt;
  PlaneWalk walk;
  walk.images = y.domain[0];
  walk.channel_block = channel_block(view);
  const size_t axes = view.axes.size();
  for (size_t i = 0; i + 1 < axes; ++i) (i == 0 ? walk.rows : walk.inner_rows) *= view.axes[i].output;
  walk.length = view.axes.back().output;
  walk.pitch = Dims::filled(static_cast<int>(axes), 1);
  if (!can_walk_flat(fusion, view)) return walk;
  // Rows of one step share what they meet, planes do not: those pay where rows leave lines half empty.
  const int64_t line = box_line(type), flat = plane_length(y);
  const int64_t lines_of_rows = walk.rows * walk.inner_rows * ((walk.length + line - 1) / line);
  if (axes > 1 && (flat + line - 1) / line * 5 > lines_of_rows * 4) return walk;
  walk.flat = true;
  walk.rows = walk.inner_rows = 1;
  walk.length = flat;
  for (size_t i = 0; i < axes; ++i) walk.pitch[static_cast<int>(i)] = pitch_of(x, static_cast<int>(i));
  return walk;
}

}  // namespace fusor
