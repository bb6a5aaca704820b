// Owns the launches of the wgmma_taps engine and their arguments: the order of the puts is the order of the
// fields in codegen/device/sm90/taps/wgrad.cuh.
#include "backend/engines/sm90/taps/lowering.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/tiled/tiling.h"
#include "core/fast_divisor.h"

namespace fusor::taps {

Lowering::Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_)
    : fusion(fusion_),
      device(device_),
      view(contraction_of(fusion_).value()),
      window(view),
      filters(config.knob("tile_n", tiles_of(view, device_).back())),
      rings(rings_of(window, filters, device_).value()),
      positions(window.h.output * window.w.output),
      parts(std::clamp<int64_t>(config.knob("split", 1), 1, all_steps())) {
  for (const Operand& operand : fusion.operands)
    if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
}

Lowered Lowering::lowered() const {
  Lowered lowered;
  lowered.steps.emplace_back(product());
  lowered.steps.emplace_back(sum_of_parts());
  lowered.scratch.push_back(partial_bytes());
  lowered.guards = guards_of(fusion, {});
  for (Guard& guard : lowered.guards)
    if (guard.operand == dy().operand || guard.operand == x().operand)
      guard.alignment = std::max<int64_t>(guard.alignment, 16);
  return lowered;
}

Launch Lowering::product() const {
  KernelSource source{"sm90/taps/wgrad.cuh",
                      {},
                      {{"index_bits", index_bits},
                       {"type", kTf32},
                       {"tile_n", filters},
                       {"consumers", window.consumers()},
                       {"window_h", window.h.window},
                       {"window_w", window.w.window},
                       {"taps", window.taps},
                       {"tap_step", window.tap_step()},
                       {"masked", window.masked()},
                       {"tail", positions % kHalf != 0 ? 1 : 0},
                       {"mirrored_h", window.h.step < 0 ? 1 : 0},
                       {"mirrored_w", window.w.step < 0 ? 1 : 0},
                       {"piece_line", window.line()},
                       {"stages", rings.stages},
                       {"pieces", rings.pieces},
                       {"shared_bytes", shared_bytes()}},
                      device.target()};
  Launch launch;
  write_arguments(launch.arguments);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  launch.entry = "wgmma_taps";
  launch.grid[0] = static_cast<uint32_t>(tiles() * parts);
  launch.block[0] = static_cast<uint32_t>((1 + window.consumers()) * kWarpgroup);
  launch.shared_bytes = shared_bytes();
  return launch;
}

void Lowering::write_arguments(ArgumentBlock& block) const {
  for (const CopiedOperand& operand : {dy(), x()})
    block.put_tensor_map(operand.map, operand.operand, operand.byte_offset);
  const int bits = static_cast<int>(index_bits);
  FastDivisor::of(steps(), bits).put(block);
  for (const int64_t value :
       {all_steps(), parts, positions, window.w.output, window.w.input, window.origin(), window.farthest()})
    block.put_int(value);
  FastDivisor::of(blocks_n(), bits).put(block);
  FastDivisor::of(blocks_m(), bits).put(block);
  for (const int64_t value : {tiles(), view.input_channels, view.output_channels}) block.put_int(value);
  for (int64_t consumer = 0; consumer < window.consumers(); ++consumer) {
    block.put_int(window.first(consumer));
    block.put_int(window.column(consumer));
  }
  block.put_pointer(Patch::Kind::scratch, 0);
}

Launch Lowering::sum_of_parts() const {
  const TiledResult result{view,       filters, columns(), blocks_m(),
                           blocks_n(), tiles(), false,     static_cast<int>(index_bits)};
  const Expr& y = result_site(fusion);
  const int64_t vector = view.output_channels % 4 == 0 ? 4 : 1;
  return result.sum_of_parts(fusion, {"Y", y, 0, fits_short_forms(y)}, vector, parts, device.target());
}

}  // namespace fusor::taps
