// Owns the kernel of rows that all blocks of a grid share (rows/meetings.cuh), whose operand lies along
// neighbouring rows and whose results lie along each row: channels last, and first.
//
//   shared memory    [unit][place in the row][slot]: kVector neighbouring rows, 16 bytes
//   finish           a thread has one row of its block, and kVector neighbouring places of each unit:
//                    an element each of kVector pieces ──► Z::finish, a vector along the row
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

#define FUSOR_METHOD __device__ __forceinline__
#include "codegen/device/rows/meetings.cuh"

enum : int {
  kBytes = Y::kCopiedBytes,  // of an element of the operand
  kRuns = kGroup / kVector,  // vectors along the row, of a unit
};
static_assert(kSpread && kVector * kBytes == 16 && kRuns * kCellsOfBlock == kThreads);
using Element = If<kBytes == 8, u64, If<kBytes == 4, u32, If<kBytes == 2, u16, u8>>>;
using RowAcross = Z::Row<1>;
enum : int { kValues = kCellsOfBlock * static_cast<int>(sizeof(RowAcross)) };

// The values of a block's rows, for all of its threads, where its totals were.
FUSOR_DEVICE void leave_rows(const Row& row, RowAcross* rows) {
  __syncthreads();
  if (lane_in_row() == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      Y::Row<1> one;
      static_assert(sizeof one == sizeof(RowAcross));
      Y::take(row, i, one);
      memcpy(rows + slot_in_block() * kWidth + i, &one, sizeof one);
    }
  }
  __syncthreads();
}

// kVector places of a unit from a run's first on, of the row whose first element in the unit is at `from`.
FUSOR_DEVICE Z::Held<kVector> turned(const char* from, int run) {
  Vec<Element, kVector> elements;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    elements.lane[i] = *reinterpret_cast<const Element*>(from + (run * kVector + i) * (kSlots * 16));
  Z::Held<kVector> held;
  static_assert(sizeof held == sizeof elements);
  memcpy(&held, &elements, sizeof held);
  return held;
}

FUSOR_DEVICE void finish_across(const Params& p, const char* memory, const RowAcross* rows) {
  const int run = static_cast<int>(threadIdx.x) % kRuns, of_block = static_cast<int>(threadIdx.x) / kRuns;
  const int slot = of_block / kVector, lane = of_block % kVector;
  const Index of_row = Index(blockIdx.y) * kSlots + slot;
  if (of_row >= p.rows) return;
  const RowAcross row = rows[of_block];
  Index at[Z::kRank];
#pragma unroll
  for (int axis = 0; axis < Z::kRank; ++axis) at[axis] = 0;
  coordinates<0, Z::kKept>(of_row, p.extents, at);
  at[Z::kKept - 1] = at[Z::kKept - 1] * kVector + lane;
  const char* from = memory + slot * 16 + lane * kBytes;
  Index place = Index(blockIdx.x) * kGroup + run * kVector;
#pragma unroll 1
  for (; place < p.vectors; place += unit_step(p), from += kThreads * 16) {
    at[kLast] = place;
    Z::finish<kVector>(p.z, at, kVector, turned(from, run), Z::fixed<kVector>(p.z, at, kVector), row);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    rows_turned(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) char memory[];
  __shared__ __align__(16) char exchanged[kValues > kExchanged ? kValues : kExchanged];
  enter_launch();
  Resident own;
  own.run(p, memory, exchanged);
  RowAcross* const rows = reinterpret_cast<RowAcross*>(exchanged);
  leave_rows(own.row, rows);
  finish_across(p, memory, rows);
  own.finish_own_rows(p);
}
