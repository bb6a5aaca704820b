// Owns the launches of the wgmma_taps engine and their arguments: the order of the puts is the order of the
// fields in codegen/device/sm90/taps/wgrad.cuh.
#include "backend/engines/sm90/taps/lowering.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/guards.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/text/parameters.h"
#include "codegen/text/wgmma_instruction.h"

namespace fusor::taps {

Problem::Problem(const Fusion& fusion_, const DeviceInfo& device_, const Contraction& view_)
    : fusion(fusion_),
      device(device_),
      view(view_),
      window(view),
      tiles(tiles_of(view, device_)),
      positions(window.h.output * window.w.output) {
  for (const Operand& operand : fusion.operands)
    if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
}

Schedule::Schedule(const Problem& problem, const Knobs& knobs)
    : filters(knobs.tile_n.value_or(problem.tiles.back())),
      parts(std::clamp<int64_t>(knobs.split, 1, problem.all_steps())),
      rings(rings_of(problem.window, filters, problem.device).value()),
      blocks_m(ceil_div(problem.view.output_channels, filters)),
      tiles(problem.view.entries * blocks_m * problem.blocks_n()),
      shared_bytes(taps::shared_bytes(problem.window, filters, rings)),
      partial_bytes(parts * tiles * filters * problem.columns() * kElementBytes) {}

namespace {

struct CopiedOperands {
  CopiedOperand dy, x;
};

CopiedOperands operands_of(const Problem& problem, const Schedule& s) {
  return {whole_planes(problem.fusion, false, kStep, s.filters),
          whole_planes(problem.fusion, true, problem.window.line(), kChannels)};
}

Parameters parameters_of(const Problem& problem, const Schedule& s, const CopiedOperands& operands) {
  const Window& window = problem.window;
  Parameters p(problem.index_bits);
  p.tensor_map("dy", operands.dy.map, operands.dy.operand, operands.dy.byte_offset);
  p.tensor_map("x", operands.x.map, operands.x.operand, operands.x.byte_offset);
  p.group("walk", "TapWalk<Index, i64, FastDivisor>", [&] {
    p.divisor("steps", problem.steps());
    p.wide("all_steps", problem.all_steps());
    p.wide("parts", s.parts);
    p.wide("positions", problem.positions);
    p.wide("row", window.w.output);
    p.wide("width", window.w.input);
    p.wide("origin", window.origin());
    p.wide("farthest", window.farthest());
  });
  p.divisor("blocks_n", problem.blocks_n());
  p.divisor("blocks_m", s.blocks_m);
  p.wide("tiles", s.tiles);
  p.wide("input_channels", problem.view.input_channels);
  p.wide("filters", problem.view.output_channels);
  p.array("consumers", "ConsumerTaps<i64>", window.consumers(), [&](size_t i) {
    p.wide("first", window.first(static_cast<int64_t>(i)));
    p.wide("column", window.column(static_cast<int64_t>(i)));
  });
  p.scratch("partials", "float", 0);
  return p;
}

Launch product(const Problem& problem, const Schedule& s, const CopiedOperands& operands) {
  const Window& window = problem.window;
  KernelSource source{.root = "sm90/taps/wgrad.cuh",
                      .config = {{"index_bits", problem.index_bits},
                                 {"tile_n", s.filters},
                                 {"consumers", window.consumers()},
                                 {"window_h", window.h.window},
                                 {"window_w", window.w.window},
                                 {"taps", window.taps},
                                 {"tap_step", window.tap_step()},
                                 {"masked", window.masked()},
                                 {"tail", problem.positions % kHalf != 0},
                                 {"mirrored_h", window.h.step < 0},
                                 {"mirrored_w", window.w.step < 0},
                                 {"piece_line", window.line()},
                                 {"stages", s.rings.stages},
                                 {"pieces", s.rings.pieces},
                                 {"shared_bytes", s.shared_bytes}},
                      .target = problem.device.target(),
                      .types = {"sm90/ptx/tma.cuh", "sm90/taps/tap_walk.cuh", "sm90/ptx/wgmma.cuh",
                                wgmma_instruction(s.filters, DataType::f32, DataType::f32)}};
  Launch launch;
  launch.entry = "wgmma_taps";
  launch.grid[0] = static_cast<uint32_t>(s.tiles * s.parts);
  launch.block[0] = static_cast<uint32_t>((1 + window.consumers()) * kWarpgroup);
  launch.shared_bytes = s.shared_bytes;
  parameters_of(problem, s, operands).move_to(std::move(source), launch);
  return launch;
}

// Neighbouring filters lie side by side in scratch.
Launch sum_of_parts(const Problem& problem, const Schedule& s) {
  const Contraction& view = problem.view;
  const TiledResult result{view,
                           s.filters,
                           problem.columns(),
                           s.blocks_m,
                           problem.blocks_n(),
                           s.tiles,
                           false,
                           static_cast<int>(problem.index_bits)};
  const Expr& y = result_site(problem.fusion);
  const int64_t vector = view.output_channels % 4 == 0 ? 4 : 1;
  Launch launch = result.sum_of_parts(problem.fusion, {"Y", y, 0, fits_short_forms(y)}, vector, s.parts,
                                      problem.device.target());
  spread_evenly(launch, problem.device);
  return launch;
}

}  // namespace

Lowered lower(const Problem& problem, const Schedule& schedule) {
  const CopiedOperands operands = operands_of(problem, schedule);
  Lowered lowered;
  lowered.steps.emplace_back(product(problem, schedule, operands));
  lowered.steps.emplace_back(sum_of_parts(problem, schedule));
  lowered.scratch.push_back(schedule.partial_bytes);
  lowered.guards = guards_of(problem.fusion, {});
  for (const int operand : {operands.dy.operand, operands.x.operand}) guard(lowered.guards, {operand, 16});
  return lowered;
}

}  // namespace fusor::taps
