// Owns the totals of rows that blocks share by launches: partial ones are combined in a fixed order.
//
//   partials[cell][part]      kGroup threads: p.fold neighbouring cells, which share a total
//
//   thread 0: 0, kGroup, ...  thread 1: 1, kGroup + 1, ...  ──► combine_lanes ──► shared memory across warps
//   ──► totals[cell] of each of them
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

enum : int {
  kThreads = 256,
  kWarp = 32,
  kGroup = Config::group,  // threads of a result: a warp, or all of the block
};
using Totals = decltype(Y::totals(Phase<Config::phase>{}));

// partials: of a phase, `parts` of each result; results: of them; fold: cells of a result.

extern "C" __global__ void __launch_bounds__(kThreads) rows_totals(const __grid_constant__ Params p) {
  constexpr int kWarps = kGroup / kWarp;
  const int place = threadIdx.x % kGroup;
  const Index result = Index(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  Totals total;
  total.init();
  // The next phase loads its first elements while parts are still added up.
  let_next_launch_begin();
  wait_for_launch_before();
  if (result < p.results) {
    const Totals* const own = reinterpret_cast<const Totals*>(p.partials) + result * p.parts;
#pragma unroll 4
    for (Index part = place; part < p.parts; part += kGroup) total.combine(own[part]);
  }
  combine_lanes<kWarp>(total);
  if constexpr (kWarps > 1) {
    __shared__ Totals of_warp[kWarps];
    if (place % kWarp == 0) of_warp[place / kWarp] = total;
    __syncthreads();
    total = of_warp[place % kWarps];
    combine_lanes<kWarps>(total);
  }
  if (result >= p.results) return;
  for (Index cell = place; cell < p.fold; cell += kGroup)
    reinterpret_cast<Totals*>(p.totals)[result * p.fold + cell] = total;
}
