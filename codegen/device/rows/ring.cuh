// Owns the kernel of rows whose blocks stay and have rows copied to shared memory ahead of them.
//
//   a warp        stream rows of turn t + kStages ──► stage t % kStages (one bulk copy a row and stream)
//   the block     waits for stage t % kStages: kSlots * kBatch rows, each of kStreams pieces
//                 phases, columns in registers (rows/turn.cuh)       all have read it ──► it is filled again
//   at the end    columns ──► partials[part] ──► rows/columns.cuh
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

#define FUSOR_METHOD __device__ __forceinline__
#include "codegen/device/rows/turn.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"

enum : int {
  kStages = Config::stages,
  kTurnRows = kSlots * kBatch,
};

FUSOR_DEVICE void copy_bytes(void* shared, const void* from, u32 bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier.word))
      : "memory");
}

struct Ring {
  char* memory;
  Barrier* full;

  // [stream][row of the turn][element]
  FUSOR_METHOD char* rows(const Params& p, int stage) const {
    return memory + stage * (kTurnRows * static_cast<int>(p.row_extent) * Y::kStreamedBytes);
  }
  FUSOR_METHOD void open() const {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) full[stage].init(1);
      fence_barriers();
    }
    __syncthreads();
  }
  // By the first warp.
  FUSOR_METHOD void fill(const Params& p, Index base, int stage) const {
    if (threadIdx.x >= 32 || base >= p.rows) return;
    const Index left = p.rows - base;
    const int count = left < kTurnRows ? static_cast<int>(left) : kTurnRows;
    const u32 elements = static_cast<u32>(p.row_extent);
    if (threadIdx.x == 0) full[stage].arrive_and_expect(count * elements * Y::kStreamedBytes);
    __syncwarp();
    // Rows that lie one behind another are one piece.
    const int pieces = p.adjacent != 0 ? 1 : count;
#pragma unroll 1
    for (int piece = threadIdx.x; piece < pieces; piece += 32) {
      Index at[Y::kRank];
#pragma unroll
      for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = 0;
      coordinates<0, Y::kKept>(base + piece, p.extents, at);
      char* to = rows(p, stage);
#pragma unroll
      for (int stream = 0; stream < Y::kStreams; ++stream) {
        const u32 bytes = elements * Y::stream_bytes(stream);
        copy_bytes(to + piece * bytes, Y::stream(p.y, at, stream), count / pieces * bytes, full[stage]);
        to += kTurnRows * bytes;
      }
    }
  }
};

struct InRing {
  const char* rows;
  int row;  // of the turn
  FUSOR_METHOD void fill(const Params&, Index, Index (&)[Y::kRank]) {}
  FUSOR_METHOD void forget() {}
  template <bool kFirst, class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool, Visit visit) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      if (spot.exists)
        visit(
            unit, spot.count,
            Y::held_in<kVector>(rows, kTurnRows * static_cast<int>(p.row_extent),
                                row * static_cast<int>(p.vectors) + unit * kGroup + static_cast<int>(first)));
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    rows_ring(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char memory[];
  __shared__ __align__(16) char exchanged[kAllExchangeBytes];
  __shared__ u64 arrivals[2];
  __shared__ Barrier full[kStages];
  Exchange exchange{exchanged, arrivals};
  const Ring ring{memory, full};
  ring.open();
  enter_launch(p, false);
  Index base = Index(blockIdx.x) * kTurnRows;
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) ring.fill(p, base + stage * p.row_step, stage);
  const Index first = lane_in_row();
  Rows<InRing> rows;
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
  rows.open(p, base, first);
  int stage = 0;
  u32 parity = 0;
  for (bool more = true; more;) {
    Rows<InRing> own = rows;
    const Index own_base = base;
    base += p.row_step;
    more = base < p.rows;
    if (more) rows.open(p, base, first);
    full[stage].wait(parity);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) own.holders[i] = {ring.rows(p, stage), i * kSlots + slot_in_block()};
    own.close(p, own_base, first, fixed, columns, exchange);
    __syncthreads();
    ring.fill(p, own_base + kStages * p.row_step, stage);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  let_next_launch_begin();
  leave_columns(p, first, columns, reinterpret_cast<Y::Columns*>(memory));
  leave_launch(p);
}
