// Owns the second launch of rows with totals of columns: a column's parts are added up in a fixed order.
//
//   partials[part][column]      block: 32 columns x 8 rows of threads
//
//   row 0: parts 0, 8, ...    row 1: parts 1, 9, ...   ──► of_row[8][32] ──► row 0 adds the rows ──►
//   Y::finish_column
#include "fusor_generated.cuh"

// columns: with the tail of the last vector of a row; parts: of each; row_extent: elements along the last
// axis; extents: that of the last axis in vectors.
constexpr int kVector = Config::vector;
constexpr int kThreads = 256, kWidth = 32, kRows = kThreads / kWidth;

extern "C" __global__ void __launch_bounds__(kThreads) rows_columns(const __grid_constant__ Params p) {
  __shared__ Y::Columns of_row[kRows][kWidth];
  const int place = threadIdx.x % kWidth, row = threadIdx.x / kWidth;
  const Index column = Index(blockIdx.x) * kWidth + place;
  Y::Columns total;
  total.init();
  // It is launched while the rows are still worked on.
  if constexpr (Config::arch >= 900) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (column < p.columns) {
#pragma unroll 4
    for (Index part = row; part < p.parts; part += kRows)
      total.combine(p.partials[part * p.columns + column]);
  }
  of_row[row][place] = total;
  __syncthreads();
  if (row > 0 || column >= p.columns) return;
#pragma unroll 1
  for (int other = 1; other < kRows; ++other) total.combine(of_row[other][place]);
  Index at[Y::kRank];
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
  coordinates<Y::kKept, Y::kRank>(column / kVector, p.extents, at);
  at[Y::kRank - 1] = at[Y::kRank - 1] * kVector + column % kVector;
  if (at[Y::kRank - 1] < p.row_extent) Y::finish_column(p.y, at, total);
}
