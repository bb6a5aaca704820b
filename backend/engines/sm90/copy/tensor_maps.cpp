// Owns the maps of operands, and which rules each must keep.
#include "backend/engines/sm90/copy/tensor_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "backend/engines/contraction/matmul_site.h"
#include "backend/engines/sm90/copy/rules.h"

namespace fusor {

using namespace copy_rules;

namespace {

bool is_pixels(const Contraction& view, bool second) {
  return view.is_convolution() && second == (view.op == ContractionOp::wgrad);
}

// --- Matmuls ---

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
  const auto batch = batch_walk(batch_of(site));
  if (!batch)
    return refusal("batch-strides", tensor,
                   fmt::format("leading axes that {} strides walk", BatchWalk::kMostAxes),
                   to_string(access.strides), "copy the operand to a tensor of its own");
  const int64_t line = k == 1 ? across : k, lines = site.domain[k == 1 ? across_axis : k_axis];
  const auto is_astray = [&](int64_t stride) { return !is_line_stride(stride, bytes); };
  const auto astray = std::ranges::find_if(batch->axes, is_astray, &BatchWalk::Axis::stride);
  if ((lines > 1 && is_astray(line)) || astray != batch->axes.end())
    return refusal("16-byte-lines", tensor, "lines and batch entries a multiple of 16 bytes apart",
                   fmt::format("{} bytes", (astray != batch->axes.end() ? astray->stride : line) * bytes),
                   "pad the rows");
  return std::nullopt;
}

// TF32 in lines across k, which TMA can walk.
bool crosses(const Fusion& fusion, const Contraction& view, bool second) {
  const Expr& before = site_of_operand(fusion, second, 0);
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

// --- Maps ---

CopiedOperand plain(const Fusion& fusion, const Expr& site) {
  const Access& access = site.nodes[0].access;
  CopiedOperand copied;
  copied.operand = access.operand;
  copied.map.type = type_of(fusion, access);
  copied.map.rounds_to_tf32 = copied.map.type == DataType::f32;
  copied.byte_offset = access.offset * byte_size(copied.map.type);
  return copied;
}

// An axis of extent 1 may have any stride; TMA wants one of its own.
int64_t stride_bytes(const CopiedOperand& copied, int64_t extent, int64_t stride) {
  return extent == 1 || stride == 0 ? kCopyUnit : stride * byte_size(copied.map.type);
}

CopiedOperand matmul_operand(const Fusion& fusion, const MatmulSite& matmul, int64_t extent) {
  const auto& [site, k_axis, across_axis] = matmul;
  const Access& access = site.nodes[0].access;
  CopiedOperand copied = plain(fusion, site);
  copied.across_adjacent = access.strides[k_axis] != 1;
  copied.batch = batch_walk(batch_of(site)).value();
  copied.batched = !copied.batch.axes.empty();
  const int inner = copied.across_adjacent ? across_axis : k_axis,
            outer = copied.across_adjacent ? k_axis : across_axis;
  const int64_t line = box_line(copied.map.type);
  copied.map.dims = {site.domain[inner], site.domain[outer]};
  copied.map.stride_bytes = {stride_bytes(copied, site.domain[outer], access.strides[outer])};
  copied.batch.append_to(copied.map);
  copied.map.box = Dims::filled(copied.map.dims.rank(), 1);
  copied.map.box[0] = line;
  copied.map.box[1] = copied.across_adjacent ? line : extent;
  return copied;
}

// The axis along which an operand of a convolution is packed: the input channels, but for the filter of a
// dgrad whose elements must lie along k, which are its output channels.
int adjacent_axis(const Fusion& fusion, const Contraction& view, bool second) {
  const DataType type = type_of(fusion, operand_site(fusion, 0, second ? 1 : 0).nodes[0].access);
  return second && view.op == ContractionOp::dgrad && !may_lie_across(type) ? 0 : 1;
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
                             kCopyUnit};
  copied.map.box = {kBoxLine, kBoxLine, 1};
  return copied;
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

}  // namespace

std::optional<bool> operand_from_registers(const Fusion& fusion, const Contraction& view) {
  if (view.is_convolution() || view.siblings > 1 || view.reduces) return std::nullopt;
  const bool first = crosses(fusion, view, false), second = crosses(fusion, view, true);
  if (!first && !second) return std::nullopt;
  if (!first || !second) return second;
  const auto elements = [&](size_t i) { return element_count(operand_site(fusion, 0, i).domain); };
  return elements(1) >= elements(0);
}

std::optional<Refusal> refuse_copies(const Fusion& fusion, const Contraction& view, bool second,
                                     int64_t sibling) {
  const Expr& before = site_of_operand(fusion, second, sibling);
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
  const Expr& before = site_of_operand(fusion, second, sibling);
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

std::optional<CopiedOperand> copied_load(const Fusion& fusion, const Contraction& view, bool second,
                                         size_t load, int64_t extent) {
  MatmulSite site = matmul_site(fusion, view, second, 0);
  site.expr.nodes = {site.expr.nodes[load]};
  site.expr.yields = {0};
  if (refuse_start(fusion, site.expr) || refuse_matmul_strides(fusion, site)) return std::nullopt;
  CopiedOperand copied = matmul_operand(fusion, site, extent);
  copied.map.rounds_to_tf32 = false;
  copied.map.box[0] = kBoxLine;
  copied.map.box[1] = copied.across_adjacent ? kBoxLine : extent;
  return copied;
}

CopiedOperand whole_planes(const Fusion& fusion, bool second, int64_t positions, int64_t channels) {
  CopiedOperand copied = planes_operand(fusion, site_of_operand(fusion, second, 0), channels);
  copied.map.box[0] = positions;
  return copied;
}

}  // namespace fusor
