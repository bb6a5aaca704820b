// Owns what a candidate of the grouped engine costs.
#include <algorithm>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/depthwise/octets.h"
#include "backend/engines/grouped/lowering.h"

namespace fusor::grouped {

namespace {

constexpr double kSharedShare = 0.9, kIssueShare = 0.7, kDramShare = 0.85;
constexpr double kMultiplyAdds = 16 * 8 * 16;
// Seconds until the first tile and the filters are there; and until one more is where none is on its way.
constexpr double kStart = 2.5e-6, kLatency = 1.2e-6;
// Instructions of a thread: for one copy; for a vector of filters; for a share of a tile, and for 16 pixels
// of it; for a vector of results.
constexpr double kCopyInstructions = 18, kFilterInstructions = 40, kItemInstructions = 60,
                 kPixelInstructions = 20, kResultInstructions = 45;
// Bytes that L1 and L2 move at once, and bytes of a chunk; threads of a warp.
constexpr double kSector = 32, kChunkBytes = 16, kWarp = 32;

// How many times these limits a kernel takes: 20 layers of RegNet and ResNeXt on an H200 (2026-12) took 1.32
// to 1.45 times; 1.45 to 1.62 where windows are a stride apart or a group has 8 channels. Gradients of a
// stride took 1.85 times, but other engines take more than is expected of them as well: they count as the
// others.
double share_of_limits(const Problem& problem) {
  const bool has_stride = std::ranges::any_of(problem.axes, [](const SlidingAxis& axis) {
    return axis.strided_gradient || Problem::stride(axis) > 1;
  });
  return has_stride || problem.in == 1 ? 1.55 : 1.36;
}

}  // namespace

Work Schedule::work() const {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const auto block_tiles = number(blocks() * tiles_per_block);
  const double steps = number(problem.lines()) * (number(problem.line_chunks()) / 2);
  const double issued_steps = number(problem.lines() * ceil_div(problem.line_chunks(), 2));
  // Warps that have nothing to do in the last round wait for the others.
  const double items = number(rounds() * knobs.warps);
  const double blocks_of_sums = number(knobs.tiles * problem.out);
  const double conflicts = shares_banks ? 1.4 : 1;
  const double chunks = number(images * lines_in * columns_in * knobs.groups * problem.in);
  const double filters = number(knobs.groups * problem.lines() * problem.line_chunks() * problem.out * 8);
  const double vectors = number(pixels() * knobs.groups * problem.out);
  const double run = number(knobs.groups * problem.in) * kChunkBytes;
  const double sectors = number(knobs.groups * problem.in % 2 == 0) == 1 ? 1 : (run + kSector / 2) / run;
  const SiteCost result = cost_of(problem.y, problem.fusion);

  const double multiplied = issued_steps * (2 * number(knobs.tiles) + number(problem.out) + blocks_of_sums) +
                            kItemInstructions + kPixelInstructions * number(knobs.tiles);
  const double issued = items * kWarp * multiplied + chunks * kCopyInstructions +
                        vectors * (kResultInstructions + 8 * result.instructions);
  const double read =
      items * issued_steps *
      (number(knobs.tiles) * 32 * kChunkBytes * conflicts + number(problem.out) * 16 * kChunkBytes);
  Work work;
  work.tensor_flops = block_tiles * items * steps * blocks_of_sums * 2 * kMultiplyAdds /
                      depthwise::share_of_mma(problem.device);
  work.fp32_flops =
      2 * (block_tiles * issued + number(blocks()) * filters * kFilterInstructions) / kIssueShare;
  work.special = block_tiles * vectors * 8 * result.special;
  work.shared_bytes = (block_tiles * (read + chunks * kChunkBytes + vectors * 64) +
                       number(blocks()) * filters * kChunkBytes) /
                      kSharedShare;
  work.l2_bytes = block_tiles * (chunks * kChunkBytes * sectors + vectors * 8 * result.bytes * sectors) +
                  number(blocks()) * filters * kChunkBytes;
  work.dram_bytes = problem.dram_bytes / kDramShare * share_of_limits(problem);
  work.tiles = blocks();
  work.tiles_per_sm = static_cast<int>(std::max<int64_t>(1, blocks_per_sm));
  work.start_s = kStart;
  const int64_t resident = std::min(blocks_per_sm, ceil_div(blocks(), int64_t{problem.device.sm_count}));
  // Other blocks of the SM multiply while one waits for its next tile.
  if (knobs.stages == 1)
    work.start_s += kLatency * number(tiles_per_block - 1) / number(std::max<int64_t>(1, resident));
  const double warps = number(std::max<int64_t>(1, resident) * knobs.warps);
  work.efficiency = warps / (warps + 4) / share_of_limits(problem);
  return work;
}

}  // namespace fusor::grouped
