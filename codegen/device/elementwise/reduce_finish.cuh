// Owns the second launch of a reduction that was split over blocks: no atomics, the same bits every time.
//
//   partials[result][split] or [split][result]         256 threads, kFinishGroup of them a result
//
//   result   lane 0: splits 0, g, 2 g ... | lane 1: splits 1, g + 1 ... | ...         (g = kFinishGroup)
//            +----------------------- combine_group --------------------+ --> lane 0: Y::finish
#pragma once

#include "fusor_generated.cuh"

// Combines the accumulators of kGroup neighbouring threads, a power of two up to the block. Every thread
// calls it; afterwards the first thread of the group has the total.
template <int kGroup, int kThreads, class Accumulator>
FUSOR_DEVICE void combine_group(Accumulator& total) {
  constexpr int kWarps = kGroup / 32;
  combine_lanes<(kGroup < 32 ? kGroup : 32)>(total);
  if constexpr (kWarps > 1) {
    __shared__ Accumulator of_warp[kThreads / 32];
    const int lane = threadIdx.x % kGroup;
    if (lane % 32 == 0) of_warp[threadIdx.x / 32] = total;
    __syncthreads();
    if (lane < 32) {
      total.init();
      if (lane < kWarps) total = of_warp[threadIdx.x / 32 + lane];
      combine_lanes<kWarps>(total);
    }
  }
}

#if FUSOR_SPLIT
constexpr int kFinishThreads = 256;
constexpr int kFinishGroup = FUSOR_FINISH_GROUP;  // threads per result

struct FinishParams {
  alignas(8) const Y::Accumulator* partials;
  alignas(8) Index results;
  alignas(8) Index splits;
  alignas(8) Index result_step;   // accumulators between the partial results of neighbouring results
  alignas(8) Index split_step;    // and of neighbouring splits
  FastDivisor extents[Y::kRank];  // kept axes first, in elements
  Y::Args y;
};

extern "C" __global__ void __launch_bounds__(kFinishThreads)
    reduce_finish(const __grid_constant__ FinishParams p) {
  const int lane = threadIdx.x % kFinishGroup;
  const Index result =
      static_cast<Index>(blockIdx.x) * (kFinishThreads / kFinishGroup) + threadIdx.x / kFinishGroup;
  Y::Accumulator total;
  total.init();
  if (result < p.results) {
#pragma unroll 4
    for (Index split = lane; split < p.splits; split += kFinishGroup)
      total.combine(p.partials[result * p.result_step + split * p.split_step]);
  }
  combine_group<kFinishGroup, kFinishThreads>(total);
  if (lane == 0 && result < p.results) {
    Index at[Y::kRank];
    coordinates<0, FUSOR_KEPT>(result, p.extents, at);
    Y::finish(p.y, at, total);
  }
}
#endif
