// Owns the rules for results in boxes, and in planes.
#include "backend/engines/sm90/copy/copied_result.h"

#include <algorithm>
#include <utility>

#include "backend/engines/sm90/copy/rules.h"
#include "backend/engines/sm90/copy/units.h"

namespace fusor {

using namespace copy_rules;

namespace {

struct ResultLines {
  int64_t line = 0, entry = 0;  // strides
  BatchWalk batch = {};         // of a matmul, in place of the latter
};

// A wgrad with channels last: lines are output channels, entries taps. A block of 64 columns is part of one
// tap. Totals of columns know no taps.
std::optional<ResultLines> lines_of_taps(const Contraction& view, const Expr& y, const Access& store) {
  const int64_t channels = view.padded_channels > 0 ? view.padded_channels : view.input_channels;
  const bool whole = view.taps() == 1 || channels % kBoxLine == 0;
  if (view.entries > 1 || view.planes || view.reduces || !view.channels_fastest || !whole)
    return std::nullopt;
  const WalkedAxes taps{slice(y.domain, 2, y.domain.rank()), slice(store.strides, 2, y.domain.rank())};
  const auto tap = one_stride(taps.extents, taps.strides);
  if (!tap || (view.taps() > 1 && *tap == 0)) return std::nullopt;
  return ResultLines{store.strides[0], *tap};
}

// Boxes of all results have one place in their maps: what lies beside the first one has entries along the
// axes of its map.
std::optional<BatchWalk> batch_of_result(const Contraction& view, const Access& store,
                                         const CopiedResult* first) {
  const WalkedAxes batch{view.batch, slice(store.strides, 0, view.batch.rank())};
  auto walk = first == nullptr ? batch_walk(batch) : batch_walk_like(first->batch, batch);
  if (walk && !walk->has_own_entries()) walk.reset();
  return walk;
}

// Strides between lines of the result and between batch entries, or nothing.
std::optional<ResultLines> lines_of(const Contraction& view, const Expr& y, const Access& store, bool along_n,
                                    const CopiedResult* first) {
  if (!view.is_convolution()) {
    auto batch = batch_of_result(view, store, first);
    if (!batch) return std::nullopt;
    return ResultLines{store.strides[view.batch.rank() + (along_n ? 0 : 1)], 0, *std::move(batch)};
  }
  if (!along_n) return std::nullopt;
  if (view.op == ContractionOp::wgrad) return lines_of_taps(view, y, store);
  WalkedAxes pixels{slice(y.domain, 2, y.domain.rank()), slice(store.strides, 2, y.domain.rank())};
  pixels.extents.insert(0, y.domain[0]);
  pixels.strides.insert(0, store.strides[0]);
  const auto line = one_stride(pixels.extents, pixels.strides);
  if (!line) return std::nullopt;
  return ResultLines{*line, 0};
}

// The types that boxes of a result have.
bool fills_boxes(const Expr& y, const Store& result) {
  return !reduction_of(y, result) && (result.type == DataType::f16 || result.type == DataType::bf16 ||
                                      result.type == DataType::f32 || result.type == DataType::i32);
}

// Channels of the result, all groups together; of a wgrad, of one tap.
int64_t channels_of(const Contraction& view) {
  if (view.op == ContractionOp::wgrad) return view.input_channels;
  return view.is_convolution() ? view.n * view.entries : view.n;
}

// The axes of the map behind a line and its elements: of a matmul, those of the batch; of a wgrad, the taps.
void append_entries(TensorMap& map, const Contraction& view, const ResultLines& lines) {
  if (!view.is_convolution()) return lines.batch.append_to(map);
  map.dims.push_back(view.op == ContractionOp::wgrad ? view.taps() : 1);
  map.stride_bytes.push_back(lines.entry > 0 ? lines.entry * byte_size(map.type) : kCopyUnit);
}

// Whether lines and entries begin on multiples of 16 bytes.
bool begin_on_units(const ResultLines& lines, DataType type) {
  const int64_t bytes = byte_size(type), entry = lines.entry * bytes;
  const auto is_unit = [&](const BatchWalk::Axis& axis) { return is_line_stride(axis.stride, bytes); };
  return is_line_stride(lines.line, bytes) && entry >= 0 && entry % kCopyUnit == 0 &&
         std::ranges::all_of(lines.batch.axes, is_unit);
}

}  // namespace

std::optional<CopiedResult> planes_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          int64_t run) {
  if (view.op != ContractionOp::fprop && view.op != ContractionOp::dgrad) return std::nullopt;
  const Store& first = y.stores.front();
  const Access& store = first.access;
  const int rank = y.domain.rank();
  if (!fills_boxes(y, first) || one_stride(slice(y.domain, 2, rank), slice(store.strides, 2, rank)) != 1)
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
    return bytes <= kCopyUnit && run % unit == 0 && planes.channel % unit == 0 && planes.image % unit == 0 &&
           copied.byte_offset % bytes == 0 &&
           fusion.operands[static_cast<size_t>(store.operand)].alignment % bytes == 0;
  };
  while (is_unit(2 * planes.unit)) planes.unit *= 2;
  return copied;
}

std::optional<CopiedResult> copied_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          const Store& result, const CopiedResult* first) {
  const Operand& operand = fusion.operands[static_cast<size_t>(result.access.operand)];
  if (!fills_boxes(y, result) || operand.alignment % kCopyUnit != 0) return std::nullopt;
  const int64_t bytes = byte_size(result.type);
  const int n_axis = view.is_convolution() ? 1 : view.batch.rank() + 1;
  CopiedResult copied;
  copied.operand = result.access.operand;
  copied.byte_offset = result.access.offset * bytes;
  copied.type = result.type;
  copied.along_n = result.access.strides[n_axis] == 1;
  const auto lines = lines_of(view, y, result.access, copied.along_n, first);
  const bool adjacent = copied.along_n || (!view.is_convolution() && result.access.strides[n_axis - 1] == 1);
  if (!lines || !adjacent || copied.byte_offset % kCopyUnit != 0) return std::nullopt;
  // Lines of a group must not run into the next one's.
  if (view.is_convolution() && view.entries > 1 && view.n % kBoxLine != 0) return std::nullopt;
  const int64_t inner = copied.along_n ? channels_of(view) : view.m;
  // Lines are written in units of 16 bytes.
  if (inner * bytes % kCopyUnit != 0 || !begin_on_units(*lines, result.type)) return std::nullopt;
  copied.map.type = result.type;
  copied.map.dims = {inner, copied.along_n ? view.m : view.n};
  copied.map.stride_bytes = {lines->line * bytes};
  append_entries(copied.map, view, *lines);
  copied.batch = lines->batch;
  return copied;
}

}  // namespace fusor
