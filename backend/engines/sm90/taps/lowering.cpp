// Owns the launches of the wgmma_taps engine and their arguments: the order of the puts is the order of the
// fields in codegen/device/sm90/taps/wgrad.cuh.
#include "backend/engines/sm90/taps/lowering.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/tiled/tiling.h"
#include "core/fast_divisor.h"

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

void write_arguments(ArgumentBlock& block, const Problem& problem, const Schedule& s,
                     const CopiedOperands& operands) {
  for (const CopiedOperand& operand : {operands.dy, operands.x})
    block.put_tensor_map(operand.map, operand.operand, operand.byte_offset);
  const Window& window = problem.window;
  const int bits = static_cast<int>(problem.index_bits);
  FastDivisor::of(problem.steps(), bits).put(block);
  for (const int64_t value : {problem.all_steps(), s.parts, problem.positions, window.w.output,
                              window.w.input, window.origin(), window.farthest()})
    block.put_int(value);
  FastDivisor::of(problem.blocks_n(), bits).put(block);
  FastDivisor::of(s.blocks_m, bits).put(block);
  for (const int64_t value : {s.tiles, problem.view.input_channels, problem.view.output_channels})
    block.put_int(value);
  for (int64_t consumer = 0; consumer < window.consumers(); ++consumer) {
    block.put_int(window.first(consumer));
    block.put_int(window.column(consumer));
  }
  block.put_pointer(Patch::Kind::scratch, 0);
}

Launch product(const Problem& problem, const Schedule& s, const CopiedOperands& operands) {
  const Window& window = problem.window;
  KernelSource source{"sm90/taps/wgrad.cuh",
                      {},
                      {{"index_bits", problem.index_bits},
                       {"type", kTf32},
                       {"tile_n", s.filters},
                       {"consumers", window.consumers()},
                       {"window_h", window.h.window},
                       {"window_w", window.w.window},
                       {"taps", window.taps},
                       {"tap_step", window.tap_step()},
                       {"masked", window.masked()},
                       {"tail", problem.positions % kHalf != 0 ? 1 : 0},
                       {"mirrored_h", window.h.step < 0 ? 1 : 0},
                       {"mirrored_w", window.w.step < 0 ? 1 : 0},
                       {"piece_line", window.line()},
                       {"stages", s.rings.stages},
                       {"pieces", s.rings.pieces},
                       {"shared_bytes", s.shared_bytes}},
                      problem.device.target()};
  Launch launch;
  write_arguments(launch.arguments, problem, s, operands);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  launch.entry = "wgmma_taps";
  launch.grid[0] = static_cast<uint32_t>(s.tiles * s.parts);
  launch.block[0] = static_cast<uint32_t>((1 + window.consumers()) * kWarpgroup);
  launch.shared_bytes = s.shared_bytes;
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
  return result.sum_of_parts(problem.fusion, {"Y", y, 0, fits_short_forms(y)}, vector, s.parts,
                             problem.device.target());
}

}  // namespace

Lowered lower(const Problem& problem, const Schedule& schedule) {
  const CopiedOperands operands = operands_of(problem, schedule);
  Lowered lowered;
  lowered.steps.emplace_back(product(problem, schedule, operands));
  lowered.steps.emplace_back(sum_of_parts(problem, schedule));
  lowered.scratch.push_back(schedule.partial_bytes);
  lowered.guards = guards_of(problem.fusion, {});
  for (Guard& guard : lowered.guards)
    if (guard.operand == operands.dy.operand || guard.operand == operands.x.operand)
      guard.alignment = std::max<int64_t>(guard.alignment, 16);
  return lowered;
}

}  // namespace fusor::taps
