// Owns the copies that fill the filter of joined pixels up, and those that spread its results.
#include "backend/engines/repack/rewrites/join_pixels.h"

#include <algorithm>

#include "backend/engines/repack/joined_pixels.h"
#include "backend/engines/repack/rewrites/repacker.h"
#include "backend/engines/sm90/copy/tensor_maps.h"

namespace fusor {

namespace {

// Channels of a position lie as those of the result do: channels side by side, or neighbours along a line.
std::optional<JoinedPixels> pixels_of(const Fusion& fusion, const Contraction& view, int64_t pixels) {
  const Expr& y = result_site(fusion);
  if (!view.is_convolution() || y.stores.empty()) return std::nullopt;
  const Strides& strides = y.stores.front().access.strides;
  return joined_pixels(view, pixels, strides[1] <= strides[y.domain.rank() - 1]);
}

// The filter with zeros around it; channels that are summed over lie side by side.
Access fill_filter_up(Repacker& repacker, const JoinedPixels& joined) {
  const Expr& site = repacker.operand(1);
  const DataType type = repacker.packed_type(1);
  Dims filled = site.domain;
  for (size_t i = 0; i < joined.axes.size(); ++i) filled[2 + static_cast<int>(i)] = joined.axes[i].taps;
  const int rank = filled.rank();
  const bool along_inputs = repacker.view().op == ContractionOp::fprop;
  const Access scratch =
      repacker.add_zeros(site, filled, along_inputs ? channels_last(rank) : output_channels_last(rank), type);
  Access own = scratch;
  for (size_t i = 0; i < joined.axes.size(); ++i)
    own.offset += joined.axes[i].zeros * scratch.strides[2 + static_cast<int>(i)];
  repacker.load(site, type, own);
  return scratch;
}

// [channel of a position][channel that is summed over][window], from the filter that was filled up.
void join_filter(Repacker& repacker, const JoinedPixels& joined, const Access& filled) {
  Expr& site = repacker.operand(1);
  const DataType type = repacker.packed_type(1);
  const int result_axis = repacker.view().op == ContractionOp::fprop ? 0 : 1;
  Dims domain{joined.channels, site.domain[1 - result_axis]};
  for (const JoinedAxis& axis : joined.axes) domain.push_back(axis.window);
  const Access scratch = repacker.add_scratch(site, domain, channels_last(domain.rank()), type);
  Dims copied{site.domain[result_axis], domain[1]};
  Access from = filled, to = scratch;
  from.strides = {filled.strides[result_axis], filled.strides[1 - result_axis]};
  to.strides = {joined.channel_step * scratch.strides[0], scratch.strides[1]};
  for (size_t i = 0; i < joined.axes.size(); ++i) {
    const JoinedAxis& axis = joined.axes[i];
    const int at = 2 + static_cast<int>(i);
    copied.push_back(axis.block);
    copied.push_back(axis.window);
    from.offset += axis.first * filled.strides[at];
    from.strides.push_back(axis.tap_of_result * filled.strides[at]);
    from.strides.push_back(axis.tap_of_window * filled.strides[at]);
    to.strides.push_back(axis.channel_step * scratch.strides[0]);
    to.strides.push_back(scratch.strides[at]);
  }
  repacker.load(loaded(copied, type, from), type, to);
  site = loaded(domain, type, scratch);
}

// What follows the product is the same for every pixel: results leave in their own types.
void copy_pixels(Repacker& repacker, const JoinedPixels& joined, const Expr& whole) {
  Expr& y = repacker.result();
  for (size_t i = 0; i < y.stores.size(); ++i) {
    Store& result = y.stores[i];
    const Access scratch = repacker.add_result(result.type, repacker.core().name_of(result.access.operand));
    result.access = scratch;
    for (const auto& box : joined.boxes()) {
      Expr copy = in_box({.domain = whole.domain, .nodes = {}, .stores = {whole.stores[i]}, .yields = {}},
                         joined, box);
      copy.nodes = {{.kind = Node::Kind::load,
                     .type = result.type,
                     .access = of_box(scratch, joined, box),
                     .op = result.op}};
      copy.stores[0].node = 0;
      repacker.store(std::move(copy));
    }
  }
}

void finish_pixels(Repacker& repacker, const JoinedPixels& joined, const Expr& whole) {
  const Repacker::Product product = repacker.leave_product(whole);
  for (const auto& box : joined.boxes())
    repacker.finish(in_box(whole, joined, box), product, of_box(product.scratch, joined, box));
}

class JoinedPixelsRewrite final : public Rewrite {
 public:
  std::string_view knob() const override { return "join"; }
  std::vector<int64_t> values() const override { return {1, 2, 4, 8, 16, 32}; }

  std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view,
                                       int64_t pixels) const override {
    const auto out = result_path_of_pixels(fusion, view, pixels);
    if (!out) return {};
    return {*out};
  }

  Repacked rewritten(const Fusion& fusion, const Contraction& view, int64_t pixels,
                     ResultPath out) const override {
    const Repacked plain = join_pixels(fusion, view, pixels, false, out);
    const bool packs_sources =
        refuse_copies(plain.core, contraction_of(plain.core).value(), false).has_value();
    return packs_sources ? join_pixels(fusion, view, pixels, true, out) : plain;
  }
};

}  // namespace

std::optional<ResultPath> result_path_of_pixels(const Fusion& fusion, const Contraction& view,
                                                int64_t pixels) {
  const Expr& y = result_site(fusion);
  if (y.has_reduction() || !pixels_of(fusion, view, pixels)) return std::nullopt;
  const bool same_for_all = std::ranges::none_of(y.nodes, [](const Node& node) {
    return node.kind == Node::Kind::load || node.kind == Node::Kind::index;
  });
  if (same_for_all) return ResultPath::copied;
  if (std::ranges::any_of(y.nodes, names_position) || !can_finish_later(y)) return std::nullopt;
  return ResultPath::finished;
}

Repacked join_pixels(const Fusion& fusion, const Contraction& view, int64_t pixels, bool packs_sources,
                     ResultPath way) {
  const JoinedPixels joined = pixels_of(fusion, view, pixels).value();
  Repacker repacker(fusion, view);
  join_filter(repacker, joined, fill_filter_up(repacker, joined));
  repacker.convolution() = joined.convolution(repacker.convolution());
  Expr& y = repacker.result();
  const Expr whole = y;
  y.domain = {whole.domain[0], joined.channels};
  for (const JoinedAxis& axis : joined.axes) y.domain.push_back(axis.positions);
  if (way == ResultPath::finished)
    finish_pixels(repacker, joined, whole);
  else
    copy_pixels(repacker, joined, whole);
  if (packs_sources) repacker.pack_operand(0);
  return repacker.take();
}

const Rewrite& joined_pixels_rewrite() {
  static const JoinedPixelsRewrite rewrite;
  return rewrite;
}

}  // namespace fusor
