// Owns the end of a tile of sm_90a's contraction whose steps the blocks of a cluster share: each leaves the
// sums of its part in its shared memory, and all finish a share of the tile.
//
//   block 0: sums --> shared memory --+   all meet   block r: every kGathered-th round of vectors
//   block 1: sums --> shared memory --+------------> sums of block 0 + 1 + ... --> Y --> memory
//   ...                               |
#pragma once

#include "codegen/device/sm90/epilogue/pieces.cuh"
#include "codegen/device/tiled/gather.cuh"

template <class Epilogue>
struct GatheredTile {
  // Lines run along whichever axis the result is adjacent in. The pitch spreads the writes of a warp over all
  // banks, and aligns every vector.
  enum : int {
    kFast = kAlongColumns ? kTileN : kTileM,
    kSlow = kAlongColumns ? kTileM : kTileN,
    kPitch = kFast + (kAlongColumns ? 8 : 4),
    kBytes = kSlow * kPitch * static_cast<int>(sizeof(Sum)),
    kWidth = Config::vector,
  };
  static_assert(kGathered == 1 || (kSiblings == 1 && kFast % kWidth == 0));

  /// Leaves a consumer's parts, the first of which begins at line `row` of the tile.
  FUSOR_DEVICE void put(Sum* staged, int row, int warp, const AllSums& sums) {
    const int lane = threadIdx.x % 32, column = lane % 4 * 2;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int line = row + 64 * part + row_in_part(warp, lane, half);
#pragma unroll
        for (int j = 0; j < kTileN / 8; ++j) {
          const Sum low = sums[part][4 * j + 2 * half], high = sums[part][4 * j + 2 * half + 1];
          if constexpr (kAlongColumns) {
            *reinterpret_cast<Vec<Sum, 2>*>(staged + line * kPitch + 8 * j + column) = {{low, high}};
          } else {
            staged[(8 * j + column) * kPitch + line] = low;
            staged[(8 * j + column + 1) * kPitch + line] = high;
          }
        }
      }
  }

  /// Finishes this block's share of the vectors; `thread` of all consumers.
  FUSOR_DEVICE void finish(const Problem& problem, const Tile& tile, const typename Epilogue::Args& args,
                           const Sum* staged, int thread) {
    constexpr int kThreads = kConsumers * kWarpgroup, kVectors = kSlow * kFast / kWidth;
#pragma unroll 1
    for (int i = static_cast<int>(cluster_rank()) * kThreads + thread; i < kVectors;
         i += kGathered * kThreads) {
      const int fast = i * kWidth % kFast, slow = i * kWidth / kFast;
      const Index row = tile.row + (kAlongColumns ? slow : fast),
                  column = tile.column + (kAlongColumns ? fast : slow);
      const Key m = problem.row(kSwapped ? column : row), n = problem.column(kSwapped ? row : column);
      if (m.lead < 0 || n.lead < 0) continue;
      const Vec<Sum, kWidth> sums = sum_of_blocks<kWidth, kGathered>(staged + slow * kPitch + fast);
      Index at[Epilogue::kRank];
      problem.result(tile.entry, m, n, at);
      Epilogue::template apply<kWidth>(args, at, kWidth, sums);
    }
  }
};
