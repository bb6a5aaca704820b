// Owns the second launch of rows with totals of columns: a column's parts are added up in a fixed order.
//
//   partials[part][element of a vector][vector]      block: kWidth of them x kRows rows of threads
//
//   row 0: parts 0, kRows, ...    row 1: parts 1, kRows + 1, ...    ──► of_row[kRows][kWidth]
//   ──► rows halved until one is left ──► Y::finish_column
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

// columns: with the tail of the last vector of a row; vectors: of a row; parts: of each column; row_extent:
// elements along the last axis; extents: that of the last axis in vectors.
enum : int {
  kVector = Config::vector,
  kWidth = Config::width,
  kThreads = 512,
  kRows = kThreads / kWidth,
  kInFlight = 8,  // parts of a thread
};

extern "C" __global__ void __launch_bounds__(kThreads) rows_columns(const __grid_constant__ Params p) {
  __shared__ Y::Columns of_row[kRows][kWidth];
  const int place = threadIdx.x % kWidth, row = threadIdx.x / kWidth;
  const Index column = Index(blockIdx.x) * kWidth + place;
  Y::Columns total;
  total.init();
  enter_launch();
  const Index end = column < p.columns ? p.parts : 0;
#pragma unroll 1
  for (Index begin = row; begin < end; begin += kRows * kInFlight) {
    Y::Columns parts[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (begin + i * kRows < end) parts[i] = p.partials[(begin + i * kRows) * p.columns + column];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (begin + i * kRows < end) total.combine(parts[i]);
  }
  of_row[row][place] = total;
#pragma unroll
  for (int half = kRows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row < half) of_row[row][place].combine(of_row[row + half][place]);
  }
  if (row > 0 || column >= p.columns) return;
  Index at[Y::kRank];
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
  const Index element = column / p.vectors;
  coordinates<Y::kKept, Y::kRank>(column - element * p.vectors, p.extents, at);
  at[Y::kRank - 1] = at[Y::kRank - 1] * kVector + element;
  if (at[Y::kRank - 1] < p.row_extent) Y::finish_column(p.y, at, of_row[0][place]);
}
