// Owns the copies that lay columns one behind the other, and the filter that meets them.
#include "backend/engines/repack/rewrites/unroll_columns.h"

#include <algorithm>
#include <optional>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/repack/rewrites/repacker.h"
#include "backend/engines/repack/unrolled_columns.h"
#include "backend/engines/sm90/copy/tensor_maps.h"

namespace fusor {

namespace {

// Which operand has the images.
size_t images_of(const Repacker& repacker) { return repacker.view().op == ContractionOp::wgrad ? 1 : 0; }

std::optional<UnrolledColumns> columns_of(Repacker& repacker) {
  if (!repacker.view().is_convolution()) return std::nullopt;
  const Expr& site = repacker.operand(images_of(repacker));
  const int last = site.domain.rank() - 1;
  // A part of a row would have coordinates of its own.
  if (std::ranges::any_of(site.nodes, [last](const Node& node) {
        return node.kind == Node::Kind::index && node.axis == last;
      }))
    return std::nullopt;
  return unrolled_columns(repacker.view(), repacker.packed_type(images_of(repacker)));
}

// The site over `extent` positions of its last axis, from `first` on.
Expr part_of_last_axis(const Expr& site, int64_t first, int64_t extent) {
  Expr part = site;
  const int last = site.domain.rank() - 1;
  part.domain[last] = extent;
  for (Node& node : part.nodes)
    if (node.access.strides.rank() == site.domain.rank())
      node.access.offset += first * node.access.strides[last];
  return part;
}

// [image][channel of a run][pixels], where runs overlap; padding and what fills columns up are zero.
void unroll_rows(Repacker& repacker, const UnrolledColumns& unrolled, DataType type) {
  Expr& site = repacker.operand(images_of(repacker));
  const int last = site.domain.rank() - 1;
  Dims rows = site.domain;
  rows[1] = unrolled.columns * unrolled.channels_of_column;
  rows[last] = 1;
  const int64_t image_columns = unrolled.image_columns(site.domain[last]);
  const bool is_full = image_columns == unrolled.columns && unrolled.channels_of_column == site.domain[1];
  const Access scratch = repacker.add_scratch(site, rows, channels_last(rows.rank()), type);
  if (!is_full) repacker.zero_last();
  Access copied = scratch;
  copied.strides[last] = unrolled.channels_of_column;
  copied.offset = (unrolled.image_begin() - unrolled.first_column) * copied.strides[last];
  repacker.load(part_of_last_axis(site, unrolled.image_begin(), image_columns), type, copied);
  Access runs = scratch;
  runs.strides[last] = unrolled.stride * unrolled.channels_of_column;
  Dims domain = site.domain;
  domain[1] = unrolled.channels;
  domain[last] = repacker.view().axes.back().output;
  site = loaded(domain, type, runs);
}

// [output channel][channel of a run][taps along the other axes]
void unroll_filter(Repacker& repacker, const UnrolledColumns& unrolled, DataType type) {
  Expr& site = repacker.operand(1);
  const int last = site.domain.rank() - 1;
  Dims domain = site.domain;
  domain[1] = unrolled.channels;
  domain[last] = 1;
  const Access scratch = repacker.add_zeros(site, domain, channels_last(domain.rank()), type);
  Access taps = scratch;
  taps.strides[last] = unrolled.tap_step * unrolled.channels_of_column;
  taps.offset = unrolled.first_tap * unrolled.channels_of_column;
  repacker.load(site, type, taps);
  site = loaded(domain, type, scratch);
}

// The gradient of [output channel][channel of a run][taps along the other axes], which each tap's channels
// leave for their place.
void leave_gradient(Repacker& repacker, const UnrolledColumns& unrolled) {
  Expr& y = repacker.result();
  const Expr whole = y;
  const int last = whole.domain.rank() - 1;
  y.domain[1] = unrolled.channels;
  y.domain[last] = 1;
  const Repacker::Product product = repacker.leave_product(whole);
  Access taps = product.scratch;
  taps.strides[last] = unrolled.tap_step * unrolled.channels_of_column * taps.strides[1];
  taps.offset = unrolled.first_tap * unrolled.channels_of_column * taps.strides[1];
  repacker.finish(whole, product, taps);
}

Repacked unroll_gradient(const Fusion& fusion, const Contraction& view, bool packs_source) {
  Repacker repacker(fusion, view);
  const UnrolledColumns unrolled = columns_of(repacker).value();
  if (packs_source) repacker.pack_operand(0);
  unroll_rows(repacker, unrolled, repacker.packed_type(1));
  repacker.convolution() = unrolled.convolution(repacker.convolution());
  leave_gradient(repacker, unrolled);
  return repacker.take();
}

class UnrolledColumnsRewrite final : public Rewrite {
 public:
  std::string_view knob() const override { return "unroll"; }
  std::vector<int64_t> values() const override { return {1}; }

  std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view,
                                       int64_t /*value*/) const override {
    if (!unrolls_columns(fusion, view) || refuse_epilogue_reductions(fusion)) return {};
    if (view.op != ContractionOp::wgrad) return fusor::result_paths(fusion, view);
    if (!can_finish_later(result_site(fusion))) return {};
    return {ResultPath::finished};
  }

  Repacked rewritten(const Fusion& fusion, const Contraction& view, int64_t /*value*/,
                     ResultPath out) const override {
    return unroll_columns(fusion, view, out);
  }
};

}  // namespace

bool unrolls_columns(const Fusion& fusion, const Contraction& view) {
  Repacker repacker(fusion, view);
  return columns_of(repacker).has_value();
}

Repacked unroll_columns(const Fusion& fusion, const Contraction& view, ResultPath way) {
  if (view.op == ContractionOp::wgrad) {
    Repacked plain = unroll_gradient(fusion, view, false);
    const bool packs_source =
        refuse_copies(plain.core, contraction_of(plain.core).value(), false).has_value();
    return packs_source ? unroll_gradient(fusion, view, true) : plain;
  }
  Repacker repacker(fusion, view);
  const UnrolledColumns unrolled = columns_of(repacker).value();
  const DataType of_rows = repacker.packed_type(0), of_filter = repacker.packed_type(1);
  unroll_rows(repacker, unrolled, of_rows);
  unroll_filter(repacker, unrolled, of_filter);
  repacker.convolution() = unrolled.convolution(repacker.convolution());
  repacker.leave(way);
  return repacker.take();
}

const Rewrite& unrolled_columns_rewrite() {
  static const UnrolledColumnsRewrite rewrite;
  return rewrite;
}

}  // namespace fusor
