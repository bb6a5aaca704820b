// Owns the kernel that lists the tiles of a matmul whose rows belong to experts: one block, a thread for each
// expert, then for each tile.
//
//   first rows --> sorted, unless they ascend --> tiles in front of each expert --> a line for each tile
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/wgmma/experts.cuh"

struct F;  // the number of an expert's first row

enum : int { kRank = F::kRank, kMost = 1024 };

struct Shared {
  i64 given[kMost];      // first rows
  int first[kMost + 2];  // ascending, behind 0; then the number of rows
  int tiles[kMost + 2];  // in front of what begins with first[i]
  int of_warp[32];
};

FUSOR_DEVICE int bounded(i64 row, i64 rows) { return int(row < 0 ? 0 : row > rows ? rows : row); }

// The inclusive prefix sum of the threads' numbers over the block.
FUSOR_DEVICE int sum_up_to(int mine, Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int far = 1; far < 32; far *= 2) {
    const int before = __shfl_up_sync(0xffffffff, mine, far);
    if (lane >= far) mine += before;
  }
  if (lane == 31) shared.of_warp[warp] = mine;
  __syncthreads();
  for (int i = 0; i < warp; ++i) mine += shared.of_warp[i];
  return mine;
}

extern "C" __global__ void __launch_bounds__(1024) wgmma_expert_tiles(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  enter_launch(p);
  const int mine = static_cast<int>(threadIdx.x), experts = static_cast<int>(p.experts);
  i64 row = 0;
  if (mine < experts) {
    Index at[kRank] = {};
    coordinates<0, kRank>(Index(mine), p.extents, at);
    row = F::template apply<1>(p.f, at, 1)[0];
    shared.given[mine] = row;
  }
  __syncthreads();
  const bool ascends = mine + 1 >= experts || row <= shared.given[mine + 1];
  int place = mine;
  if (!__syncthreads_and(ascends)) {
    place = 0;
    for (int other = 0; other < experts; ++other)
      place += shared.given[other] < row || (shared.given[other] == row && other < mine);
  }
  if (mine < experts) shared.first[place + 1] = bounded(row, p.rows);
  if (mine == 0) {
    shared.first[0] = 0;
    shared.first[experts + 1] = int(p.rows);
    shared.tiles[0] = 0;
  }
  __syncthreads();
  // Entry 0 are the rows in front of the first expert.
  const int tile = int(p.tile);
  const auto tiles_of = [&](int i) {
    return i <= experts ? (shared.first[i + 1] - shared.first[i] + tile - 1) / tile : 0;
  };
  const int in_front = tiles_of(0), all = in_front + sum_up_to(tiles_of(mine + 1), shared);
  if (mine < experts) shared.tiles[mine + 2] = all;
  if (mine == 0) shared.tiles[1] = in_front;
  __syncthreads();
  const int count = shared.tiles[experts + 1];
  if (mine == 0) p.tiles[0] = {count, 0, 0, 0};
  for (int number = mine; number < count; number += static_cast<int>(blockDim.x)) {
    // The last entry that begins at or before this tile has it, of those with any.
    int low = 0, high = experts;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (shared.tiles[middle] <= number)
        low = middle;
      else
        high = middle - 1;
    }
    const int first = shared.first[low] + (number - shared.tiles[low]) * tile;
    p.tiles[1 + number] = {first, shared.first[low + 1], low - 1, 0};
  }
  leave_launch(p);
}
