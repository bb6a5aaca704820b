// Owns the strides and limits of the copy engine.
#include "backend/engines/tensor_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/engines/residue_classes.h"

namespace fusor {

namespace {

constexpr int64_t kUnit = 16;  // bytes: of addresses and strides

const Expr& operand_site(const Fusion& fusion, bool second, int64_t sibling) {
  return fusion.before[static_cast<size_t>(second ? 1 + sibling : 0)];
}

bool is_pixels(const Contraction& view, bool second) {
  return view.is_convolution() && second == (view.op == ContractionOp::wgrad);
}

Dims slice(const Dims& dims, int first, int last) {
  Dims part;
  for (int i = first; i < last; ++i) part.push_back(dims[i]);
  return part;
}

// Axes that one stride must walk: a matmul's batch, a filter's taps, the pixels of wgrad's output gradient.
struct WalkedAxes {
  Dims extents;
  Strides strides;
};

WalkedAxes batch_of(const Expr& site) {
  const int leading = site.domain.rank() - 2;
  return {slice(site.domain, 0, leading), slice(site.nodes[0].access.strides, 0, leading)};
}
WalkedAxes taps_of(const Expr& site) {
  const int rank = site.domain.rank();
  return {slice(site.domain, 2, rank), slice(site.nodes[0].access.strides, 2, rank)};
}
WalkedAxes pixels_of(const Expr& site) {
  WalkedAxes axes = taps_of(site);
  axes.extents.insert(0, site.domain[0]);
  axes.strides.insert(0, site.nodes[0].access.strides[0]);
  return axes;
}

Refusal refusal(const char* rule, const std::string& tensor, std::string expected, std::string actual,
                const char* remedy = "") {
  return {rule, "", tensor, std::move(expected), std::move(actual), remedy, -1};
}

// 8-bit integers in int32; fp32 as TF32 and fp8 in short sums, where the graph allows that.
bool is_multiplied(const Fusion& fusion, const Contraction& view, DataType type) {
  if (view.compute == DataType::i32) return type == DataType::i8 || type == DataType::u8;
  if (type == DataType::f32) return fusion.precision >= Precision::allow_tf32;
  if (is_fp8(type)) return fusion.precision >= Precision::allow_short_sums;
  return type == DataType::f16 || type == DataType::bf16;
}

std::optional<Refusal> refuse_operand(const Fusion& fusion, const Contraction& view, const Expr& site) {
  const Node& value = site.nodes[static_cast<size_t>(site.value)];
  if (value.kind != Node::Kind::load || site.nodes.size() != 1) {
    const std::string node = value.op >= 0 ? fusion.op_name(value.op) : "";
    return Refusal{"plain-operands",
                   node,
                   "",
                   "operands that are read as they are stored",
                   "ops before the contraction",
                   "give those ops a fusion of their own",
                   value.op};
  }
  const std::string& tensor = fusion.name_of(value.access.operand);
  const Operand& operand = fusion.operands[static_cast<size_t>(value.access.operand)];
  if (!is_multiplied(fusion, view, operand.type) || value.type != operand.type)
    return refusal("16-bit-operands", tensor,
                   view.compute == DataType::i32
                       ? "int8 or uint8"
                       : "fp16 or bf16, or fp32 or fp8 where the graph's precision allows it",
                   std::string(to_string(operand.type)));
  const int64_t offset = value.access.offset * byte_size(operand.type);
  if (operand.alignment % kUnit != 0 || offset % kUnit != 0)
    return refusal("16-byte-operands", tensor, "a start on a multiple of 16 bytes",
                   fmt::format("alignment {}, offset {} bytes", operand.alignment, offset),
                   "promise 16-byte alignment for the tensor");
  return std::nullopt;
}

bool is_line(int64_t stride, int64_t element_bytes) {
  return stride > 0 && stride * element_bytes % kUnit == 0;
}

// A matmul's operand over the whole batch, and which of its axes are which.
struct MatmulSite {
  Expr expr;
  int k_axis, across_axis;
};

MatmulSite matmul_site(const Fusion& fusion, const Contraction& view, bool second, int64_t sibling) {
  Expr expr = over_batch(operand_site(fusion, second, sibling), view.batch);
  const int last = expr.domain.rank() - 1;
  return {std::move(expr), second ? last - 1 : last, second ? last : last - 1};
}

std::optional<Refusal> refuse_matmul_strides(const Fusion& fusion, const MatmulSite& matmul) {
  const auto& [site, k_axis, across_axis] = matmul;
  const Access& access = site.nodes[0].access;
  const std::string& tensor = fusion.name_of(access.operand);
  const int64_t k = access.strides[k_axis], across = access.strides[across_axis];
  const DataType type = type_of(fusion, access);
  const int64_t bytes = byte_size(type);
  if (k != 1 && across != 1)
    return refusal("adjacent-operands", tensor, "a stride of 1 along k or across it",
                   fmt::format("strides {} and {}", k, across));
  const WalkedAxes batch = batch_of(site);
  const auto stride = one_stride(batch.extents, batch.strides);
  if (!stride)
    return refusal("one-batch-stride", tensor, "leading axes that one stride walks",
                   to_string(access.strides));
  const int64_t line = k == 1 ? across : k, lines = site.domain[k == 1 ? across_axis : k_axis];
  if ((lines > 1 && !is_line(line, bytes)) || (*stride != 0 && !is_line(*stride, bytes)))
    return refusal("16-byte-lines", tensor, "lines and batch entries a multiple of 16 bytes apart",
                   fmt::format("{} and {} bytes", line * bytes, *stride * bytes), "pad the rows");
  return std::nullopt;
}

// TF32 in lines across k, which the copy engine can walk.
bool crosses(const Fusion& fusion, const Contraction& view, bool second) {
  const Expr& before = operand_site(fusion, second, 0);
  if (refuse_operand(fusion, view, before)) return false;
  const MatmulSite site = matmul_site(fusion, view, second, 0);
  const Access& access = site.expr.nodes[0].access;
  return type_of(fusion, access) == DataType::f32 && access.strides[site.k_axis] != 1 &&
         !refuse_matmul_strides(fusion, site);
}

std::optional<Refusal> refuse_matmul_copies(const Fusion& fusion, const Contraction& view, bool second,
                                            int64_t sibling) {
  const MatmulSite site = matmul_site(fusion, view, second, sibling);
  const Access& access = site.expr.nodes[0].access;
  const DataType type = type_of(fusion, access);
  const int64_t k = access.strides[site.k_axis];
  if (k != 1 && !may_lie_across(type) && operand_from_registers(fusion, view) != second)
    return refusal("adjacent-k", fusion.name_of(access.operand),
                   fmt::format("a stride of 1 along k for {}", to_string(type)), fmt::format("{}", k));
  return refuse_matmul_strides(fusion, site);
}

// The axis along which an operand of a convolution is packed: the input channels, but for the filter of a
// dgrad whose elements must lie along k, which are its output channels.
int adjacent_axis(const Fusion& fusion, const Contraction& view, bool second) {
  const DataType type = type_of(fusion, fusion.before[second ? 1 : 0].nodes[0].access);
  return second && view.op == ContractionOp::dgrad && !may_lie_across(type) ? 0 : 1;
}

// Channels lie side by side, everything else a multiple of 16 bytes apart.
std::optional<Refusal> refuse_channel_strides(const Fusion& fusion, const Expr& site, int adjacent) {
  const Access& access = site.nodes[0].access;
  const std::string& tensor = fusion.name_of(access.operand);
  const int64_t bytes = byte_size(type_of(fusion, access));
  if (access.strides[adjacent] != 1 && site.domain[adjacent] != 1)
    return refusal("adjacent-channels", tensor,
                   adjacent == 1 ? "channels side by side (NHWC)" : "output channels side by side",
                   fmt::format("a stride of {} between them", access.strides[adjacent]),
                   adjacent == 1 ? "use the layout NHWC" : "");
  for (int axis = 0; axis < site.domain.rank(); ++axis)
    if (axis != adjacent && site.domain[axis] != 1 && !is_line(access.strides[axis], bytes))
      return refusal("16-byte-lines", tensor, "pixels and taps a multiple of 16 bytes apart",
                     fmt::format("{} bytes along axis {}", access.strides[axis] * bytes, axis),
                     "use channels in multiples of 16 bytes");
  return std::nullopt;
}

std::optional<Refusal> refuse_walk(const Fusion& fusion, const Expr& site, const WalkedAxes& axes,
                                   const char* what) {
  if (one_stride(axes.extents, axes.strides)) return std::nullopt;
  return refusal("one-stride", fusion.name_of(site.nodes[0].access.operand),
                 fmt::format("{} that one stride walks", what), to_string(site.nodes[0].access.strides));
}

// What an im2col map of so many spatial axes holds.
struct WindowLimits {
  int64_t corner, offset;
};
constexpr WindowLimits limits_of(size_t spatial) {
  return spatial == 1   ? WindowLimits{32767, 65535}
         : spatial == 2 ? WindowLimits{127, 255}
                        : WindowLimits{15, 31};
}

std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view, const Expr& site) {
  const std::string& tensor = fusion.name_of(site.nodes[0].access.operand);
  const WindowLimits limits = limits_of(view.axes.size());
  for (size_t i = 0; i < view.axes.size(); ++i) {
    const WindowWalk walk = window_walk(view, view.axes[i]);
    const int64_t extent = site.domain[2 + static_cast<int>(i)];
    if (!fits_window_map(walk, extent, view.axes.size()))
      return refusal(
          "window-limits", tensor,
          fmt::format("padding up to {}, windows up to {} and strides up to 8", limits.corner, limits.offset),
          fmt::format("window {} with stride {}, from {} on, to {} beyond the end", walk.reach + 1,
                      walk.stride, walk.lower, upper_corner(walk, extent)));
  }
  return std::nullopt;
}

CopiedOperand plain(const Fusion& fusion, const Expr& site) {
  const Access& access = site.nodes[0].access;
  CopiedOperand copied;
  copied.operand = access.operand;
  copied.map.type = type_of(fusion, access);
  copied.map.rounds_to_tf32 = copied.map.type == DataType::f32;
  copied.byte_offset = access.offset * byte_size(copied.map.type);
  return copied;
}

// An axis of extent 1 may have any stride; the copy engine wants one of its own.
int64_t stride_bytes(const CopiedOperand& copied, int64_t extent, int64_t stride) {
  return extent == 1 || stride == 0 ? kUnit : stride * byte_size(copied.map.type);
}

CopiedOperand matmul_operand(const Fusion& fusion, const MatmulSite& matmul, int64_t extent) {
  const auto& [site, k_axis, across_axis] = matmul;
  const Access& access = site.nodes[0].access;
  const WalkedAxes batch = batch_of(site);
  const int64_t entry = one_stride(batch.extents, batch.strides).value();
  CopiedOperand copied = plain(fusion, site);
  copied.across_adjacent = access.strides[k_axis] != 1;
  copied.batched = entry != 0;
  const int inner = copied.across_adjacent ? across_axis : k_axis,
            outer = copied.across_adjacent ? k_axis : across_axis;
  copied.map.dims = {site.domain[inner], site.domain[outer],
                     copied.batched ? element_count(batch.extents) : 1};
  const int64_t line = box_line(copied.map.type);
  copied.map.stride_bytes = {stride_bytes(copied, site.domain[outer], access.strides[outer]),
                             copied.batched ? entry * byte_size(copied.map.type) : kUnit};
  copied.map.box = {line, copied.across_adjacent ? line : extent, 1};
  return copied;
}

CopiedOperand pixels_operand(const Fusion& fusion, const Contraction& view, const Expr& site,
                             int64_t pixels) {
  const Access& access = site.nodes[0].access;
  CopiedOperand copied = plain(fusion, site);
  copied.across_adjacent = view.op == ContractionOp::wgrad;
  TensorMap& map = copied.map;
  map.window.emplace();
  map.dims = {site.domain[1]};
  for (int i = static_cast<int>(view.axes.size()) - 1; i >= 0; --i) {
    const int64_t extent = site.domain[2 + i];
    const WindowWalk walk = window_walk(view, view.axes[static_cast<size_t>(i)]);
    map.dims.push_back(extent);
    map.stride_bytes.push_back(stride_bytes(copied, extent, access.strides[2 + i]));
    map.window->lower.push_back(walk.lower);
    map.window->upper.push_back(upper_corner(walk, extent));
    map.window->strides.push_back(walk.stride);
  }
  map.dims.push_back(site.domain[0]);
  map.stride_bytes.push_back(stride_bytes(copied, site.domain[0], access.strides[0]));
  map.box = {box_line(map.type), pixels};
  return copied;
}

// [output channel][tap][input channel], or the other way round
CopiedOperand filter_operand(const Fusion& fusion, const Contraction& view, const Expr& site,
                             int64_t extent) {
  const WalkedAxes taps = taps_of(site);
  CopiedOperand copied = plain(fusion, site);
  const int adjacent = adjacent_axis(fusion, view, true), outer = 1 - adjacent;
  const int64_t line = box_line(copied.map.type);
  copied.across_adjacent = view.op == ContractionOp::dgrad && adjacent == 1;
  copied.map.dims = {site.domain[adjacent], element_count(taps.extents), site.domain[outer]};
  copied.map.stride_bytes = {
      stride_bytes(copied, copied.map.dims[1], one_stride(taps.extents, taps.strides).value()),
      stride_bytes(copied, site.domain[outer], site.nodes[0].access.strides[outer])};
  copied.map.box = {line, 1, copied.across_adjacent ? line : extent};
  return copied;
}

// The output gradient of wgrad: [pixel][channel].
CopiedOperand lines_operand(const Fusion& fusion, const Expr& site) {
  const WalkedAxes pixels = pixels_of(site);
  CopiedOperand copied = plain(fusion, site);
  copied.across_adjacent = true;
  const int64_t count = element_count(pixels.extents);
  copied.map.dims = {site.domain[1], count, 1};
  copied.map.stride_bytes = {stride_bytes(copied, count, one_stride(pixels.extents, pixels.strides).value()),
                             kUnit};
  copied.map.box = {kBoxLine, kBoxLine, 1};
  return copied;
}

// An operand of a pointwise wgrad: [image][channel][position], positions side by side.
bool has_planes(const Fusion& fusion, const Contraction& view, const Expr& site) {
  if (refuse_operand(fusion, view, site)) return false;
  const Access& access = site.nodes[0].access;
  const Strides& strides = access.strides;
  const int64_t bytes = byte_size(type_of(fusion, access));
  const WalkedAxes positions = taps_of(site);
  return one_stride(positions.extents, positions.strides) == 1 &&
         (site.domain[0] == 1 || is_line(strides[0], bytes)) &&
         (site.domain[1] == 1 || is_line(strides[1], bytes));
}

CopiedOperand planes_operand(const Fusion& fusion, const Expr& site, int64_t extent) {
  const Strides& strides = site.nodes[0].access.strides;
  CopiedOperand copied = plain(fusion, site);
  copied.map.dims = {element_count(taps_of(site).extents), site.domain[1], site.domain[0]};
  copied.map.stride_bytes = {stride_bytes(copied, site.domain[1], strides[1]),
                             stride_bytes(copied, site.domain[0], strides[0])};
  copied.map.box = {box_line(copied.map.type), extent, 1};
  return copied;
}

// --- Planes under windows ---

// Why an operand's planes cannot be walked.
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
    if (site.domain[axis] != 1 && !is_line(access.strides[axis], bytes))
      return refusal("16-byte-lines", tensor, "rows and planes a multiple of 16 bytes apart",
                     fmt::format("{} bytes along axis {}", access.strides[axis] * bytes, axis),
                     "leave it to wgmma_repacked");
  return std::nullopt;
}

// The copy engine begins to read on multiples of 16 bytes, so that is where every tap must lead along the
// last axis; planes that are walked as a whole have rows that are such multiples.
std::optional<Refusal> refuse_taps(const Fusion& fusion, const Contraction& view) {
  const Access& access = fusion.before[1].nodes[0].access;
  const WindowAxis& axis = view.axes.back();
  const int64_t bytes = byte_size(type_of(fusion, access));
  for (int64_t tap = 0; tap < axis.window; ++tap) {
    const int64_t offset = axis.start + tap * axis.step;
    if (offset * bytes % kUnit != 0)
      return refusal("aligned-taps", fusion.name_of(access.operand),
                     "taps that lie multiples of 16 bytes off along the last axis",
                     fmt::format("{} bytes", offset * bytes), "leave it to wgmma_repacked");
  }
  return std::nullopt;
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
  const Expr &y = fusion.before[0], &x = fusion.before[1];
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

// Positions from the first of a plane to the last.
int64_t plane_length(const Expr& site) {
  int64_t length = 1;
  for (int axis = 2; axis < site.domain.rank(); ++axis)
    length += (site.domain[axis] - 1) * pitch_of(site, axis - 2);
  return length;
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

CopiedOperand plane_operand(const Fusion& fusion, const Expr& site, const PlaneWalk& walk, int64_t extent) {
  const Strides& strides = site.nodes[0].access.strides;
  const int last = site.domain.rank() - 1;
  CopiedOperand copied = plain(fusion, site);
  TensorMap& map = copied.map;
  map.dims = {walk.flat ? plane_length(site) : site.domain[last]};
  map.box = {box_line(map.type)};
  const auto add = [&](int axis, int64_t box) {
    map.dims.push_back(site.domain[axis]);
    map.stride_bytes.push_back(stride_bytes(copied, site.domain[axis], strides[axis]));
    map.box.push_back(box);
  };
  for (int axis = last - 1; axis >= 2 && !walk.flat; --axis) add(axis, 1);
  add(1, extent);
  add(0, 1);
  return copied;
}

struct ResultLines {
  int64_t line = 0, entry = 0;  // strides
};

// Strides between lines of the result and between batch entries, or nothing.
std::optional<ResultLines> lines_of(const Contraction& view, const Expr& y, const Access& store,
                                    bool along_n) {
  if (!view.is_convolution()) {
    const WalkedAxes batch{view.batch, slice(store.strides, 0, view.batch.rank())};
    const auto entry = one_stride(batch.extents, batch.strides);
    if (!entry || (view.entries > 1 && *entry == 0)) return std::nullopt;
    return ResultLines{store.strides[view.batch.rank() + (along_n ? 0 : 1)], *entry};
  }
  if (!along_n || view.op == ContractionOp::wgrad) return std::nullopt;
  WalkedAxes pixels{slice(y.domain, 2, y.domain.rank()), slice(store.strides, 2, y.domain.rank())};
  pixels.extents.insert(0, y.domain[0]);
  pixels.strides.insert(0, store.strides[0]);
  const auto line = one_stride(pixels.extents, pixels.strides);
  if (!line) return std::nullopt;
  return ResultLines{*line, 0};
}

// The types that boxes of a result have.
bool fills_boxes(const Result& result) {
  return !result.reduction && (result.type == DataType::f16 || result.type == DataType::bf16 ||
                               result.type == DataType::f32 || result.type == DataType::i32);
}

// Of the result, all groups together.
int64_t channels_of(const Contraction& view) {
  return view.is_convolution() ? view.n * view.entries : view.n;
}

}  // namespace

WindowWalk window_walk(const Contraction& view, const WindowAxis& axis) {
  WindowWalk walk;
  walk.window = axis.window;
  if (view.op == ContractionOp::dgrad) {
    const AxisClasses all = axis_classes(axis);
    walk.pixels = all.positions;
    walk.slope = all.slope;
    walk.lower = all.lower;
    walk.origin = all.classes.front().origin;
    walk.reach = all.reach;
  } else {
    const int64_t reach = (axis.window - 1) * axis.step;
    walk.pixels = axis.output;
    walk.stride = axis.stride;
    walk.slope = axis.step;
    walk.lower = axis.start + std::min<int64_t>(reach, 0);
    walk.origin = -std::min<int64_t>(reach, 0);
    walk.reach = std::abs(reach);
  }
  return walk;
}

int64_t extent_under_window(const Contraction& view, const WindowAxis& axis) {
  return view.op == ContractionOp::dgrad ? axis.output : axis.input;
}

int64_t upper_corner(const WindowWalk& walk, int64_t extent) {
  return walk.lower + (walk.pixels - 1) * walk.stride - (extent - 1);
}

bool fits_window_map(const WindowWalk& walk, int64_t extent, size_t axes) {
  const WindowLimits limits = limits_of(axes);
  return std::abs(walk.lower) <= limits.corner && std::abs(upper_corner(walk, extent)) <= limits.corner &&
         walk.reach <= limits.offset && walk.stride <= 8;
}

bool sums_planes(const Fusion& fusion, const Contraction& view) {
  return view.op == ContractionOp::wgrad && view.is_pointwise() &&
         has_planes(fusion, view, fusion.before[0]) && has_planes(fusion, view, fusion.before[1]);
}

Dims flat_rows(const Contraction& view, DataType type) {
  Dims rows;
  for (const WindowAxis& axis : view.axes) {
    const auto [before, behind] = overhang_of(axis);
    rows.push_back(rows.empty() ? 1 : std::max(axis.output, axis.input + std::max(before, behind)));
  }
  // Of the first axis alone, planes are that of neighbours.
  const int last = rows.rank() - 1;
  const int64_t unit = kUnit / byte_size(type);
  if (last > 0) rows[last] = (rows[last] + unit - 1) / unit * unit;
  return rows;
}

std::optional<PlaneWalk> plane_walk(const Fusion& fusion, const Contraction& view) {
  if (view.op != ContractionOp::wgrad || view.siblings != 1 || sums_planes(fusion, view)) return std::nullopt;
  const Expr &y = fusion.before[0], &x = fusion.before[1];
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

std::optional<bool> operand_from_registers(const Fusion& fusion, const Contraction& view) {
  if (view.is_convolution() || view.siblings > 1 || view.reduces) return std::nullopt;
  const bool first = crosses(fusion, view, false), second = crosses(fusion, view, true);
  if (!first && !second) return std::nullopt;
  if (!first || !second) return second;
  const auto elements = [&](size_t i) { return element_count(fusion.before[i].domain); };
  return elements(1) >= elements(0);
}

std::optional<Refusal> refuse_copies(const Fusion& fusion, const Contraction& view, bool second,
                                     int64_t sibling) {
  const Expr& before = operand_site(fusion, second, sibling);
  if (auto refusal = refuse_operand(fusion, view, before)) return refusal;
  if (!view.is_convolution()) return refuse_matmul_copies(fusion, view, second, sibling);
  if (sums_planes(fusion, view)) return std::nullopt;
  if (plane_walk(fusion, view)) return std::nullopt;
  if (view.op == ContractionOp::wgrad && !may_lie_across(type_of(fusion, before.nodes[0].access))) {
    if (auto refusal = refuse_planes(fusion, view, before)) return refusal;
    return second ? refuse_taps(fusion, view) : std::nullopt;
  }
  if (auto refusal = refuse_channel_strides(fusion, before, adjacent_axis(fusion, view, second)))
    return refusal;
  if (is_pixels(view, second)) return refuse_window(fusion, view, before);
  if (view.op == ContractionOp::wgrad) return refuse_walk(fusion, before, pixels_of(before), "pixels");
  return refuse_walk(fusion, before, taps_of(before), "taps");
}

CopiedOperand copied_operand(const Fusion& fusion, const Contraction& view, bool second, int64_t extent,
                             int64_t sibling) {
  const Expr& before = operand_site(fusion, second, sibling);
  if (!view.is_convolution())
    return matmul_operand(fusion, matmul_site(fusion, view, second, sibling), extent);
  if (sums_planes(fusion, view)) return planes_operand(fusion, before, extent);
  if (const auto walk = plane_walk(fusion, view))
    return plane_operand(fusion, before, *walk, second ? walk->channel_block : extent);
  if (is_pixels(view, second))
    return pixels_operand(fusion, view, before, view.op == ContractionOp::wgrad ? kBoxLine : extent);
  return view.op == ContractionOp::wgrad ? lines_operand(fusion, before)
                                         : filter_operand(fusion, view, before, extent);
}

std::optional<CopiedResult> planes_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          int64_t run) {
  if (view.op != ContractionOp::fprop && view.op != ContractionOp::dgrad) return std::nullopt;
  const Result& first = y.results.front();
  const Access& store = first.access;
  const int rank = y.domain.rank();
  if (!fills_boxes(first) || one_stride(slice(y.domain, 2, rank), slice(store.strides, 2, rank)) != 1)
    return std::nullopt;
  CopiedResult copied;
  copied.operand = store.operand;
  copied.byte_offset = store.offset * byte_size(first.type);
  copied.type = first.type;
  copied.along_n = false;
  ResultPlanes& planes = copied.planes.emplace();
  planes.channel = y.domain[1] == 1 ? 0 : store.strides[1];
  planes.image = y.domain[0] == 1 ? 0 : store.strides[0];
  const auto is_unit = [&](int64_t unit) {
    const int64_t bytes = unit * byte_size(first.type);
    return bytes <= kUnit && run % unit == 0 && planes.channel % unit == 0 && planes.image % unit == 0 &&
           copied.byte_offset % bytes == 0 &&
           fusion.operands[static_cast<size_t>(store.operand)].alignment % bytes == 0;
  };
  while (is_unit(2 * planes.unit)) planes.unit *= 2;
  return copied;
}

std::optional<CopiedResult> copied_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          const Result& result) {
  const Operand& operand = fusion.operands[static_cast<size_t>(result.access.operand)];
  if (!fills_boxes(result) || operand.alignment % kUnit != 0) return std::nullopt;
  const int64_t bytes = byte_size(result.type);
  const int n_axis = view.is_convolution() ? 1 : view.batch.rank() + 1;
  CopiedResult copied;
  copied.operand = result.access.operand;
  copied.byte_offset = result.access.offset * bytes;
  copied.type = result.type;
  copied.along_n = result.access.strides[n_axis] == 1;
  const auto lines = lines_of(view, y, result.access, copied.along_n);
  const bool adjacent = copied.along_n || (!view.is_convolution() && result.access.strides[n_axis - 1] == 1);
  if (!lines || !adjacent || copied.byte_offset % kUnit != 0) return std::nullopt;
  // Lines of a group must not run into the next one's.
  if (view.is_convolution() && view.entries > 1 && view.n % kBoxLine != 0) return std::nullopt;
  const int64_t line = lines->line * bytes, entry = lines->entry * bytes;
  const int64_t inner = copied.along_n ? channels_of(view) : view.m;
  // Lines are written in units of 16 bytes.
  if (inner * bytes % kUnit != 0) return std::nullopt;
  if (line <= 0 || line % kUnit != 0 || entry < 0 || entry % kUnit != 0) return std::nullopt;
  copied.map.type = result.type;
  copied.map.dims = {inner, copied.along_n ? view.m : view.n, view.is_convolution() ? 1 : view.entries};
  copied.map.stride_bytes = {line, entry > 0 ? entry : kUnit};
  return copied;
}

}  // namespace fusor
