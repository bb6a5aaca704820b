// Owns the store of one part of a split of k of the tensor-core contraction of sm_90a: the sums go to the
// workspace as they are, for tiled/split_finish.cuh.
#pragma once

#include "codegen/device/sm90/epilogue/pieces.cuh"

// [part][tile][row][column]; the kernel that adds the parts up counts tiles along n first. It reads only rows
// and columns that exist, so no others are stored: a tile of few channels is mostly such.
FUSOR_DEVICE void store_parts(Sum* partials, const Problem& problem, const Schedule& schedule,
                              const Tile& tile, int row, int warp, const AllSums& sums) {
  const int tiles_m = static_cast<int>(schedule.order.rows) * kClusterM,
            tiles_n = static_cast<int>(schedule.order.columns) * kClusterN;
  const int tile_m = row / kTileM, tile_n = tile.column / kTileN;
  const i64 number = kSwapped ? (i64(tile.entry) * tiles_n + tile_n) * tiles_m + tile_m
                              : (i64(tile.entry) * tiles_m + tile_m) * tiles_n + tile_n;
  const i64 tiles = schedule.order.entries * tiles_m * tiles_n;
  const int lane = threadIdx.x % 32, column = lane % 4 * 2;
  Sum* const to =
      partials + (tile.part * tiles + number) * (kTileM * kTileN) + row % kTileM * kTileN + column;
  const int rows = static_cast<int>(kSwapped ? problem.n : schedule.rows(problem)) - row,
            columns = static_cast<int>(kSwapped ? schedule.rows(problem) : problem.n) - tile.column - column;
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Sum(&mine)[kSums] = sums[part];
        const Vec<Sum, 2> pair{{mine[4 * j + 2 * half], mine[4 * j + 2 * half + 1]}};
        const int line = 64 * part + row_in_part(warp, lane, half);
        if (line < rows && 8 * j < columns)
          *reinterpret_cast<Vec<Sum, 2>*>(to + line * kTileN + 8 * j) = pair;
      }
}

// As a kernel's finisher.
template <class Grid>
struct PartStore {
  Sum* partials;
  const Problem& problem;
  const Grid& schedule;
  int warp;  // in the warpgroup

  struct Nothing {};
  __device__ Nothing loads_ahead(const Tile&, int) const { return {}; }
  template <class Sums>
  __device__ void finish(const Tile& tile, int row, const Sums& sums, Nothing) const {
    store_parts(partials, problem, schedule, tile, row, warp, sums);
  }
};
