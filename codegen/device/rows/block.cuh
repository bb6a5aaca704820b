// Owns the totals of a block that shares rows with others: of its threads, for each of its rows.
//
//   lanes    shuffles ──► staged[(parts + 1) / 2]: the second half is added to the first, until one is left
#pragma once

#include "codegen/device/rows/exchange.cuh"

// The totals of a block's threads in those of the first ones.
template <class Totals>
FUSOR_DEVICE void combine_block(Totals (&totals)[kWidth]) {
#pragma unroll
  for (int distance = kNear / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (Totals& total : totals) total.combine(from_lane(total, distance * kNearStep));
  }
  constexpr int kBlockParts = kGroup / kNear;
  if constexpr (kBlockParts > 1) {
    __shared__ Totals staged[(kBlockParts + 1) / 2 * kWidth * kSlots];
    const bool leads = lane_in_row() % kNear == 0;
    const int part = lane_in_row() / kNear;
    const auto place = [&](int of_part, int i) -> Totals& {
      return staged[(of_part * kWidth + i) * kSlots + slot_in_block()];
    };
#pragma unroll 1
    for (int parts = kBlockParts; parts > 1;) {
      const int half = (parts + 1) / 2;
      if (leads && part >= half && part < parts) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) place(part - half, i) = totals[i];
      }
      __syncthreads();
      if (leads && part + half < parts) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) totals[i].combine(place(part, i));
      }
      __syncthreads();
      parts = half;
    }
  }
}
