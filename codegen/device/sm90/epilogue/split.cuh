// Owns the store of one part of a split of k of the tensor-core contraction of sm_90a: the sums go to the
// workspace as they are, for tiled/split_finish.cuh.
#pragma once

#include "codegen/device/sm90/epilogue/pieces.cuh"

// [part][tile][row][column]; the kernel that adds the parts up counts tiles along n first.
FUSOR_DEVICE void store_parts(Sum* partials, const Schedule& schedule, const Tile& tile, int row, int warp,
                              const AllSums& sums) {
  const int tiles_m = static_cast<int>(schedule.order.rows) * kCluster,
            tiles_n = static_cast<int>(schedule.order.columns);
  const int tile_m = row / kTileM, tile_n = tile.column / kTileN;
  const i64 number = kSwapped ? (i64(tile.entry) * tiles_n + tile_n) * tiles_m + tile_m
                              : (i64(tile.entry) * tiles_m + tile_m) * tiles_n + tile_n;
  const i64 tiles = schedule.order.entries * tiles_m * tiles_n;
  const int lane = threadIdx.x % 32;
  Sum* const to =
      partials + (tile.part * tiles + number) * (kTileM * kTileN) + row % kTileM * kTileN + lane % 4 * 2;
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Sum(&mine)[kSums] = sums[part];
        const Vec<Sum, 2> pair{{mine[4 * j + 2 * half], mine[4 * j + 2 * half + 1]}};
        *reinterpret_cast<Vec<Sum, 2>*>(to + (64 * part + row_in_part(warp, lane, half)) * kTileN + 8 * j) =
            pair;
      }
}

// As a kernel's finisher.
template <class Grid>
struct PartStore {
  Sum* partials;
  const Grid& schedule;
  int warp;  // in the warpgroup

  template <class Sums>
  __device__ void finish(const Tile& tile, int row, const Sums& sums) const {
    store_parts(partials, schedule, tile, row, warp, sums);
  }
};
