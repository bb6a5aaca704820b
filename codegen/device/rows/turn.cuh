// Owns a turn of a block of rows: its rows go through all phases and leave; the totals of columns that grow
// from turn to turn.
#pragma once

#include "codegen/device/rows/held.cuh"

enum : bool { kColumns = Config::columns };
using Row = Y::Row<kWidth>;
using Fixed = Y::Fixed<kVector>;

// Elements that are the same for all rows: read again by each phase, or held by blocks that see many rows.
struct FixedOfRows {
  Packed<Fixed> held[kColumns ? kUnits : 1];

  FUSOR_METHOD void fill(const Params& p, Index first, Index (&at)[Y::kRank]) {
    if constexpr (kColumns) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const Spot spot = locate(p, unit, first, at);
        held[unit].put(Y::fixed<kVector>(p.y, at, spot.count));
      }
    }
  }
  FUSOR_METHOD Fixed get(const Params& p, const Index (&at)[Y::kRank], int unit, int count) const {
    if constexpr (kColumns) return held[unit].get();
    return Y::fixed<kVector>(p.y, at, count);
  }
};

// The totals of a thread's columns.
using Columns = Y::Columns[kColumns ? kUnits : 1][kVector];

// The totals of a block's rows, and where they go: those of the first rows' threads.
template <class Params>
static __device__ __forceinline__ void leave_columns(const Params& p, Index first, Columns& columns,
                                                     Y::Columns* staged) {
  if constexpr (kSlots > 1) {
    constexpr int kWarps = kThreads / 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        Y::Columns& total = columns[unit][i];
#pragma unroll
        for (int distance = kGroup; distance < 32; distance *= 2) total.combine(from_lane(total, distance));
        if (threadIdx.x % 32 < kGroup && warp > 0)
          staged[((warp - 1) * kUnits * kVector + unit * kVector + i) * kGroup + threadIdx.x % 32] = total;
      }
    }
    __syncthreads();
    if (threadIdx.x >= kGroup) return;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
#pragma unroll 1
        for (int other = 1; other < kWarps; ++other)
          columns[unit][i].combine(
              staged[((other - 1) * kUnits * kVector + unit * kVector + i) * kGroup + threadIdx.x]);
      }
    }
  }
  // Neighbouring lanes write neighbouring totals.
  Y::Columns* const partials = p.partials + Index(blockIdx.x) / kCluster * (p.vectors * kVector);
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const Index vector = unit * (kGroup * kCluster) + first;
    if (vector >= p.vectors) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) partials[i * p.vectors + vector] = columns[unit][i];
  }
}

// kBatch rows of each slot: what is loaded of them, and their own values.
template <class Holder>
struct Rows {
  Holder holders[kBatch];
  Index at[kBatch][Y::kRank];
  Row values[kBatch];

  FUSOR_METHOD void open(const Params& p, Index base, Index first) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const Index asked = base + i * kSlots + slot_in_block();
      coordinates<0, Y::kKept>(asked < p.rows ? asked : p.rows - 1, p.extents, at[i]);
      if constexpr (kSpread) at[i][Y::kKept - 1] *= kVector;
      Y::begin(p.y, at[i], values[i]);
      holders[i].fill(p, first, at[i]);
    }
  }
  // All rows of the batch go through a phase before any goes on: they share its exchange.
  template <int kPhase>
  FUSOR_METHOD void run_phases(const Params& p, Index first, const FixedOfRows& fixed, Exchange& exchange) {
    if constexpr (kPhase < Y::kPhases) {
      using Totals = decltype(Y::totals(Phase<kPhase>{}));
      Totals totals[kBatch][kWidth];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (Totals& total : totals[i]) total.init();
        holders[i].template each<kPhase == 0>(
            p, first, at[i], kPhase % 2 != 0, [&](int unit, int count, const Held& held) {
              Y::add<kVector>(Phase<kPhase>{}, p.y, at[i], count, held, fixed.get(p, at[i], unit, count),
                              values[i], totals[i]);
            });
      }
      exchange.combine(totals);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        Y::settle(Phase<kPhase>{}, p.y, at[i], totals[i], values[i]);
        holders[i].forget();
      }
      run_phases<kPhase + 1>(p, first, fixed, exchange);
    }
  }
  FUSOR_METHOD void close(const Params& p, Index base, Index first, const FixedOfRows& fixed,
                          Columns& columns, Exchange& exchange) {
    run_phases<0>(p, first, fixed, exchange);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const Row& row = values[i];
      if (base + i * kSlots + slot_in_block() >= p.rows) continue;
      if constexpr (Y::kStoresElements || kColumns) {
        holders[i].template each<Y::kPhases == 0>(
            p, first, at[i], Y::kPhases % 2 != 0, [&](int unit, int count, const Held& held) {
              const Fixed same = fixed.get(p, at[i], unit, count);
              Y::finish<kVector>(p.y, at[i], count, held, same, row);
              if constexpr (kColumns)
                Y::add_columns<kVector>(p.y, at[i], count, held, same, row, columns[unit]);
            });
      }
      if (first == 0) Y::finish_row(p.y, at[i], row);
    }
  }
};
