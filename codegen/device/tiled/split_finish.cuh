// Owns the second launch of a split contraction (direct, mma, wgmma, wgmma_narrow, wgmma_taps), a
// programmatic one.
//
//   partials[split][tile][position]      256 threads: kVectors vectors of a tile x kLanes
//
//   lane 0: splits 0, kLanes, ...   lane 1: splits 1, kLanes + 1, ...   --> shared[kLanes][kVectors]
//   lane 0 adds the lanes in order --> Y. Lanes keep the device busy where few results have many parts.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/tiling.cuh"

// Lanes that share the parts of a vector, and vectors of a block.
enum : int { kLanes = Config::lanes, kVectors = kThreads / kLanes };  // of a block
using Vector = Vec<Sum, Config::vector>;

FUSOR_DEVICE Vector sum_of_lane(const Params& p, Index tile, int position, int lane) {
  Vector sums;
#pragma unroll
  for (int i = 0; i < Config::vector; ++i) sums[i] = Sum(0);
  const i64 part = p.tiling.tiles * kTileElements;
  const Sum* partial = p.partials + i64(tile) * kTileElements + position + lane * part;
#pragma unroll 8
  for (i64 split = lane; split < p.splits; split += kLanes, partial += kLanes * part) {
    // An ordinary load: the launch in front may still write while this kernel is resident.
    const Vector of_part = *reinterpret_cast<const Vector*>(partial);
#pragma unroll
    for (int i = 0; i < Config::vector; ++i) sums[i] += of_part[i];
  }
  return sums;
}

// A few blocks work on one tile; threads beyond the result only meet the others.
extern "C" __global__ void __launch_bounds__(kThreads) split_finish(const __grid_constant__ Params p) {
  constexpr int kBlocks = (kTileElements / Config::vector + kVectors - 1) / kVectors;  // of a tile
  const Index block = block_number();
  const Index tile = block / kBlocks;
  if (tile >= Index(p.tiling.tiles)) return;
  const int lane = threadIdx.x / kVectors, column = threadIdx.x % kVectors;
  const int position = (int(block % kBlocks) * kVectors + column) * Config::vector;
  const Place place = p.tiling.place(tile);
  const VectorPlace vector = vector_place(p.problem, place, position);
  const bool exists = position < kTileElements && vector.inside;
  enter_launch();
  Vector sums;
  if (exists) sums = sum_of_lane(p, tile, position, lane);
  if constexpr (kLanes > 1) {
    __shared__ Vector shared[kLanes][kVectors];
    shared[lane][column] = sums;
    __syncthreads();
    if (lane > 0) return;
#pragma unroll
    for (int other = 1; other < kLanes; ++other)
#pragma unroll
      for (int i = 0; i < Config::vector; ++i) sums[i] += shared[other][column][i];
  }
  if (!exists) return;
  Index at[Y::kRank];
  p.problem.result(place.entry, vector.row, vector.column, at);
  Y::apply<Config::vector>(p.y, at, Config::vector, sums);
}
