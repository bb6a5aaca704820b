// Owns reductions across the axis on which neighbours are adjacent. A thread owns kVector columns.
//
//   blockIdx.x: kWidth vectors of columns      blockIdx.y: a split of the walk, `chunk` steps
//
//   vector   lane 0           steps 0, kLanes, 2 kLanes ...        kUnroll steps at a time
//            lane 1           steps 1, kLanes + 1 ...
//            lane kLanes - 1  ...   --> halved in shared memory: staged[kVector][kThreads / 2]
//   lane 0 --> Y::finish, or partials[split][column] --> reduce_finish
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/elementwise/totals.cuh"

enum : int {
  kVector = Config::vector,
  kThreads = Config::threads,
  kWidth = Config::width,  // neighbouring vectors of a block
  kLanes = kThreads / kWidth,
  kUnroll = Config::unroll,
  kKept = Config::kept,
};

// partials: of a split reduction, [split][column]; vectors: over all kept axes; steps: over all reduced ones;
// chunk: steps of a split; extents: the last kept one in vectors.

static __device__ __forceinline__ void add(const Params& p, Index step, Index (&at)[Y::kRank],
                                           Y::Accumulator (&total)[kVector]) {
  coordinates<kKept, Y::kRank>(step, p.extents, at);
  Y::apply<kVector, true>(p.y, at, kVector, total);
}

// Combines the totals of the block's lanes in those of lane 0.
static __device__ __forceinline__ void combine_block(Y::Accumulator (&total)[kVector]) {
  if constexpr (kLanes > 1) {
    __shared__ Y::Accumulator staged[kVector][kThreads / 2];
    const int lane = threadIdx.x / kWidth;
#pragma unroll 1
    for (int half = kLanes / 2; half > 0; half /= 2) {
      if (lane >= half && lane < 2 * half) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) staged[i][threadIdx.x - half * kWidth] = total[i];
      }
      __syncthreads();
      if (lane < half) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) total[i].combine(staged[i][threadIdx.x]);
      }
      __syncthreads();
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) reduce_columns(const __grid_constant__ Params p) {
  enter_launch(p);
  const int lane = threadIdx.x / kWidth;
  const Index vector = static_cast<Index>(blockIdx.x) * kWidth + threadIdx.x % kWidth;
  Index at[Y::kRank];
  coordinates<0, kKept>(vector, p.extents, at);
  at[kKept - 1] *= kVector;

  Y::Accumulator total[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) total[i].init();
  if (vector < p.vectors) {
    const Index begin = blockIdx.y * p.chunk;
    const Index end = begin + p.chunk < p.steps ? begin + p.chunk : p.steps;
    Index step = begin + lane;
    if constexpr (kUnroll > 1) {
#pragma unroll 1
      for (; step + (kUnroll - 1) * kLanes < end; step += kUnroll * kLanes) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) add(p, step + u * kLanes, at, total);
      }
    }
#pragma unroll 1
    for (; step < end; step += kLanes) add(p, step, at, total);
  }

  combine_block(total);
  if (lane != 0 || vector >= p.vectors) return;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    leave<Config::split>(p, (blockIdx.y * p.vectors + vector) * kVector + i, at, total[i]);
    ++at[kKept - 1];
  }
  leave_launch(p);
}
