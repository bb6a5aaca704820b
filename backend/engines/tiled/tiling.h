// Owns the host's side of codegen/device/tiled/tiling.cuh: the result of a contraction in tiles, as the
// engines' kernels count them, the launch that adds up the parts of a split, and what the driver keeps of
// shared memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/device_info.h"
#include "core/lowered.h"

namespace fusor {

class Parameters;

/// Bytes that the driver keeps of each block's shared memory.
inline constexpr int64_t kReservedBytes = 1024;

/// The result of `view`, cut into tiles; those along n are neighbours.
struct TiledResult {
  const Contraction& view;
  int64_t tile_m, tile_n;
  int64_t along_m, along_n;  ///< tiles of one batch entry along each axis
  int64_t tiles;             ///< of all entries
  bool lines_along_n;        ///< a tile's neighbours in memory; else they run along m
  int index_bits;

  /// The values that tiled/tiling.cuh reads of the config, and its Problem and its Tiling.
  std::vector<ConfigValue> config() const;
  void append_to(Parameters& p) const;

  /// tiled/split_finish.cuh: adds up what `parts` blocks a tile left in scratch 0 and applies the epilogue.
  Launch sum_of_parts(const Fusion& fusion, const KernelSite& epilogue, int64_t vector, int64_t parts,
                      std::string target) const;
};

/// Blocks of the launch that adds up the parts of so many tiles, with `lanes` threads for every vector.
int64_t blocks_of_sum(int64_t tiles, int64_t tile_elements, int64_t vector, int64_t lanes = 1);

/// For a launch behind one that fills the shared memory of every SM: its blocks would crowd on the SMs that
/// are left first. So much shared memory is asked for that no SM takes more than its share of them.
void spread_evenly(Launch& launch, const DeviceInfo& device);

/// A grid of that many blocks or a few more, which return at once: its first axis is limited to 2^31 - 1.
void set_grid(Launch& launch, int64_t blocks, int64_t threads);

}  // namespace fusor
