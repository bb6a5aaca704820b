// Owns reductions along the axis on which neighbours are adjacent. A row is one coordinate of the kept axes.
//
//   blockIdx.x: kThreads / kGroup rows         blockIdx.y: a split of every row, `chunk` vectors
//
//   row   lane 0 | lane 1 | ... | kGroup - 1   each adds vectors kGroup apart, kUnroll at a time
//         +------- combine_group ----------+   shuffles, then shared memory across warps
//   lane 0 --> Y::finish, or partials[row][split] --> reduce_finish
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/elementwise/totals.cuh"

enum : int {
  kVector = Config::vector,
  kThreads = Config::threads,
  kGroup = Config::group,  // threads a row
  kUnroll = Config::unroll,
  kKept = Config::kept,
};
enum : bool { kRowTails = Config::row_tails };  // the last axis' extent is not a multiple of kVector
enum : int { kLast = Y::kRank - 1 };

// partials: of a split reduction, [row][split]; vectors: of a row, whole_vectors of which, from the first on,
// are surely whole; chunk: vectors of a split; row_extent: elements along the last axis; extents: the last
// one in vectors.

static __device__ __forceinline__ void add_whole(const Params& p, Index vector, Index (&at)[Y::kRank],
                                                 Y::Accumulator& total) {
  coordinates<kKept, Y::kRank>(vector, p.extents, at);
  at[kLast] *= kVector;
  Y::apply<kVector>(p.y, at, kVector, &total);
}

static __device__ __forceinline__ void add(const Params& p, Index vector, Index (&at)[Y::kRank],
                                           Y::Accumulator& total) {
  coordinates<kKept, Y::kRank>(vector, p.extents, at);
  at[kLast] *= kVector;
  if (!kRowTails || at[kLast] + kVector <= p.row_extent) {
    Y::apply<kVector>(p.y, at, kVector, &total);
  } else {
#pragma unroll 1
    for (; at[kLast] < p.row_extent; ++at[kLast]) Y::apply<1>(p.y, at, 1, &total);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) reduce_rows(const __grid_constant__ Params p) {
  enter_launch(p);
  const int lane = threadIdx.x % kGroup;
  const Index row = static_cast<Index>(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  Index at[Y::kRank];
  coordinates<0, kKept>(row, p.extents, at);

  Y::Accumulator total;
  total.init();
  if (row < p.rows) {
    const Index begin = blockIdx.y * p.chunk;
    const Index end = begin + p.chunk < p.vectors ? begin + p.chunk : p.vectors;
    const Index whole_end = end < p.whole_vectors ? end : p.whole_vectors;
    Index vector = begin + lane;
    if constexpr (kUnroll > 1) {
#pragma unroll 1
      for (; vector + (kUnroll - 1) * kGroup < whole_end; vector += kUnroll * kGroup) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) add_whole(p, vector + u * kGroup, at, total);
      }
    }
#pragma unroll 1
    for (; vector < end; vector += kGroup) add(p, vector, at, total);
  }

  combine_group<kGroup, kThreads>(total);
  if (lane != 0 || row >= p.rows) return;
  leave<Config::split>(p, row * gridDim.y + blockIdx.y, at, total);
  leave_launch(p);
}
