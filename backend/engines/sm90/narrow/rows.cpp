// Owns how strips of rows are cut, what a kernel is told of them, and what loading them costs.
#include "backend/engines/sm90/narrow/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/engines/sm90/copy/units.h"
#include "backend/engines/sm90/narrow/fprop.h"
#include "backend/engines/sm90/narrow/wgrad.h"
#include "codegen/text/expr_emitter.h"
#include "codegen/text/parameters.h"

namespace fusor::narrow {

namespace {

// Channels and pixels are one contiguous axis.
bool is_merged(const Expr& site) {
  const int rank = site.domain.rank();
  if (site.nodes.size() != 1 || site.nodes[0].kind != Node::Kind::load) return false;
  const Strides& strides = site.nodes[0].access.strides;
  return strides[1] == 1 && strides[rank - 1] == site.domain[1] && site.domain[1] > 1;
}

// Over (image, [row,] channels of pixels).
Expr merged(const Expr& site) {
  const int rank = site.domain.rank();
  Dims order{0};
  for (int axis = 2; axis < rank; ++axis) order.push_back(axis);
  Expr out = select_axes(site, order);
  out.domain[rank - 2] *= site.domain[1];
  out.nodes[0].access.strides[rank - 2] = 1;
  return out;
}

}  // namespace

Problem::Problem(const Fusion& fusion_, const DeviceInfo& device_, const Contraction& view_)
    : fusion(fusion_),
      device(device_),
      view(view_),
      window(view),
      x(operand_site(fusion_, 0, view.op == ContractionOp::fprop ? 0 : 1)) {
  x_merged = is_merged(x);
  if (x_merged) x = merged(x);
  mark_whole_vectors(fusion, x, pixel_axis(x), 2);
  const Node& value = yielded_node(x);
  const bool whole_pairs = x.domain[pixel_axis(x)] % 2 == 0;
  x_plain = whole_pairs && value.kind == Node::Kind::load && value.access.whole_vectors &&
            fusion.operands[static_cast<size_t>(value.access.operand)].type == value.type;
  for (const Operand& operand : fusion.operands)
    if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
  if (view.op == ContractionOp::fprop)
    result = result_of_fprop(fusion, view);
  else
    gradient = gradient_of_wgrad(fusion, view);
}

Rows::Rows(const Problem& problem_, const Knobs& knobs)
    : problem(problem_),
      fusion(problem_.fusion),
      device(problem_.device),
      view(problem_.view),
      window(problem_.window),
      x(problem_.x),
      x_merged(problem_.x_merged),
      x_plain(problem_.x_plain),
      index_bits(problem_.index_bits),
      tile(knobs.tile_n),
      rows(std::clamp<int64_t>(knobs.rows.value_or(window.h.output), 1, window.h.output)) {}

std::vector<ConfigValue> Rows::config(int64_t groups, int64_t shared_bytes) const {
  std::vector<ConfigValue> values{{"index_bits", index_bits},
                                  {"ElementA", type()},
                                  {"tile_n", tile},
                                  {"stages", groups},
                                  {"shared_bytes", shared_bytes},
                                  {"window_h", window.h.window},
                                  {"window_w", window.w.window},
                                  {"stride_h", window.h.stride},
                                  {"stride_w", window.w.stride},
                                  {"dilation_h", window.dilation()},
                                  {"tails", window.tails},
                                  {"channels", view.input_channels},
                                  {"mirrored", window.mirrored()},
                                  {"merged", x_merged},
                                  {"plain", x_plain}};
  view.append_config(values);
  return values;
}

void Rows::append_strips(Parameters& p) const {
  p.group("strips", "Strips", [&] {
    p.divisor("along_h", along_h());
    p.divisor("along_w", along_w());
    p.wide("rows", rows);
    p.wide("count", strips());
    p.wide("height", window.h.output);
    p.wide("input_height", window.h.input);
    p.wide("input_width", window.w.input);
    p.wide("lower_h", lower(window.h));
    p.wide("lower_w", lower(window.w));
  });
}

double Rows::rows_of_sm(int64_t slots) const {
  const auto rounds = static_cast<double>(ceil_div(strips(), slots));
  return rounds * (static_cast<double>(rows) + 0.5);
}

Work Rows::work(double tiles) const {
  Work work;
  work.tiles = static_cast<int64_t>(std::ceil(tiles));
  work.dram_bytes = dram_bytes(fusion);
  const auto groups = static_cast<double>(strips() * (rows + window.span()) * blocks_that_load());
  const auto loaded = static_cast<double>(window.h.stride * window.pixels(tile) * view.input_channels);
  const SiteCost cost = cost_of(x, fusion);
  work.l2_bytes = groups * loaded * cost.bytes;
  work.fp32_flops = 2 * groups * loaded * (4 + cost.instructions);
  work.special = groups * loaded * cost.special;
  work.shared_bytes = 6 * groups * static_cast<double>(window.group_bytes(tile));
  work.k_steps = window.h.window;
  work.start_s = 5e-6;
  return work;
}

void take_rows(TensorMap& map, const Window& window) {
  const int64_t line = map.stride_bytes[0], columns = window.w.output;
  map.dims = {map.dims[0], columns, map.dims[1] / columns};
  map.stride_bytes = {line, line * columns};
}

std::optional<TensorMap> planes(const Access& access, const Operand& operand, DataType type,
                                const Dims& domain) {
  const int last = domain.rank() - 1;
  const Strides& strides = access.strides;
  const int64_t bytes = byte_size(type), columns = domain[last], row = last == 3 ? strides[2] : columns;
  const auto is_line = [&](int64_t elements) { return is_line_stride(elements, bytes); };
  if (strides[last] != 1 || !is_line(columns) || !is_line(strides[1]) || !is_line(row)) return std::nullopt;
  if (domain[0] != 1 && strides[0] != strides[1] * domain[1]) return std::nullopt;
  if (operand.alignment % kUnitBytes != 0 || access.offset * bytes % kUnitBytes != 0) return std::nullopt;
  TensorMap map;
  map.type = type;
  map.dims = {columns, domain[0] * domain[1], last == 3 ? domain[2] : 1};
  map.stride_bytes = {strides[1] * bytes, row * bytes};
  return map;
}

}  // namespace fusor::narrow
