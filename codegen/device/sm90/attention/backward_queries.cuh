// Owns the part of attention's backward pass that stays with its queries on sm_90a: dq = ds k.
//
//   a tile          64 queries for each consumer warpgroup, all keys that they see, from the last block on
//   producer warp   q and dy, then a block of keys and one of values in turn:  TMA --> rings of stages
//   consumers       S' = q k[j+1]^T  ||  dq += dS k[j]
//                   dP' = dy v[j+1]^T  ||  P' of S'
//                   dS' of P' and dP', in 16 bits, from registers
//   live blocks     where a mask compares numbers of queries and keys, another producer warp finds the blocks
//                   whose keys may be seen, a tile or more ahead (live_blocks.cuh)
//   finish          dq --> DQ
//
//   shared:  q, dy [lines of 64][queries]   k [stages][lines of 64][keys]   v [stages][lines of 64][keys]
//   full     producer --> consumers: bytes have arrived     empty   consumers --> producer: a warp has read
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/attention/gradients.cuh"
#include "codegen/device/sm90/attention/live_blocks.cuh"
#include "codegen/device/sm90/attention/order.cuh"
#include "codegen/device/sm90/attention/ragged.cuh"

struct PQ;  // where an entry of a ragged dq begins and ends
struct N;   // how many keys and queries of an entry exist, where only the device knows
struct R;   // the number of a query that a mask compares
struct C;   // the number of a key

enum : int {
  kTileQ = 64 * kConsumers,
  kTileK = Config::step,
  kScores = kTileK / 2,  // of a thread
  kBlockBytes = kTileK * kLineBytes,
  kWords = Config::words,  // of bits of live blocks; 0: all are
};
enum : bool { kHanded = Config::ordered || kWords > 0 };  // tiles, by another warp

// q, k, v, dy: maps of (element, row, batch axes from the last to the first); extents: of the batch axes;
// shares: entries that share one of k and v, by axis; factor: exponents are of 2.

struct Shared {
  alignas(1024) u8 q[kHeadLines][kTileQ * kLineBytes];
  alignas(1024) u8 dy[kValueLines][kTileQ * kLineBytes];
  alignas(1024) u8 k[kStages][kHeadLines][kBlockBytes];
  alignas(1024) u8 v[kStages][kValueLines][kBlockBytes];
  Barrier q_full, dy_full, q_empty, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  BlockSlots<kWords, Config::ordered> slots;

  __device__ void init() {
    slots.init(kConsumers * kWarpgroup / 32 + (kWords > 0 ? 1 : 0));
    q_full.init(1);
    dy_full.init(1);
    q_empty.init(kConsumers * kWarpgroup / 32);
    for (int stage = 0; stage < kStages; ++stage) {
      k_full[stage].init(1);
      v_full[stage].init(1);
      k_empty[stage].init(kConsumers * kWarpgroup / 32);
      v_empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    fence_barriers();
  }
};

static_assert(sizeof(Shared) <= Config::shared_bytes, "the launch has room for all of it");

using Tile = QueryTile<kTileQ, kTileK, kRank>;

// A warp hands tiles and their live blocks over to all others.
template <class P, class Memory>
FUSOR_DEVICE void find_blocks(const P& p, Memory& shared) {
  hand_over<Config::ordered>(p, shared.slots, [&](TileQueue::Item item, u32* words) {
    const Tile tile = tile_within<Tile, N>(p, item);
    find_live<false, kWords>(p.ranges, tile.at, item.tile, tile.first, tile.end, words);
  });
}

template <class Memory>
FUSOR_DEVICE void produce(const Params& p, Memory& shared) {
  Ring<kStages> ring;
  u32 parity = 0;
  for (CopyTurns<kWords, Config::ordered> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    auto walk = blocks_of<kWords, Config::masks>(tile, shared.slots, turns);
    if (walk.is_empty()) continue;
    MapEntry<kBatch> of_q, of_k;
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) {
      of_q.set(axis, tile.at[axis]);
      of_k.set(axis, p.shares[axis].divide(tile.at[axis]));
    }
    MapEntry<kBatch> of_dy = of_q, of_v = of_k;
    const auto& q = rows_at(p.q, of_q);
    const auto& dy = rows_at(p.dy, of_dy);
    const auto& k = rows_at(p.k, of_k);
    const auto& v = rows_at(p.v, of_v);
    shared.q_empty.wait(parity ^ 1);
    copy_rows(shared.q, q, shared.q_full, tile.row, of_q.at);
    copy_rows(shared.dy, dy, shared.dy_full, tile.row, of_dy.at);
    parity ^= 1;
#pragma unroll 1
    for (int block = walk.last(); walk.has(block); block = walk.next(block)) {
      shared.k_empty[ring.stage].wait(ring.parity ^ 1);
      copy_rows(shared.k[ring.stage], k, shared.k_full[ring.stage], block * kTileK, of_k.at);
      shared.v_empty[ring.stage].wait(ring.parity ^ 1);
      copy_rows(shared.v[ring.stage], v, shared.v_full[ring.stage], block * kTileK, of_v.at);
      ring.advance();
    }
  }
}

// A thread's two queries of a tile, and the way from products to gradients of scores.
struct QueryRows {
  int row[2];
  Index at[2][kRank];
  float values[2][kRowValues > 0 ? kRowValues : 1];
  E::Loads loads[2];

  __device__ void begin(const Params& p, const Tile& tile, int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row[half] = first + 8 * half;
      const int existing = min(row[half], tile.last);
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[half][axis] = tile.at[axis];
      at[half][kBatch] = existing;
      at[half][kBatch + 1] = 0;
      if constexpr (!kPlain) loads[half] = E::loads(p.e, at[half], 1);
      row_values<R0, R1, R2, R3>(p, at[half], values[half]);
    }
  }

  __device__ void probabilities(const Params& p, float (&scores)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      scores[i] = exp2_short(multiply_add(scores[i], p.factor, values[i / 2 % 2][0]));
    if constexpr (Config::rounds) {
      u32 words[kScores / 2];
      pack<Element>(scores, words);
      round_as_packed<Element>(words, scores);
    }
  }

  __device__ void gradients(const float (&p)[kScores], float (&products)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      products[i] = p[i] * (products[i] - values[i / 2 % 2][kRowValues > 1 ? 1 : 0]);
  }

  // Zeros where a query does not see a key of the block at `key`.
  template <class Compared>
  __device__ void hide(const Params& p, const Tile& tile, int key, const Compared& compared,
                       float (&products)[kScores]) const {
    KeyRange seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      seen[half] = p.visible.of_row(hidden(static_cast<int>(at[half][kBatch])), static_cast<int>(p.keys));
      if constexpr (Config::limited)
        seen[half].end = row[half] < tile.queries ? min(seen[half].end, tile.keys) : seen[half].first;
    }
    const int mine = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int half = i / 2 % 2, column = mine + i / 4 * 8 + i % 2;
      if (column < seen[half].first || column >= seen[half].end || !compared.has(i)) products[i] = 0;
    }
  }

  // The same by site E.
  template <bool kWhole>
  __device__ void by_site(const Params& p, int key, const float (&scores)[kScores],
                          float (&products)[kScores]) {
    const int mine = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const int half = i / 2 % 2, column = mine + i / 4 * 8;
      at[half][kBatch + 1] = column;
      const int count = kWhole ? 2 : static_cast<int>(p.keys) - column;
      const auto row = [&](int value) { return Vec<float, 2>{values[half][value], values[half][value]}; };
      const auto found =
          apply_pair<E>(p.e, at[half], count, loads[half], Vec<float, 2>{scores[i], scores[i + 1]},
                        Vec<float, 2>{products[i], products[i + 1]}, row);
#pragma unroll
      for (int c = 0; c < 2; ++c) products[i + c] = found[c];
    }
  }
};

template <class Result, class Places, class Params>
FUSOR_DEVICE void finish_row(const Params& p, Index (&at)[kRank], bool exists, int half,
                             const float (&dq)[kHead / 2]) {
  const int columns = static_cast<int>(p.elements);
  if constexpr (Config::placed_dq)
    store_placed_row<Result, Places>(p.dq, p.pq, p.to_dq, at, exists, columns, half, 1.0f, dq);
  else
    store_row<Result>(p.dq, at, exists, columns, half, 1.0f, dq);
}

FUSOR_DEVICE void finish(const Params& p, const Tile& tile, const QueryRows& rows,
                         const float (&dq)[kHead / 2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Index at[kRank];
#pragma unroll
    for (int axis = 0; axis <= kBatch; ++axis) at[axis] = rows.at[half][axis];
    finish_row<DQ, PQ>(p, at, rows.row[half] <= tile.last, half, dq);
  }
}

// The numbers that a mask compares, of a thread's two queries and the keys of a block from `key` on.
template <class OfQuery, class OfKey, class P>
FUSOR_DEVICE void find_seen(const P& p, const QueryRows& rows, int key, bool is_mixed,
                            SeenScores<Config::masks, kScores>& seen) {
  if constexpr (Config::masks)
    seen.find(is_mixed, [&](int pair) {
      Index at[kRank];
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[axis] = rows.at[0][axis];
      at[kBatch] = 0;
      at[kBatch + 1] = key + 8 * pair;
      const auto keys =
          OfKey::template apply<2>(p.c, at, static_cast<int>(p.keys) - static_cast<int>(at[kBatch + 1]));
      u32 bits = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        at[kBatch] = rows.at[half][kBatch];
        at[kBatch + 1] = 0;
        const auto query = OfQuery::template apply<1>(p.r, at, 1)[0];
#pragma unroll
        for (int i = 0; i < 2; ++i) bits |= u32(sees(query, keys[i])) << (2 * half + i);
      }
      return bits;
    });
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  Ring<kStages> ring;
  u32 parity = 0;
  const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  const u8* const q = shared.q[0] + consumer * 64 * kLineBytes;
  const u8* const dy = shared.dy[0] + consumer * 64 * kLineBytes;
  for (Turns<kHanded> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    auto walk = blocks_of<kWords, Config::masks>(tile, shared.slots, turns);
    QueryRows rows;
    rows.begin(p, tile, tile.row + consumer * 64 + warp * 16 + lane / 4);
    constexpr SharedWords kWordsOfKeys = Config::shares_words ? SharedWords::columns : SharedWords::none;
    Kept<Config::drops, M, kScores, kWordsOfKeys> kept;
    kept.begin(p, rows.at[0]);
    float dq[kHead / 2];
    clear(dq);
    if (walk.is_empty()) {
      finish(p, tile, rows, dq);
      continue;
    }
    shared.q_full.wait(parity);
    shared.dy_full.wait(parity);
    parity ^= 1;
    Ring<kStages> previous = ring;
#pragma unroll 1
    for (int block = walk.last(); walk.has(block); block = walk.next(block)) {
      // Fresh ones for each block: what an earlier one computed in them must not reach a product in flight.
      float scores[kScores], products[kScores];
      u32 gradients[kScores / 2];
      const int stage = ring.stage;
      const bool is_mixed = walk.is_mixed(block), whole = tile.is_whole(block) && !is_mixed;
      shared.k_full[stage].wait(ring.parity);
      issue_along<Element, kHead, kTileQ, kTileK>(q, shared.k[stage][0], scores);
      // The product of the block before is complete, and what it reads is free.
      product_wait<1>();
      if (block != walk.last()) release(shared.k_empty[previous.stage]);
      shared.v_full[stage].wait(ring.parity);
      issue_along<Element, kValue, kTileQ, kTileK>(dy, shared.v[stage][0], products);
      kept.template find<kBatch + 1>(p, rows.at, block * kTileK + 2 * (threadIdx.x % 4));
      SeenScores<Config::masks, kScores> seen;
      find_seen<R, C>(p, rows, block * kTileK + 2 * (threadIdx.x % 4), is_mixed, seen);
      product_wait<1>();
      pin(scores);
      if constexpr (kPlain) rows.probabilities(p, scores);
      product_wait<0>();
      pin(products);
      release(shared.v_empty[stage]);
      if constexpr (kPlain) {
        kept.drop_others(products);
        rows.gradients(scores, products);
      } else {
        if (whole)
          rows.by_site<true>(p, block * kTileK, scores, products);
        else
          rows.by_site<false>(p, block * kTileK, scores, products);
      }
      if (!whole) rows.hide(p, tile, block * kTileK, seen, products);
      pack<Element>(products, gradients);
      issue_across<Element, kTileK>(gradients, shared.k[stage][0], dq, 1);
      previous = ring;
      ring.advance();
    }
    product_wait<0>();
    pin(dq);
    release(shared.k_empty[previous.stage]);
    release(shared.q_empty);
    finish(p, tile, rows, dq);
  }
}

enum : int {
  kProducerRegisters = kConsumers == 2 ? (kWords > 0 ? 40 : 24) : 32,
  kConsumerRegisters = kConsumers == 2 ? (kWords > 0 ? 232 : 240) : 160,
};

extern "C" __global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    attention_backward_queries(const __grid_constant__ Params p) {
  declare_products();
  extern __shared__ __align__(1024) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
  if (threadIdx.x == 0) {
    prefetch_map(p.q);
    prefetch_map(p.k);
    prefetch_map(p.v);
    prefetch_map(p.dy);
    shared.init();
  }
  enter_launch();
  __syncthreads();
  if (warpgroup == 0) {
    release_registers<kProducerRegisters>();
    if (is_producer(0)) produce(p, shared);
    if constexpr (kWords > 0)
      if (threadIdx.x / 32 == 1) find_blocks(p, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(p, shared, warpgroup - 1);
  }
}
