// Owns the kernel of rows: reductions along a row feed back into what is computed of its elements.
//
//   rows          block b: rows b * kSlots ...; kGroup threads a row, kCluster blocks a row
//   fill          the row: memory ──► registers or shared memory, once
//   phase 0, 1 .. every element is added to the phase's totals ──► combine_row ──► settle: values of the row
//   finish        every element is computed from what is held and the row's values ──► memory
//   columns       (kColumns) blocks walk over many rows and add up columns in registers
//                 ──► partials[part][column] ──► rows_columns: parts in fixed order ──► Y::finish_column
#define FUSOR_METHOD __device__ __forceinline__
#include "codegen/device/rows/held.cuh"

constexpr bool kColumns = FUSOR_COLUMNS != 0;
constexpr bool kPersistent = FUSOR_PERSISTENT != 0;
constexpr int kHeld = FUSOR_HELD;  // 0: in registers, 1: in shared memory, 2: in memory

template <int kWhere>
struct HolderOf {
  using type = InRegisters;
};
template <>
struct HolderOf<1> {
  using type = InShared;
};
template <>
struct HolderOf<2> {
  using type = InMemory;
};
using Holder = HolderOf<kHeld>::type;
using Row = Y::Row<kWidth>;
using Fixed = Y::Fixed<kVector>;

// Elements that are the same for all rows: read again by each phase, or held by blocks that see many rows.
struct FixedOfRows {
  Fixed held[kColumns ? kUnits : 1];

  FUSOR_METHOD void fill(const Params& p, Index first, Index (&at)[Y::kRank]) {
    if constexpr (kColumns) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const Spot spot = locate(p, unit, first, at);
        held[unit] = Y::fixed<kVector>(p.y, at, spot.count);
      }
    }
  }
  FUSOR_METHOD Fixed get(const Params& p, const Index (&at)[Y::kRank], int unit, int count) const {
    if constexpr (kColumns) return held[unit];
    return Y::fixed<kVector>(p.y, at, count);
  }
};

template <int kPhase>
static __device__ __forceinline__ void run_phases(const Params& p, Index first, Index (&at)[Y::kRank],
                                                  Holder& holder, const FixedOfRows& fixed, Row& row,
                                                  char* exchanged, int& turn) {
  if constexpr (kPhase < Y::kPhases) {
    using Totals = decltype(Y::totals(Phase<kPhase>{}));
    Totals totals[kWidth];
#pragma unroll
    for (Totals& total : totals) total.init();
    holder.each(p, first, at, kPhase % 2 != 0, [&](int unit, int count, const Held& held) {
      Y::add<kVector>(Phase<kPhase>{}, p.y, at, count, held, fixed.get(p, at, unit, count), row, totals);
    });
    combine_row(totals, exchanged, turn);
    Y::settle(Phase<kPhase>{}, p.y, at, totals, row);
    holder.forget();
    run_phases<kPhase + 1>(p, first, at, holder, fixed, row, exchanged, turn);
  }
}

#if FUSOR_COLUMNS
using Columns = Y::Columns[kUnits][kVector];

// The totals of a block's rows, and where they go: those of the first rows' threads.
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
  Y::Columns* const partials =
      static_cast<Y::Columns*>(p.partials) + Index(blockIdx.x) / kCluster * (p.vectors * kVector);
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const Index vector = unit * (kGroup * kCluster) + first;
    if (vector >= p.vectors) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) partials[vector * kVector + i] = columns[unit][i];
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads) rows(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) char memory[];
  __shared__ __align__(16) char exchanged[2 * kExchangeBytes];
  // No block stores into another's shared memory before that one has begun.
  if constexpr (kCluster > 1) meet();
  const Index first = Index(rank_in_cluster()) * kGroup + lane_in_row();
  int turn = 0;
  Holder holder(memory);
  Index at[Y::kRank];
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
  FixedOfRows fixed;
  fixed.fill(p, first, at);
#if FUSOR_COLUMNS
  Columns columns;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) columns[unit][i].init();
  }
#endif
  Index base = Index(blockIdx.x) / kCluster * kSlots;
  do {
    const Index asked = base + slot_in_block();
    const bool exists = asked < p.rows;
    coordinates<0, Y::kKept>(exists ? asked : p.rows - 1, p.extents, at);
    if constexpr (kSpread) at[Y::kKept - 1] *= kVector;
    Row row;
    Y::begin(p.y, at, row);
    holder.fill(p, first, at);
    run_phases<0>(p, first, at, holder, fixed, row, exchanged, turn);
    if (exists) {
      holder.each(p, first, at, Y::kPhases % 2 != 0, [&](int unit, int count, const Held& held) {
        const Fixed same = fixed.get(p, at, unit, count);
        Y::finish<kVector>(p.y, at, count, held, same, row);
#if FUSOR_COLUMNS
        Y::add_columns<kVector>(p.y, at, count, held, same, row, columns[unit]);
#endif
      });
      if (first == 0) Y::finish_row(p.y, at, row);
    }
    base += p.row_step;
  } while (kPersistent && base < p.rows);
#if FUSOR_COLUMNS
  leave_columns(p, first, columns, reinterpret_cast<Y::Columns*>(memory));
#endif
}

#if FUSOR_COLUMNS
constexpr int kColumnThreads = 256, kColumnWidth = 32, kColumnRows = kColumnThreads / kColumnWidth;

struct ColumnParams {
  alignas(8) const void* partials;
  alignas(8) Index columns, parts, row_extent;
  FastDivisor extents[Y::kRank];
  Y::Args y;
};

extern "C" __global__ void __launch_bounds__(kColumnThreads)
    rows_columns(const __grid_constant__ ColumnParams p) {
  __shared__ Y::Columns of_row[kColumnRows][kColumnWidth];
  const int place = threadIdx.x % kColumnWidth, part_row = threadIdx.x / kColumnWidth;
  const Index column = Index(blockIdx.x) * kColumnWidth + place;
  Y::Columns total;
  total.init();
  if (column < p.columns) {
    const Y::Columns* const partials = static_cast<const Y::Columns*>(p.partials) + column;
#pragma unroll 4
    for (Index part = part_row; part < p.parts; part += kColumnRows)
      total.combine(partials[part * p.columns]);
  }
  of_row[part_row][place] = total;
  __syncthreads();
  if (part_row > 0 || column >= p.columns) return;
#pragma unroll 1
  for (int other = 1; other < kColumnRows; ++other) total.combine(of_row[other][place]);
  Index at[Y::kRank];
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
  coordinates<Y::kKept, Y::kRank>(column / kVector, p.extents, at);
  at[kLast] = at[kLast] * kVector + column % kVector;
  if (at[kLast] < p.row_extent) Y::finish_column(p.y, at, total);
}
#endif
