// Owns the part of attention's backward pass that multiplies gradients of scores by keys on sm_90a, where
// backward_keys has left these in the workspace: dq = ds k. Memory bounds it: two bytes a score.
//
//   a tile          64 queries for each consumer warpgroup; all keys that they see, 64 at a time, from the
//                   last to the first
//   producer warp   ds of the tile's queries and a block of keys, and these keys:  bulk copies --> ring
//   consumers       dS by ldmatrix, which exchanges its axes, into registers; dq += dS k[j]
//   finish          dq --> DQ
//
//   shared:  ds [stages][consumers][8 KB]   k [stages][lines of 64][keys]
//   full     producer --> consumers: bytes have arrived     empty   consumers --> producer: a warp has read
#include "fusor_generated.cuh"

#include "codegen/device/sm90/attention/chain.cuh"
#include "codegen/device/sm90/attention/order.cuh"
#include "codegen/device/sm90/attention/ragged.cuh"
#include "codegen/device/sm90/attention/spilled.cuh"

struct PQ;  // where an entry of a ragged dq begins and ends
struct N;   // how many keys and queries of an entry exist, where only the device knows

using Element = Config::Element;
enum : int {
  kRank = DQ::kRank,
  kBatch = kRank - 2,
  kConsumers = Config::consumers,
  kStages = Config::stages,
  kTileQ = kSpilledRows * kConsumers,
  kTileK = kSpilledRows,
  kHead = Config::head,  // a multiple of 16
  kHeadLines = lines_of(kHead),
};

// k: a map of (element, row, batch axes from the last to the first); extents: of the batch axes; shares:
// entries that share one of k, by axis; gradients: spilled.cuh.

struct Shared {
  alignas(1024) u8 k[kStages][kHeadLines][kTileK * kLineBytes];
  alignas(1024) u8 ds[kStages][kConsumers][kSpilledBytes];
  Barrier full[kStages], empty[kStages];
  TileSlots<Config::ordered> slots;

  __device__ void init() {
    slots.init(kConsumers * kWarpgroup / 32);
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(2);
      empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    fence_barriers();
  }
};

struct Tile : QueryTile<kTileQ, kTileK, kRank> {
  int entry;  // of those that the launch has

  __device__ Tile(const Params& p, TileQueue::Item item)
      : QueryTile(p, item, Config::ordered ? 0 : static_cast<int>(p.spilled.first)),
        entry(Config::ordered ? p.spilled.entry_of(item.entry) : item.entry) {}
};

template <class Memory>
FUSOR_DEVICE void produce(const Params& p, Memory& shared) {
  Ring<kStages> ring;
  for (AskingTurns<Config::ordered> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    MapEntry<kBatch> of_k;
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) of_k.set(axis, p.shares[axis].divide(tile.at[axis]));
    const auto& k = rows_at(p.k, of_k);
#pragma unroll 1
    for (int block = tile.end - 1; block >= tile.first; --block) {
      Barrier& full = shared.full[ring.stage];
      shared.empty[ring.stage].wait(ring.parity ^ 1);
      if (threadIdx.x == 0) {
        full.arrive_and_expect(kConsumers * kSpilledBytes);
        copy_bytes(shared.ds[ring.stage][0],
                   p.gradients + p.spilled.place(tile.entry, block, tile.row / kTileK),
                   kConsumers * kSpilledBytes, full);
      }
      copy_rows(shared.k[ring.stage], k, full, block * kTileK, of_k.at);
      ring.advance();
    }
  }
}

// Queries for which backward_keys has written blocks of keys: those that any key of a tile of its own may
// see.
struct Written {
  int row, step, queries;  // as many as exist

  __device__ bool has(const Params& p, int block) const {
    const int key = block * kTileK / step * step, keys = static_cast<int>(p.keys);
    const RowRange any = p.visible.of_keys(key, min(key + step, keys) - 1, queries);
    return any.end > any.first && row + kSpilledRows > any.first && row < any.end;
  }
};

// The operand's words of 16 keys, as sums of a product would lie.
template <int kCount>
FUSOR_DEVICE void load_step(u32 (&words)[kCount], int step, const u8* ds) {
  u32 four[4];
  load_matrices<true>(four, ds + step * (kSpilledBytes / 4));
#pragma unroll
  for (int i = 0; i < 4; ++i) words[4 * step + i] = four[i];
}

template <class Result, class Places, class Params>
FUSOR_DEVICE void finish_row(const Params& p, Index (&at)[kRank], bool exists, int half,
                             const float (&dq)[kHead / 2]) {
  const int columns = static_cast<int>(p.elements);
  if constexpr (Config::placed_dq)
    store_placed_row<Result, Places>(p.dq, p.pq, p.to_dq, at, exists, columns, half, 1.0f, dq);
  else
    store_row<Result>(p.dq, at, exists, columns, half, 1.0f, dq);
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  Ring<kStages> ring;
  const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  // Matrices in the order of the operand's words: queries before keys.
  const int matrix = lane / 8 % 2 * 2 + lane / 16;
  const int mine = warp * 512 + matrix * 128 + lane % 8 * 16;
  for (Turns<Config::ordered> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    const Written written{tile.row + consumer * kSpilledRows, static_cast<int>(p.spilled.step),
                          Config::limited ? tile.queries : static_cast<int>(p.queries)};
    float dq[kHead / 2];
    clear(dq);
#pragma unroll 1
    for (int block = tile.end - 1; block >= tile.first; --block) {
      const int stage = ring.stage;
      shared.full[stage].wait(ring.parity);
      if (written.has(p, block)) {
        u32 words[kSpilledRows / 4];
        const u8* const ds = shared.ds[stage][consumer] + mine;
#pragma unroll
        for (int step = 0; step < kSpilledRows / 16; ++step) load_step(words, step, ds);
        issue_across<Element, kTileK>(words, shared.k[stage][0], dq, 1);
        product_wait<0>();
        pin(dq);
      }
      release(shared.empty[stage]);
      ring.advance();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Index at[kRank];
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[axis] = tile.at[axis];
      const int row = tile.row + consumer * kSpilledRows + warp * 16 + lane / 4 + 8 * half;
      at[kBatch] = min(row, tile.last);
      finish_row<DQ, PQ>(p, at, row <= tile.last, half, dq);
    }
  }
  leave_chain(p);
}

enum : int {
  kProducerRegisters = kConsumers == 2 ? 24 : 32,
  kConsumerRegisters = kConsumers == 2 ? 240 : 160,
};

extern "C" __global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    attention_backward_spilled(const __grid_constant__ Params p) {
  declare_products();
  extern __shared__ __align__(1024) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
  if (threadIdx.x == 0) {
    prefetch_map(p.k);
    shared.init();
  }
  enter_chain(p);
  __syncthreads();
  if (warpgroup == 0) {
    release_registers<kProducerRegisters>();
    if (is_producer(0)) produce(p, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(p, shared, warpgroup - 1);
  }
}
