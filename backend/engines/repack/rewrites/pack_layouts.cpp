// Owns which operands are packed, and where the elements of joined groups lie.
#include "backend/engines/repack/rewrites/pack_layouts.h"

#include <algorithm>

#include "backend/engines/repack/rewrites/repacker.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/copy/units.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// --- Joined groups ---

// A filter's site, [output channel][channel of a group][taps].
bool names_first_axis(const Expr& site) {
  return std::ranges::any_of(
      site.nodes, [](const Node& node) { return node.kind == Node::Kind::index && node.axis == 0; });
}

// The site with its output channels taken apart into (joined group, group in it, output channel of it).
Expr split_outputs(const Expr& site, int64_t joined, int64_t outputs) {
  Expr split = site;
  split.domain[0] = outputs;
  split.domain.insert(0, joined);
  split.domain.insert(0, site.domain[0] / (joined * outputs));
  const auto split_access = [&](Access& access) {
    if (access.strides.rank() != site.domain.rank()) return;
    const int64_t stride = access.strides[0];
    access.strides.insert(0, stride * outputs);
    access.strides.insert(0, stride * outputs * joined);
  };
  for (Node& node : split.nodes) {
    split_access(node.access);
    if (node.kind == Node::Kind::index) node.axis += 2;
  }
  for (Store& result : split.stores) split_access(result.access);
  return split;
}

Dims dense_filter(Dims filter, int64_t joined) {
  filter[1] *= joined;
  return filter;
}

// An access to a dense filter becomes one to the elements of split_outputs().
Access on_diagonal(Access access, const Contraction& view, int64_t joined) {
  const int64_t output = access.strides[0], channel = access.strides[1];
  access.strides.insert(0, view.output_channels * output + view.input_channels * channel);
  access.strides.insert(0, joined * view.output_channels * output);
  return access;
}

// The filter of joined groups: those lie on the diagonal of blocks, in zeros.
void join_filter(Repacker& repacker, int64_t joined) {
  const Contraction& view = repacker.view();
  Expr& site = repacker.operand(1);
  const DataType type = repacker.packed_type(1);
  const Dims dense = dense_filter(site.domain, joined);
  const Access scratch = repacker.add_zeros(site, dense, repacker.operand_order(site, 1, type), type);
  repacker.load(split_outputs(site, joined, view.output_channels), type, on_diagonal(scratch, view, joined));
  site = loaded(dense, type, scratch);
}

void finish_joined_filter(Repacker& repacker, int64_t joined) {
  const Contraction& view = repacker.view();
  Expr& y = repacker.result();
  const Expr split = split_outputs(y, joined, view.output_channels);
  y.domain = dense_filter(y.domain, joined);
  const Repacker::Product product = repacker.leave_product(split);
  repacker.finish(split, product, on_diagonal(product.scratch, view, joined));
}

// A gradient of a filter fills its groups up to whole blocks: as many joined ones as ask for the fewest lines
// of L2, in tiles of 192 columns, whose pixels come slower than rows, and that begin on multiples of 16
// bytes.
int64_t cheapest_filled_up(const Contraction& view, int64_t block) {
  constexpr int64_t kUnit = kCopyUnit / 2, kColumnLines = 307, kMostRows = 128;
  const auto lines = [&](int64_t joined) {
    const int64_t rows = round_up(joined * view.output_channels, block),
                  columns = round_up(joined * view.input_channels, block);
    const int64_t of_tile = std::min(rows, kMostRows);
    return view.entries / joined * columns * ceil_div(rows, of_tile) * (of_tile + kColumnLines);
  };
  const auto begins = [&](int64_t joined) {
    return joined * view.input_channels % kUnit == 0 && joined * view.output_channels % kUnit == 0;
  };
  int64_t best = view.entries;
  for (int64_t joined = view.entries - 1; joined > 0; --joined)
    if (view.entries % joined == 0 && begins(joined) && lines(joined) <= lines(best)) best = joined;
  return best;
}

// --- What is packed ---

// Operands that TMA cannot read as they are, and groups that fill no line. wgrad's are planes
// both or neither; 16 bits may be better off with channels side by side.
Packing packing_of(const Fusion& fusion, const Contraction& view) {
  Packing packing{
      {refuse_copies(fusion, view, false).has_value(), refuse_copies(fusion, view, true).has_value()},
      joined_groups(fusion, view, kBoxLine)};
  if (view.op != ContractionOp::wgrad) return packing;
  const Expr& first = operand_site(fusion, 0, 0);
  const bool may_be_last = may_lie_across(yielded_node(first).type);
  const bool one = packing.sites[0] || packing.sites[1];
  if (may_be_last ? plane_walk(fusion, view).has_value() : one) packing.sites = {true, true};
  return packing;
}

class PackedLayouts final : public Rewrite {
 public:
  std::string_view knob() const override { return ""; }
  std::vector<int64_t> values() const override { return {0}; }

  std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view,
                                       int64_t /*value*/) const override {
    const Packing packing = packing_of(fusion, view);
    std::vector<ResultPath> ways = fusor::result_paths(fusion, view, packing.joined);
    // That would be the fusion as it is.
    if (packing.is_empty()) ways.erase(ways.begin());
    return ways;
  }

  Repacked rewritten(const Fusion& fusion, const Contraction& view, int64_t /*value*/,
                     ResultPath out) const override {
    return pack_layouts(fusion, view, packing_of(fusion, view), out);
  }
};

}  // namespace

Repacked pack_layouts(const Fusion& fusion, const Contraction& view, const Packing& packing, ResultPath way) {
  Repacker repacker(fusion, view);
  const bool joins = packing.joined > 1, joins_result = joins && view.op == ContractionOp::wgrad;
  if (packing.sites[0]) repacker.pack_operand(0);
  if (joins && !joins_result)
    join_filter(repacker, packing.joined);
  else if (packing.sites[1])
    repacker.pack_operand(1);
  if (joins_result && way == ResultPath::finished)
    finish_joined_filter(repacker, packing.joined);
  else
    repacker.leave(way);
  return repacker.take();
}

std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view, int64_t joined) {
  if (joined > 1 && view.op == ContractionOp::wgrad) return {ResultPath::finished};
  return result_paths(fusion, view);
}

int64_t joined_groups(const Fusion& fusion, const Contraction& view, int64_t block) {
  if (!view.is_convolution() || view.entries == 1 || view.channels() % block == 0) return 1;
  // All but one of 64 products of a depthwise convolution would be with zeros.
  if (view.input_channels == 1 && view.output_channels == 1) return 1;
  const bool of_result = view.op == ContractionOp::wgrad;
  const Expr& filter = of_result ? result_site(fusion) : operand_site(fusion, 0, 1);
  if (names_first_axis(filter) || (of_result && !can_finish_later(filter))) return 1;
  if (of_result && view.taps() > 1 && may_lie_across(yielded_node(operand_site(fusion, 0, 0)).type))
    return cheapest_filled_up(view, block);
  for (int64_t joined = 2; joined < view.entries; ++joined)
    if (view.entries % joined == 0 && joined * view.channels() % block == 0) return joined;
  return view.entries;
}

const Rewrite& packed_layouts_rewrite() {
  static const PackedLayouts rewrite;
  return rewrite;
}

}  // namespace fusor
