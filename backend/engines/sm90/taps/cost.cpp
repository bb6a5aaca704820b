// Owns what a candidate of the wgmma_taps engine costs.
#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/taps/lowering.h"

namespace fusor::taps {

namespace {

// Halves of steps, of all tiles: those that begin inside the planes.
double halves(const Problem& problem, const Schedule& s) {
  return static_cast<double>(s.tiles * problem.images() * ceil_div(problem.positions, kHalf));
}

// The planes of inputs that one block of channels reads of an image.
int64_t pieces(const Problem& problem) {
  return (problem.steps() * kStep - kEight + problem.window.farthest()) / kPiece + 1;
}

}  // namespace

Work cost(const Problem& problem, const Schedule& s) {
  const Window& window = problem.window;
  const double half_steps = halves(problem, s);
  // Lines of 128 bytes take the tensor cores as long, whatever is in them; the device's rate is that of 16
  // bits.
  constexpr double kAsHalves = 2;
  const auto slots = static_cast<double>(window.consumers() * window.taps);
  const auto wide = static_cast<double>(s.filters);
  const double loaded = static_cast<double>(s.tiles * problem.images()) *
                        static_cast<double>(pieces(problem) * window.piece_bytes() +
                                            problem.steps() * s.filters * kStep * kElementBytes);
  Work work;
  work.tensor_flops = kAsHalves * 2 * half_steps * kHalf * slots * static_cast<double>(kChannels) * wide;
  work.dram_bytes = dram_bytes(problem.fusion);
  work.l2_bytes = loaded;
  // Every tap reads both operands, one through registers.
  work.shared_bytes =
      loaded + half_steps * kHalf * slots * kElementBytes * (static_cast<double>(kChannels) + wide);
  work.tiles = s.tiles;
  work.split = static_cast<int>(s.parts);
  work.k_steps = ceil_div(problem.all_steps(), s.parts);
  work.start_s = 2.5e-6;
  work.launches = 2;
  work.scratch_bytes = s.partial_bytes;
  work.serial_dram_bytes = 2 * static_cast<double>(work.scratch_bytes);
  work.efficiency = 0.85;
  return work;
}

}  // namespace fusor::taps
