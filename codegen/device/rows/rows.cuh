// Owns the kernel of rows: reductions along a row feed back into what is computed of its elements.
//
//   rows          block b: rows b * kSlots ...; kGroup threads a row, kCluster blocks a row
//   fill          the row (kBatch of them): memory ──► registers or shared memory, once
//   phase 0, 1 .. every element is added to the phase's totals ──► combine_row ──► settle: values of the row
//   finish        every element is computed from what is held and the row's values ──► memory
//   columns       (kColumns) blocks walk over many rows and add up columns in registers
//                 ──► partials[part] ──► rows/columns.cuh
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

#define FUSOR_METHOD __device__ __forceinline__
#include "codegen/device/rows/turn.cuh"

enum : bool { kPersistent = Config::persistent };
// 0: in registers, 1: in shared memory, 2: in memory, 4: copied to shared memory
enum : int { kHeld = Config::held };

using Holder = If<kHeld == 0, InRegisters, If<kHeld == 1, InShared, If<kHeld == 2, InMemory, Copied<Y>>>>;

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    rows(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) char memory[];
  __shared__ __align__(16) char exchanged[kAllExchangeBytes];
  __shared__ u64 arrivals[2];
  Exchange exchange{exchanged, arrivals};
  exchange.open();
  enter_launch(p, !kColumns);
  const Index first = Index(rank_in_cluster()) * kGroup + lane_in_row();
  Rows<Holder> rows;
#pragma unroll
  for (Holder& holder : rows.holders) holder.bind(memory);
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) rows.at[0][axis] = 0;
  FixedOfRows fixed;
  fixed.fill(p, first, rows.at[0]);
  Columns columns;
#pragma unroll
  for (auto& of_unit : columns) {
#pragma unroll
    for (Y::Columns& total : of_unit) total.init();
  }
  Index base = Index(blockIdx.x) / kCluster * (kSlots * kBatch);
  rows.open(p, base, first);
  if constexpr (!kPersistent) {
    rows.close(p, base, first, fixed, columns, exchange);
  } else {
    // Where registers hold them, the next rows are on their way while these are worked on.
    for (bool more = true; more;) {
      Rows<Holder> own = rows;
      const Index own_base = base;
      base += p.row_step;
      more = base < p.rows;
      if (kHeld == 0 && more) rows.open(p, base, first);
      own.close(p, own_base, first, fixed, columns, exchange);
      if (kHeld != 0 && more) rows.open(p, base, first);
    }
  }
  if constexpr (kColumns) {
    let_next_launch_begin();
    leave_columns(p, first, columns, reinterpret_cast<Y::Columns*>(memory));
  }
  leave_launch(p);
}
