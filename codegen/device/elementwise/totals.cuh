// Owns what reductions over blocks have in common: the total of a group of threads, and where it goes.
#pragma once

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

// A total leaves as the result at `at`, or, where the reduction is split over blocks, as a partial one.
template <bool kSplit, class Params, class Accumulator>
FUSOR_DEVICE void leave(const Params& p, Index partial, const Index (&at)[Y::kRank],
                        const Accumulator& total) {
  if constexpr (kSplit)
    p.partials[partial] = total;
  else
    Y::finish(p.y, at, total);
}
