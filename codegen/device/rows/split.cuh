// Owns the kernel of rows that so many blocks share that their totals meet in memory: a launch a phase.
//
//   phase 0        blockIdx.x: p.parts blocks share a row      blockIdx.y: kSlots rows, or vectors of them
//                  every vector of a block is added to its totals ──► combine_block ──► partials[cell][part]
//   rows/totals    partials[cell] in order ──► totals[phase][cell]
//   phase 1 ...    totals of earlier phases settle the row's values; then the same
//   phase kPhases  every element is computed and stored
//
//   Every other phase walks backwards: what the one before it read last is still in L2.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

#define FUSOR_METHOD __device__ __forceinline__
#include "codegen/device/rows/block.cuh"
#include "codegen/device/rows/held.cuh"
#include "codegen/device/rows/neighbours.cuh"

enum : int { kPhase = Config::phase };
enum : bool { kAdds = kPhase < Y::kPhases };
using Row = Y::Row<kWidth>;

// parts: blocks of a row; cells: totals of a phase, one a row; partials, totals: of Y::kTotalsBytes a cell at
// most.

template <int kEarlier>
FUSOR_DEVICE void settle_from(const Params& p, const Index (&at)[Y::kRank], Index cell, Row& row) {
  if constexpr (kEarlier < kPhase) {
    using Totals = decltype(Y::totals(Phase<kEarlier>{}));
    const char* const of_phase = p.totals + i64(kEarlier) * p.cells * Y::kTotalsBytes;
    Totals totals[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) totals[i] = reinterpret_cast<const Totals*>(of_phase)[cell + i];
    Y::settle(Phase<kEarlier>{}, p.y, at, totals, row);
    settle_from<kEarlier + 1>(p, at, cell, row);
  }
}

// A block's part of the row, vector by vector; the next kUnroll are on their way while these are worked on.
struct Walk {
  Packed<Held> next[kUnroll];

  static FUSOR_METHOD Index unit_of(const Params& p, Index asked) {
    const Index unit = asked < p.units ? asked : p.units - 1;
    return kPhase % 2 != 0 ? p.units - 1 - unit : unit;
  }
  static FUSOR_METHOD Spot spot_of(const Params& p, Index asked, Index (&at)[Y::kRank]) {
    return locate(p, unit_of(p, asked), Index(blockIdx.x) * kGroup + lane_in_row(), at);
  }
  FUSOR_METHOD void load(const Params& p, Index step, Index (&at)[Y::kRank]) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const Spot spot = spot_of(p, step + i, at);
      next[i].put(Y::load<kVector>(p.y, at, spot.count));
    }
  }
  template <class Visit>
  FUSOR_METHOD void run(const Params& p, Index (&at)[Y::kRank], Visit visit) {
#pragma unroll 1
    for (Index step = 0; step < p.units; step += kUnroll) {
      Packed<Held> own[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) own[i] = next[i];
      if (step + kUnroll < p.units) load(p, step + kUnroll, at);
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const Spot spot = spot_of(p, step + i, at);
        if (step + i < p.units && spot.exists)
          visit(spot.count, own[i].get(), Y::fixed<kVector>(p.y, at, spot.count));
      }
    }
  }
};

template <int kOwn>
FUSOR_DEVICE void add_up(const Params& p, Walk& walk, Index (&at)[Y::kRank], Index cell, bool exists,
                         const Row& row) {
  using Totals = decltype(Y::totals(Phase<kOwn>{}));
  Totals totals[kWidth];
#pragma unroll
  for (Totals& total : totals) total.init();
  walk.run(p, at, [&](int count, const Held& held, const Y::Fixed<kVector>& fixed) {
    Y::add<kVector>(Phase<kOwn>{}, p.y, at, count, held, fixed, row, totals);
  });
  __shared__ Totals staged[kStagedCells];
  combine_block(totals, staged);
  if (lane_in_row() > 0 || !exists) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    reinterpret_cast<Totals*>(p.partials)[(cell + i) * p.parts + Index(blockIdx.x)] = totals[i];
}

FUSOR_DEVICE void finish(const Params& p, Walk& walk, Index (&at)[Y::kRank], bool exists, const Row& row) {
  if (!exists) return;
  if constexpr (Y::kStoresElements)
    walk.run(p, at, [&](int count, const Held& held, const Y::Fixed<kVector>& fixed) {
      Y::finish<kVector>(p.y, at, count, held, fixed, row);
    });
  if (blockIdx.x == 0 && lane_in_row() == 0) finish_rows<Y>(p, at, row);
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    rows_split(const __grid_constant__ Params p) {
  const Index asked = Index(blockIdx.y) * kSlots + slot_in_block();
  const bool exists = asked < p.rows;
  const Index of_row = exists ? asked : p.rows - 1, cell = of_row * kWidth;
  Index at[Y::kRank];
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
  coordinates<0, Y::kKept>(of_row, p.extents, at);
  if constexpr (kSpread) at[Y::kKept - 1] *= kVector;
  // All phases read the same elements: those behind the first load them before they wait for the totals.
  if constexpr (kPhase == 0) wait_for_launch_before();
  if constexpr (kAdds) let_next_launch_begin();
  Row row;
  begin_rows<Y>(p, at, row);
  Walk walk;
  if constexpr (kAdds || Y::kStoresElements) walk.load(p, 0, at);
  if constexpr (kPhase > 0) wait_for_launch_before();
  if constexpr (!kAdds) let_next_launch_begin();
  settle_from<0>(p, at, cell, row);
  if constexpr (kAdds)
    add_up<kAdds ? kPhase : 0>(p, walk, at, cell, exists, row);
  else
    finish(p, walk, at, exists, row);
}
