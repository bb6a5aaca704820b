// Owns the exchange of totals between the threads that share a row: lanes of a warp, warps of a block, blocks
// of a cluster. Every one of them ends with the same bits.
//
//   lanes    shuffles                                     kGroup threads a row, up to a warp
//   block    warps leave a part each ──► parts[2][kParts] in shared memory ──► all combined in order
//   cluster  the same; a part is left in the shared memory of every block of the cluster
#pragma once

constexpr int kThreads = Config::threads;
constexpr int kGroup = Config::group;      // threads of a block that share a row
constexpr int kCluster = Config::cluster;  // blocks that share a row
constexpr bool kSpread = Config::spread;   // a thread works on kWidth neighbouring rows
constexpr int kWidth = kSpread ? Config::vector : 1;
constexpr int kSlots = kThreads / kGroup;  // rows of a block, or vectors of them

// Neighbouring threads share a row, or lie on neighbouring rows.
FUSOR_DEVICE int lane_in_row() { return kSpread ? threadIdx.x / kSlots : threadIdx.x % kGroup; }
FUSOR_DEVICE int slot_in_block() { return kSpread ? threadIdx.x % kSlots : threadIdx.x / kGroup; }

// Threads of a warp that share a row, and how far apart they are.
constexpr int kNear = kSpread ? (kSlots < 32 ? 32 / kSlots : 1) : (kGroup < 32 ? kGroup : 32);
constexpr int kNearStep = kSpread ? (kSlots < 32 ? kSlots : 32) : 1;
constexpr int kParts = kGroup / kNear * kCluster;
constexpr int kCells = kSpread ? kSlots * kWidth : 1;  // totals of a part
constexpr bool kExchanges = kParts > 1;
constexpr int kExchangeBytes = kExchanges ? (kParts * kCells * Y::kTotalsBytes + 15) / 16 * 16 : 16;

FUSOR_DEVICE constexpr int power_of_two_from(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

FUSOR_DEVICE u32 rank_in_cluster() {
  u32 rank = 0;
  if constexpr (kCluster > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads that share rows; what they stored before is visible after it.
FUSOR_DEVICE void meet() {
  if constexpr (kCluster > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
  } else {
    __syncthreads();
  }
}

// In the shared memory of block `rank` of the cluster.
template <class Totals>
FUSOR_DEVICE void leave(Totals* place, const Totals& totals, u32 rank) {
  if constexpr (kCluster > 1) {
    u32 words[sizeof(Totals) / 4];
    memcpy(words, &totals, sizeof words);
    u32 address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(address)
                 : "r"(shared_address(place)), "r"(rank));
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Totals) / 4); ++i)
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address + 4 * i), "r"(words[i]) : "memory");
    return;
  }
  *place = totals;
}

// Combines the totals of all threads that share a row. Calls take turns with two areas of shared memory, so
// that one meeting a call is enough.
template <class Totals>
FUSOR_DEVICE void combine_row(Totals (&totals)[kWidth], char* parts_of_both, int& turn) {
#pragma unroll
  for (int distance = kNear / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (Totals& total : totals) total.combine(from_lane(total, distance * kNearStep));
  }
  if constexpr (kExchanges) {
    Totals* const parts = reinterpret_cast<Totals*>(parts_of_both + turn * kExchangeBytes);
    turn ^= 1;
    const int part = rank_in_cluster() * (kParts / kCluster) + lane_in_row() / kNear;
    if constexpr (kSpread) {
      if (lane_in_row() % kNear == 0) {
#pragma unroll
        for (int peer = 0; peer < kCluster; ++peer) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i)
            leave(parts + part * kCells + slot_in_block() * kWidth + i, totals[i], peer);
        }
      }
      meet();
#pragma unroll
      for (int i = 0; i < kWidth; ++i) totals[i].init();
#pragma unroll 4
      for (int other = 0; other < kParts; ++other) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          totals[i].combine(parts[other * kCells + slot_in_block() * kWidth + i]);
      }
    } else {
      constexpr int kLanes = kParts < 32 ? power_of_two_from(kParts) : 32;
      const int lane = threadIdx.x % 32;
      if (lane < kCluster) leave(parts + part, totals[0], lane);
      meet();
      totals[0].init();
#pragma unroll
      for (int other = lane % kLanes; other < kParts; other += kLanes) totals[0].combine(parts[other]);
      combine_lanes<kLanes>(totals[0]);
    }
  }
}
