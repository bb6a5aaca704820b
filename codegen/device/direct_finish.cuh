// Owns the second kernel of a split contraction (engines direct, mma and wgmma): adds the partial sums of a
// tile in a fixed order and applies the epilogue.
#include "fusor_generated.cuh"

#include "codegen/device/contraction_tiling.cuh"

struct Params {
  Problem problem;
  Tiling tiling;
  i64 splits;
  const Sum* partials;  // [split][tile][position]
  Y::Args y;
};

// One vector a thread; a few blocks work on one tile.
extern "C" __global__ void __launch_bounds__(kThreads) direct_finish(const __grid_constant__ Params p) {
  constexpr int kBlocks = (kTileElements / FUSOR_VECTOR + kThreads - 1) / kThreads;  // of a tile
  const Index block = block_number();
  const Index tile = block / kBlocks;
  if (tile >= Index(p.tiling.tiles)) return;
  const int position = (int(block % kBlocks) * kThreads + int(threadIdx.x)) * FUSOR_VECTOR;
  const Place place = p.tiling.place(tile);
  const VectorPlace vector = vector_place(p.problem, place, position);
  if (position >= kTileElements || !vector.inside) return;
  Vec<Sum, FUSOR_VECTOR> sums;
#pragma unroll
  for (int i = 0; i < FUSOR_VECTOR; ++i) sums[i] = Sum(0);
  const Sum* partial = p.partials + i64(tile) * kTileElements + position;
#pragma unroll 4
  for (i64 split = 0; split < p.splits; ++split, partial += p.tiling.tiles * kTileElements)
#pragma unroll
    for (int i = 0; i < FUSOR_VECTOR; ++i) sums[i] += partial[i];
  Index at[Y::kRank];
  p.problem.result(place.entry, vector.row, vector.column, at);
  Y::apply<FUSOR_VECTOR>(p.y, at, FUSOR_VECTOR, sums);
}
