// Owns the exchange of totals between the threads that share a row: lanes of a warp, warps of a block, blocks
// of a cluster. Every one of them ends with the same bits.
//
//   lanes    shuffles                                     kGroup threads a row, up to a warp
//   block    warps leave a part each ──► parts[2][kParts] in shared memory ──► all combined in order
//   cluster  the same; a part is sent to every block of the cluster, whose barrier counts the bytes that
//   came;
//            where a block has many rows, its parts are combined in its own shared memory before
#pragma once

enum : int {
  kThreads = Config::threads,
  kGroup = Config::group,      // threads of a block that share a row
  kCluster = Config::cluster,  // blocks that share a row
  kBatch = Config::batch,      // rows of a thread that are exchanged together
};
enum : bool { kSpread = Config::spread };  // a thread works on kWidth neighbouring rows
enum : int {
  kWidth = kSpread ? Config::vector : 1,
  kSlots = kThreads / kGroup,  // rows of a block, or vectors of them
};

// Neighbouring threads share a row, or lie on neighbouring rows.
FUSOR_DEVICE int lane_in_row() { return kSpread ? threadIdx.x / kSlots : threadIdx.x % kGroup; }
FUSOR_DEVICE int slot_in_block() { return kSpread ? threadIdx.x % kSlots : threadIdx.x / kGroup; }

// Threads of a warp that share a row, and how far apart they are.
enum : int {
  kNear = kSpread ? (kSlots < 32 ? 32 / kSlots : 1) : (kGroup < 32 ? kGroup : 32),
  kNearStep = kSpread ? (kSlots < 32 ? kSlots : 32) : 1,
  kMembers = kGroup / kNear,                          // parts of a block
  kCells = kBatch * (kSpread ? kSlots * kWidth : 1),  // totals of a part
};
// Sending costs an instruction for every word and peer: blocks of many rows send one part each.
enum : bool { kGathers = kSpread && kCluster > 1 && kMembers > 1 };
enum : int { kParts = (kGathers ? 1 : int(kMembers)) * kCluster };
enum : bool { kExchanges = kParts > 1 };
enum : int { kGatheredBytes = kGathers ? (kMembers * kCells * Y::kTotalsBytes + 15) / 16 * 16 : 0 };
enum : int {
  kExchangeBytes = kExchanges ? (kParts * kCells * Y::kTotalsBytes + 15) / 16 * 16 : 16,
  kAllExchangeBytes = 2 * kExchangeBytes + kGatheredBytes,
};

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

// Two areas for parts, which exchanges use in turn, so that one meeting an exchange is enough: who sends
// parts of the next but one has had those of the next, which everybody sends after reading this one's.
struct Exchange {
  char* areas;    // behind them the parts that a block combines itself
  u64* arrivals;  // of blocks of a cluster: a barrier an area
  int turn = 0;

  // The blocks of a cluster tell each other that their barriers are ready; begin() waits for that.
  FUSOR_METHOD void open() {
    if constexpr (kCluster > 1) {
      if (threadIdx.x == 0) {
        for (int area = 0; area < 2; ++area)
          asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrivals + area))
                       : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      }
      __syncthreads();
      asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
  }
  FUSOR_METHOD void begin() {
    if constexpr (kCluster > 1) {
      if (turn == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
  }

  template <class Totals>
  FUSOR_METHOD Totals* parts() const {
    return reinterpret_cast<Totals*>(areas + turn % 2 * kExchangeBytes);
  }
  // To the block of that rank.
  template <class Totals>
  FUSOR_METHOD void leave(Totals* place, const Totals& totals, u32 rank) const {
    if constexpr (kCluster > 1) {
      u32 words[sizeof(Totals) / 4];
      memcpy(words, &totals, sizeof words);
      u32 address, arrival;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(address)
                   : "r"(shared_address(place)), "r"(rank));
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(arrival)
                   : "r"(shared_address(arrivals + turn % 2)), "r"(rank));
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Totals) / 4); ++i)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                         address + 4 * i),
                     "r"(words[i]), "r"(arrival)
                     : "memory");
    } else {
      *place = totals;
    }
  }
  // All parts are there, and the next exchange may begin.
  template <class Totals>
  FUSOR_METHOD void meet() {
    if constexpr (kCluster > 1) {
      constexpr int kBytes = kParts * kCells * sizeof(Totals);
      const u32 arrival = shared_address(arrivals + turn % 2);
      if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(arrival), "n"(kBytes)
                     : "memory");
      asm volatile(
          "{\n.reg .pred done;\n"
          "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
          "@!done bra again;\n}" ::"r"(arrival),
          "r"(turn / 2 % 2)
          : "memory");
    } else {
      __syncthreads();
    }
    ++turn;
  }

  // Combines the totals of all threads that share rows.
  template <class Totals>
  FUSOR_METHOD void combine(Totals (&totals)[kBatch][kWidth]) {
#pragma unroll
    for (int distance = kNear / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (auto& of_row : totals) {
#pragma unroll
        for (Totals& total : of_row) total.combine(from_lane(total, distance * kNearStep));
      }
    }
    if constexpr (kExchanges) {
      begin();
      Totals* const shared = parts<Totals>();
      const int part = rank_in_cluster() * (kParts / kCluster) + lane_in_row() / kNear;
      if constexpr (kGathers)
        exchange_gathered(totals, shared);
      else if constexpr (kSpread)
        exchange_spread(totals, shared, part);
      else
        exchange_rows(totals, shared, part);
    }
  }

  // [part][row of the batch][slot][row of the vector]
  static FUSOR_METHOD int cell(int part, int row, int i) {
    return part * kCells + row * (kSlots * kWidth) + slot_in_block() * kWidth + i;
  }
  template <class Totals>
  FUSOR_METHOD void exchange_spread(Totals (&totals)[kBatch][kWidth], Totals* shared, int part) {
    if (lane_in_row() % kNear == 0) {
#pragma unroll
      for (int peer = 0; peer < kCluster; ++peer) {
#pragma unroll
        for (int row = 0; row < kBatch; ++row) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) leave(shared + cell(part, row, i), totals[row][i], peer);
        }
      }
    }
    meet<Totals>();
    combine_parts(totals, shared);
  }
  // The parts that a block combined before are read no more when all blocks' have come, its own among them.
  template <class Totals>
  FUSOR_METHOD void exchange_gathered(Totals (&totals)[kBatch][kWidth], Totals* shared) {
    Totals* const own = reinterpret_cast<Totals*>(areas + 2 * kExchangeBytes);
    if (lane_in_row() % kNear == 0) {
#pragma unroll
      for (int row = 0; row < kBatch; ++row) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) own[cell(lane_in_row() / kNear, row, i)] = totals[row][i];
      }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < kCells * kCluster; at += kThreads) {
      const int of_part = at % kCells;
      Totals total;
      total.init();
#pragma unroll 4
      for (int member = 0; member < kMembers; ++member) total.combine(own[member * kCells + of_part]);
      leave(shared + rank_in_cluster() * kCells + of_part, total, at / kCells);
    }
    meet<Totals>();
    combine_parts(totals, shared);
  }
  template <class Totals>
  FUSOR_METHOD void combine_parts(Totals (&totals)[kBatch][kWidth], const Totals* shared) {
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) totals[row][i].init();
#pragma unroll 4
      for (int other = 0; other < kParts; ++other) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) totals[row][i].combine(shared[cell(other, row, i)]);
      }
    }
  }

  // [row of the batch][part]
  template <class Totals>
  FUSOR_METHOD void exchange_rows(Totals (&totals)[kBatch][kWidth], Totals* shared, int part) {
    constexpr int kLanes = kParts < 32 ? power_of_two_from(kParts) : 32;
    const int lane = threadIdx.x % 32;
    if (lane < kCluster) {
#pragma unroll
      for (int row = 0; row < kBatch; ++row) leave(shared + row * kParts + part, totals[row][0], lane);
    }
    meet<Totals>();
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
      totals[row][0].init();
#pragma unroll
      for (int other = lane % kLanes; other < kParts; other += kLanes)
        totals[row][0].combine(shared[row * kParts + other]);
      combine_lanes<kLanes>(totals[row][0]);
    }
  }
};
