// Owns the totals of a block that shares rows with others: of its threads, for each of its rows.
//
//   lanes    shuffles ──► parts ──► staged[kStagedParts]: the second half is added to the first, until one is
//            left, or once only
#pragma once

#include "codegen/device/rows/exchange.cuh"

enum : int {
  kBlockParts = kGroup / kNear,          // parts of a row: one a warp, or a thread
  kStagedParts = (kBlockParts + 1) / 2,  // those in shared memory at once
  // Rows of a vector, which a thread writes one after the other, begin where other banks are.
  kSlotCells = kWidth > 1 ? kWidth + 1 : 1,
  kPartCells = kSlots * kSlotCells,
  kStagedCells = kStagedParts * kPartCells,
};

// staged[part][slot][row of the vector]
FUSOR_DEVICE int staged_cell(int part, int slot, int i) { return part * kPartCells + slot * kSlotCells + i; }

template <class Totals>
FUSOR_DEVICE void combine_near(Totals (&totals)[kWidth]) {
#pragma unroll
  for (int distance = kNear / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (Totals& total : totals) total.combine(from_lane(total, distance * kNearStep));
  }
}

// Adds the second half of so many parts, rounded down, to the first. `staged` is free again when all threads
// have returned.
template <class Totals>
FUSOR_DEVICE void halve_parts(Totals (&totals)[kWidth], Totals* staged, int parts) {
  const bool leads = lane_in_row() % kNear == 0;
  const int part = lane_in_row() / kNear, half = (parts + 1) / 2, slot = slot_in_block();
  if (leads && part >= half && part < parts) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) staged[staged_cell(part - half, slot, i)] = totals[i];
  }
  __syncthreads();
  if (leads && part + half < parts) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) totals[i].combine(staged[staged_cell(part, slot, i)]);
  }
  __syncthreads();
}

// The totals of a block's threads in those of the first ones. `staged`: room for kStagedCells.
template <class Totals>
FUSOR_DEVICE void combine_block(Totals (&totals)[kWidth], Totals* staged) {
  combine_near(totals);
#pragma unroll 1
  for (int parts = kBlockParts; parts > 1; parts = (parts + 1) / 2) halve_parts(totals, staged, parts);
}

// The totals of a block's threads in kStagedParts parts in shared memory.
template <class Totals>
FUSOR_DEVICE void stage_block(Totals (&totals)[kWidth], Totals* staged) {
  combine_near(totals);
  if constexpr (kBlockParts > 1) halve_parts(totals, staged, kBlockParts);
  const int part = lane_in_row() / kNear;
  if (lane_in_row() % kNear == 0 && part < kStagedParts) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) staged[staged_cell(part, slot_in_block(), i)] = totals[i];
  }
  __syncthreads();
}
