// Owns the plain elementwise kernel: each thread computes vectors of kVector elements along the last axis.
//
//   kUnroll == 1        kUnrollAxis >= 0: neighbours along      kUnrollAxis < 0: vectors a block's width
//                       an outer axis share broadcast loads     apart keep more loads in flight
//   thread t: v[t]      thread t: v[r][t]                       thread t: v[t]
//                                 v[r + 1][t] ...                         v[t + kThreads] ...
//
//   No shared memory. Tails, if any: whole vectors first, then element by element in a rolled loop.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

enum : int {
  kVector = Config::vector,
  kThreads = Config::threads,
  kUnroll = Config::unroll,
  kUnrollAxis = Config::unroll_axis,  // -1: a block's width apart
};
enum : bool {
  kUnrollTails = Config::unroll_tails,  // kUnrollAxis' extent is not a multiple of kUnroll
  kRowTails = Config::row_tails,        // the vector axis' extent is not a multiple of kVector
};
enum : int { kLast = Y::kRank - 1 };

// vectors: all of them, counting kUnroll neighbours along kUnrollAxis once; row_extent, unroll_extent:
// elements along the vector axis and kUnrollAxis; extents: the last one in vectors.

// One vector, or what exists of it, element by element.
static __device__ __forceinline__ void apply_vector(const Params& p, Index (&at)[Y::kRank]) {
  if constexpr (kRowTails) {
    if (at[kLast] + kVector > p.row_extent) {
#pragma unroll 1
      for (; at[kLast] < p.row_extent; ++at[kLast]) Y::apply<1>(p.y, at, 1);
      return;
    }
  }
  Y::apply<kVector>(p.y, at, kVector);
}

static __device__ __forceinline__ void locate(const Params& p, Index vector, Index (&at)[Y::kRank]) {
  coordinates<0, Y::kRank>(vector, p.extents, at);
  at[kLast] *= kVector;
}

static __device__ __forceinline__ void visit(const Params& p, Index vector) {
  Index at[Y::kRank];
  locate(p, vector, at);
  apply_vector(p, at);
}

// The kUnroll neighbours of a vector along kUnrollAxis.
static __device__ __forceinline__ void visit_neighbours(const Params& p, Index vector) {
  Index at[Y::kRank];
  locate(p, vector, at);
  const Index first = at[kUnrollAxis] * kUnroll;
  const Index column = at[kLast];
  if ((!kUnrollTails || first + kUnroll <= p.unroll_extent) &&
      (!kRowTails || column + kVector <= p.row_extent)) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      at[kUnrollAxis] = first + u;
      Y::apply<kVector>(p.y, at, kVector);
    }
  } else {
#pragma unroll 1
    for (int u = 0; u < kUnroll && first + u < p.unroll_extent; ++u) {
      at[kUnrollAxis] = first + u;
      at[kLast] = column;
      apply_vector(p, at);
    }
  }
}

// Blocks without the last vector, the only one that may be partial here, need no checks.
static __device__ __forceinline__ void visit_block(const Params& p) {
  const Index block = static_cast<Index>(blockIdx.x) * (kThreads * kUnroll);
  if (block + kThreads * kUnroll < p.vectors) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      Index at[Y::kRank];
      locate(p, block + u * kThreads + threadIdx.x, at);
      Y::apply<kVector>(p.y, at, kVector);
    }
  } else {
#pragma unroll 1
    for (Index vector = block + threadIdx.x; vector < p.vectors; vector += kThreads) visit(p, vector);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) elementwise(const __grid_constant__ Params p) {
  enter_launch(p);
  const Index vector = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if constexpr (kUnroll > 1 && kUnrollAxis < 0) {
    visit_block(p);
  } else if constexpr (kUnroll > 1) {
    if (vector < p.vectors) visit_neighbours(p, vector);
  } else {
    if (vector < p.vectors) visit(p, vector);
  }
  leave_launch(p);
}
