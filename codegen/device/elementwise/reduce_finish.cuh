// Owns the second launch of a reduction that was split over blocks: no atomics, the same bits every time.
//
//   partials[result][split] or [split][result]         256 threads, kGroup of them a result
//
//   result   lane 0: splits 0, g, 2 g ... | lane 1: splits 1, g + 1 ... | ...         (g = kGroup)
//            +----------------------- combine_group --------------------+ --> lane 0: Y::finish
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/elementwise/totals.cuh"

enum : int {
  kThreads = 256,
  kGroup = Config::group,  // threads per result
};

// result_step, split_step: accumulators between the partial results of neighbouring results, and of
// neighbouring splits; extents: kept axes first, in elements.

extern "C" __global__ void __launch_bounds__(kThreads) reduce_finish(const __grid_constant__ Params p) {
  enter_launch();
  const int lane = threadIdx.x % kGroup;
  const Index result = static_cast<Index>(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  Y::Accumulator total;
  total.init();
  if (result < p.results) {
#pragma unroll 4
    for (Index split = lane; split < p.splits; split += kGroup)
      total.combine(p.partials[result * p.result_step + split * p.split_step]);
  }
  combine_group<kGroup, kThreads>(total);
  if (lane == 0 && result < p.results) {
    Index at[Y::kRank];
    coordinates<0, Config::kept>(result, p.extents, at);
    Y::finish(p.y, at, total);
  }
}
