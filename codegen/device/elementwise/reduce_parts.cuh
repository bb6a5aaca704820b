// Owns the second launch of reductions of a contraction's result (engine wgmma), in a fixed order.
//
//   partials[part][result]        block: kWidth results (32, or 1) x kRows threads
//
//   row 0: parts 0, kRows, ...    row 1: parts 1, kRows + 1, ...    --> shared of_row[kRows][kWidth]
//   kWidth == 1: combine_group    else row 0 adds the rows in order --> Y::finish
//
//   where parts are many    a launch in front: group g of parts --> totals[g][result], the parts of this one
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/elementwise/totals.cuh"

// A block has kWidth neighbouring results (32, or 1); kRows threads share one.
enum : int { kWidth = Config::width, kRows = Config::rows, kThreads = kWidth * kRows };
enum : bool { kOfGroups = Config::of_groups };  // a group's totals leave as they are

// extents: kept axes first.

// Combines the totals of a column of threads in its first one.
static __device__ __forceinline__ void combine_rows(Y::Accumulator& total, int row, int column) {
  __shared__ Y::Accumulator of_row[kRows][kWidth];
  of_row[row][column] = total;
  __syncthreads();
  if (row > 0) return;
  for (int other = 1; other < kRows; ++other) total.combine(of_row[other][column]);
}

extern "C" __global__ void __launch_bounds__(kThreads) reduce_parts(const __grid_constant__ Params p) {
  enter_launch();
  const int column = threadIdx.x % kWidth, row = threadIdx.x / kWidth;
  const i64 result = i64(blockIdx.x) * kWidth + column;
  Y::Accumulator total;
  total.init();
  if (result < p.results) {
    const Y::Accumulator* const partials = p.partials + result;
    const i64 first = i64(blockIdx.y) * p.group_parts, after = first + p.group_parts;
    const i64 end = after < p.parts ? after : p.parts;
#pragma unroll 8
    for (i64 part = first + row; part < end; part += kRows) total.combine(partials[part * p.results]);
  }
  if constexpr (kWidth == 1)
    combine_group<kThreads, kThreads>(total);
  else
    combine_rows(total, row, column);
  if (row > 0 || result >= p.results) return;
  if constexpr (kOfGroups) {
    p.totals[i64(blockIdx.y) * p.results + result] = total;
  } else {
    Index at[Y::kRank] = {};
    coordinates<0, Config::kept>(static_cast<Index>(result), p.extents, at);
    Y::finish(p.y, at, total);
  }
}
