// Owns the phases of rows that all blocks of a grid share, which run at once: each keeps its part in shared
// memory, and the grid meets for totals.
//
//   blockIdx.x: p.parts blocks share a row      blockIdx.y: kSlots rows, or vectors of them
//   open           a block's part of its rows: memory ──► shared memory, all of it at once
//   phase 0 ..     own part ──► stage_block ──► all parts of all cells of a result
//                  ──► partials[phase][result][part] ──► the grid meets
//                  ──► all parts of a block's results, in order ──► settle
#pragma once

#include "codegen/device/rows/block.cuh"
#include "codegen/device/rows/held.cuh"
#include "codegen/device/rows/neighbours.cuh"

using Row = Y::Row<kWidth>;
enum : int { kCellsOfBlock = kSlots * kWidth };
enum : bool { kFolds = Config::folds };  // neighbouring cells, all of the same block, share a result

// One room for what threads of a block tell each other: parts of its totals, then its results.
enum : int { kExchanged = kStagedCells * Y::kTotalsBytes };

// Totals where they lie in memory: as aligned as those of all phases are.
template <class Totals>
constexpr int kAlignmentOf = sizeof(Totals) % 16 == 0 && Y::kTotalsBytes % 16 == 0 ? 16
                             : sizeof(Totals) % 8 == 0 && Y::kTotalsBytes % 8 == 0 ? 8
                                                                                   : 4;
template <class Totals>
struct alignas(kAlignmentOf<Totals>) InMemoryTotals {
  Totals value;
};

// parts: blocks of a row; cells: totals of a phase, one a row; fold: divides by the neighbouring cells of a
// result; lanes: threads that combine the parts of a result, a power of two; partials: of Y::kTotalsBytes
// each.

// The word that the driver keeps for a cooperative launch. Its highest bit changes when the last block has
// arrived: the first block adds what is missing to that, all others one. So it needs no reset between runs.
FUSOR_DEVICE u32* meeting_word() {
  u32 high, low;
  asm("mov.u32 %0, %%envreg1;" : "=r"(high));
  asm("mov.u32 %0, %%envreg2;" : "=r"(low));
  return reinterpret_cast<u32*>(u64(high) << 32 | low) + 1;
}

// Waits for all blocks; all of them then see the writes that any of them made before.
FUSOR_DEVICE void meet_grid() {
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr u32 kTurned = 0x80000000u;
    const bool leads = blockIdx.x + blockIdx.y == 0;
    const u32 share = leads ? kTurned - (gridDim.x * gridDim.y - 1) : 1;
    u32* const word = meeting_word();
    u32 before, now;
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(share) : "memory");
    do {
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    } while (((before ^ now) & kTurned) == 0);
  }
  __syncthreads();
}

// Combines `count` totals of each of `results`, which p.lanes neighbouring threads share, so many in flight,
// and hands them to `take`.
template <int kInFlight, class Totals, class Place, class Take>
FUSOR_DEVICE void combine_each(const Params& p, int results, int count, Place place, Take take) {
  const int lanes = p.lanes, lane = threadIdx.x & (lanes - 1), at_once = kThreads / lanes;
#pragma unroll 1
  for (int begin = 0; begin < results; begin += at_once) {
    const int result = begin + static_cast<int>(threadIdx.x) / lanes;
    Totals total;
    total.init();
    const int end = result < results ? count : 0;
#pragma unroll 1
    for (int i = lane; i < end; i += lanes * kInFlight) {
      Totals others[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k)
        if (i + k * lanes < end) others[k] = place(result, i + k * lanes);
#pragma unroll
      for (int k = 0; k < kInFlight; ++k)
        if (i + k * lanes < end) total.combine(others[k]);
    }
#pragma unroll 1
    for (int distance = lanes / 2; distance > 0; distance /= 2) total.combine(from_lane(total, distance));
    if (lane == 0 && result < results) take(result, total);
  }
}

// The totals of a block's cells in those of their results, made of all blocks' parts. `room`: of kExchanged
// bytes.
template <class Totals>
FUSOR_DEVICE void total_of_grid(const Params& p, InMemoryTotals<Totals>* partials, Index cell, bool exists,
                                Totals* room, Totals (&totals)[kWidth]) {
  const Index begin = Index(blockIdx.y) * kCellsOfBlock;
  const Index end = begin + kCellsOfBlock < p.cells ? begin + kCellsOfBlock : static_cast<Index>(p.cells);
  const FastDivisor& fold = p.fold[0];
  const int results = static_cast<int>(fold.divide(end - begin)), folded = static_cast<int>(fold.divisor);
  InMemoryTotals<Totals>* const own = partials + fold.divide(begin) * p.parts;
  const auto leave = [&](int result, const Totals& total) {
    own[result * p.parts + Index(blockIdx.x)].value = total;
  };
  if constexpr (kFolds || kBlockParts > 1) {
    stage_block(totals, room);
    combine_each<2, Totals>(
        p, results, kStagedParts * folded,
        [&](int result, int i) {
          Index part = i;
          const int in_result = static_cast<int>(fold.split(part)), of_block = result * folded + in_result;
          return room[staged_cell(static_cast<int>(part), of_block / kWidth, of_block % kWidth)];
        },
        leave);
  } else {
    combine_near(totals);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      if (lane_in_row() == 0 && exists) leave(static_cast<int>(cell - begin) + i, totals[i]);
  }
  meet_grid();
  combine_each<4, Totals>(
      p, results, static_cast<int>(p.parts),
      [&](int result, int i) { return own[result * p.parts + i].value; },
      [&](int result, const Totals& total) { room[result] = total; });
  __syncthreads();
  Index result = cell - begin, rest = fold.split(result);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    totals[i] = room[result];
    if (++rest == fold.divisor) {
      rest = 0;
      ++result;
    }
  }
}

template <int kPhase>
FUSOR_DEVICE void run_phases(const Params& p, Copied<Y>& holder, Index first, Index (&at)[Y::kRank],
                             Index cell, bool exists, char* exchanged, Row& row) {
  if constexpr (kPhase < Y::kPhases) {
    using Totals = decltype(Y::totals(Phase<kPhase>{}));
    Totals totals[kWidth];
#pragma unroll
    for (Totals& total : totals) total.init();
    holder.template each<kPhase == 0>(p, first, at, false, [&](int, int count, const Held& held) {
      Y::add<kVector>(Phase<kPhase>{}, p.y, at, count, held, Y::fixed<kVector>(p.y, at, count), row, totals);
    });
    if constexpr (kPhase > 0) __syncthreads();
    char* const partials =
        p.partials + i64(kPhase) * (p.cells / p.fold[0].divisor) * p.parts * Y::kTotalsBytes;
    total_of_grid(p, reinterpret_cast<InMemoryTotals<Totals>*>(partials), cell, exists,
                  reinterpret_cast<Totals*>(exchanged), totals);
    Y::settle(Phase<kPhase>{}, p.y, at, totals, row);
    run_phases<kPhase + 1>(p, holder, first, at, cell, exists, exchanged, row);
  }
}

// A block's part of its rows, and a thread's values of its own ones.
struct Resident {
  Copied<Y> holder;
  Index first;
  Index at[Y::kRank];
  bool exists;
  Row row;

  // `exchanged`: kExchanged bytes.
  FUSOR_METHOD void run(const Params& p, char* memory, char* exchanged) {
    const Index asked = Index(blockIdx.y) * kSlots + slot_in_block();
    exists = asked < p.rows;
    const Index of_row = exists ? asked : p.rows - 1;
    first = Index(blockIdx.x) * kGroup + lane_in_row();
#pragma unroll
    for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
    coordinates<0, Y::kKept>(of_row, p.extents, at);
    if constexpr (kSpread) at[Y::kKept - 1] *= kVector;
    holder.bind(memory);
    holder.fill(p, first, at);
    begin_rows<Y>(p, at, row);
    run_phases<0>(p, holder, first, at, of_row * kWidth, exists, exchanged, row);
  }
  // Values of rows alone are stored by one thread.
  FUSOR_METHOD void finish_own_rows(const Params& p) {
    if (exists && blockIdx.x == 0 && lane_in_row() == 0) finish_rows<Y>(p, at, row);
  }
};
