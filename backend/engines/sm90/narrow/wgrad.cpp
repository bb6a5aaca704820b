// Owns how a wgrad reads the output gradient, and what is launched for it.
#include "backend/engines/sm90/narrow/wgrad.h"

#include <memory>

#include "backend/engines/guards.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/text/wgmma_instruction.h"

namespace fusor::narrow {

std::optional<TensorMap> gradient_planes(const Fusion& fusion) {
  const Expr& site = operand_site(fusion, 0, 0);
  const Node& value = yielded_node(site);
  if (value.kind != Node::Kind::load || byte_size(value.type) != kElementBytes) return std::nullopt;
  const Operand& operand = fusion.operands[static_cast<size_t>(value.access.operand)];
  if (operand.type != value.type) return std::nullopt;
  return planes(value.access, operand, value.type, site.domain);
}

Gradient gradient_of_wgrad(const Fusion& fusion, const Contraction& view) {
  Gradient gradient{.dy = {}, .planes = refuse_copies(fusion, view, false).has_value()};
  if (!gradient.planes) {
    gradient.dy = copied_operand(fusion, view, false, kBlock);
    take_rows(gradient.dy.map, Window(view));
    return gradient;
  }
  const Access& access = yielded_node(operand_site(fusion, 0, 0)).access;
  gradient.dy.operand = access.operand;
  gradient.dy.byte_offset = access.offset * kElementBytes;
  gradient.dy.map = gradient_planes(fusion).value();
  return gradient;
}

Wgrad::Wgrad(const Problem& problem_, const Knobs& knobs)
    : Rows(problem_, knobs), dy(problem_.gradient->dy), dy_planes(problem_.gradient->planes) {
  dy.map.box = {kBlock, dy_planes ? kBlock : tile, 1};
}

Lowered Wgrad::lowered() const {
  Lowered lowered;
  lowered.steps.emplace_back(launch());
  const TiledResult result{view, kBlock, view.n, blocks(), 1, blocks(), true, static_cast<int>(index_bits)};
  const Expr& y = result_site(fusion);
  Launch sum = result.sum_of_parts(fusion, {"Y", y, 1, fits_short_forms(y)}, 1, parts(), device.target());
  spread_evenly(sum, device);
  lowered.steps.emplace_back(std::move(sum));
  lowered.scratch.push_back(partial_bytes());
  lowered.guards = guards_of(fusion, {{x, 2}});
  guard(lowered.guards, {dy.operand, 16});
  return lowered;
}

Launch Wgrad::launch() const {
  KernelSource source{.root = "sm90/narrow/wgrad.cuh",
                      .sites = {site_x()},
                      .config = config(groups(), shared_bytes(groups())),
                      .target = device.target(),
                      .types = {"sm90/narrow/rows.cuh", "sm90/ptx/wgmma.cuh",
                                wgmma_instruction(window.steps() * kStep, type(), type())}};
  source.config.push_back({"gradient_planes", dy_planes});
  Parameters p(index_bits);
  p.tensor_map("dy", dy.map, dy.operand, dy.byte_offset);
  append_strips(p);
  p.wide("width", window.w.output);
  p.wide("channels", view.output_channels);
  p.wide("blocks", blocks());
  p.site("x", source.sites[0], fusion);
  p.scratch("partials", "float", 0);
  Launch launch;
  launch.entry = "wgmma_narrow_wgrad";
  launch.grid[0] = static_cast<uint32_t>(parts() * blocks());
  launch.block[0] = static_cast<uint32_t>((1 + kConsumers) * kWarpgroup);
  launch.shared_bytes = shared_bytes(groups());
  p.move_to(std::move(source), launch);
  return launch;
}

Work Wgrad::work() const {
  const int64_t busy = std::max<int64_t>(parts() * blocks(), device.sm_count);
  Work work = Rows::work(rows_of_sm(parts()) * static_cast<double>(busy));
  const auto tiles = static_cast<double>(work.tiles), pixels = static_cast<double>(tile);
  const double slots = static_cast<double>(window.steps() * kStep);
  const auto taps = static_cast<double>(window.h.window);
  work.tensor_flops = tiles * 2 * static_cast<double>(kBlock) * pixels * slots * taps;
  work.l2_bytes += tiles * static_cast<double>(gradient_bytes());
  // Both operands once for every row of the window.
  const double read = taps * pixels * kElementBytes * (static_cast<double>(kBlock) + slots);
  work.shared_bytes += tiles * (read + static_cast<double>(gradient_bytes()));
  work.launches = 2;
  work.scratch_bytes = partial_bytes();
  // The sum of the parts is too short a launch to reach the memory's pace.
  work.serial_dram_bytes = 4 * static_cast<double>(work.scratch_bytes);
  work.efficiency = 0.85;
  return work;
}

}  // namespace fusor::narrow
