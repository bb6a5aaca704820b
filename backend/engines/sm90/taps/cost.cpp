// Owns what a candidate of the wgmma_taps engine costs.
#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/taps/lowering.h"

namespace fusor::taps {

Work Lowering::work() const {
  // Lines of 128 bytes take the tensor cores as long, whatever is in them; the device's rate is that of 16
  // bits.
  constexpr double kAsHalves = 2;
  const auto slots = static_cast<double>(window.consumers() * window.taps);
  const auto wide = static_cast<double>(filters);
  const double loaded =
      static_cast<double>(tiles() * images()) *
      static_cast<double>(pieces() * window.piece_bytes() + steps() * filters * kStep * kElementBytes);
  Work work;
  work.tensor_flops = kAsHalves * 2 * halves() * kHalf * slots * static_cast<double>(kChannels) * wide;
  work.dram_bytes = dram_bytes(fusion);
  work.l2_bytes = loaded;
  // Every tap reads both operands, one through registers.
  work.shared_bytes =
      loaded + halves() * kHalf * slots * kElementBytes * (static_cast<double>(kChannels) + wide);
  work.tiles = tiles();
  work.split = static_cast<int>(parts);
  work.k_steps = ceil_div(all_steps(), parts);
  work.start_s = 2.5e-6;
  work.launches = 2;
  work.scratch_bytes = partial_bytes();
  work.serial_dram_bytes = 2 * static_cast<double>(work.scratch_bytes);
  work.efficiency = 0.85;
  return work;
}

}  // namespace fusor::taps
