// Owns the part of attention's backward pass that stays with its keys on sm_90a: dk = ds^T q and dv = p^T dy.
//
//   a tile          64 keys for each consumer warpgroup; all queries that see them, of all their heads
//
//   producer warps  thread 0: k and v, then blocks of q and dy  --TMA--> ring of stages
//                   warps 1 and 3: values of a block's queries (log-sum-exp, ...)  --> rows of the stage
//   consumers       S' = k q[j+1]^T  ||  dk += dS q[j]        keys are rows of S and dP, queries columns
//                   dP' = v dy[j+1]^T  ||  P' of S'
//                   dv += P' dy[j+1]  ||  dS' of P' and dP'    P and dS in 16 bits, from registers
//                   dS' --> workspace, where dq is made of it by backward_spilled
//   dropout         which probabilities stay is found from their coordinates while products are in flight
//   live blocks     where a mask compares numbers, warp 3 finds the blocks of queries that may see a tile's
//                   keys, a tile or more ahead, and warp 1 alone loads values (live_blocks.cuh)
//   dS' --> DS      where others read it; zeros in front of the tile for blocks that see none of its keys
//   finish          dk --> DK, dv --> DV
//
//   shared:  k, v [lines of 64][keys]   q, dy [stages][lines of 64][queries]   rows [stages][values][queries]
//            ds [consumers][warps], on its way out
//   full     producers --> consumers: bytes have arrived     empty   consumers --> producers: a warp has read
#include "fusor_generated.cuh"

#include "codegen/device/sm90/attention/chain.cuh"
#include "codegen/device/sm90/attention/gradients.cuh"
#include "codegen/device/sm90/attention/live_blocks.cuh"
#include "codegen/device/sm90/attention/order.cuh"
#include "codegen/device/sm90/attention/ragged.cuh"
#include "codegen/device/sm90/attention/spilled.cuh"
#include "codegen/device/sm90/attention/stored_scores.cuh"

struct DK;  // where dk and dv leave, as far as they are asked for
struct DV;

struct DS;  // where gradients of scores leave, if others read them
struct PK;  // where an entry of a ragged dk or dv begins and ends
struct PV;
struct N;  // how many keys and queries of an entry exist, where only the device knows
struct R;  // the number of a query that a mask compares
struct C;  // the number of a key

enum : int {
  kTileK = 64 * kConsumers,
  kTileQ = Config::step,
  kWords = Config::words,  // of bits of live blocks; 0: all are
};
enum : bool {
  kKeys = Config::gives_keys,
  kValues = Config::gives_values,
  kSpills = Config::spills,
  kStores = Config::stores,                 // gradients of scores, for others to read
  kHanded = Config::ordered || kWords > 0,  // tiles, by another warp
};
enum : int { kScores = kTileQ / 2 };  // of a thread
static_assert(!kSpills || (kKeys && kTileQ == kSpilledRows), "a block of queries is one of what is spilled");
enum : int {
  kBlockBytes = kTileQ * kLineBytes,
  kReaders = 3,  // warps of the producers that are told which tile is next: all but the one that asks
};

// q, k, v, dy: maps of (element, row, batch axes from the last to the first); extents: of the batch axes,
// those of heads that share keys 1; members: of these; shares: entries that share one of k and v, by axis;
// factor: exponents are of 2.

struct Shared {
  alignas(1024) u8 k[kHeadLines][kTileK * kLineBytes];
  alignas(1024) u8 v[kKeys ? kValueLines : 1][kKeys ? kTileK * kLineBytes : 1024];
  alignas(1024) u8 q[kStages][kHeadLines][kBlockBytes];
  alignas(1024) u8 dy[kStages][kValueLines][kBlockBytes];
  alignas(128) u8 ds[kConsumers][4][kSpills ? kSpilledBytes / 4 : 16];  // of a warp
  alignas(16) float rows[kStages][kRowValues > 0 ? kRowValues : 1][kTileQ];
  Barrier k_full, v_full, kv_empty, q_full[kStages], dy_full[kStages], rows_full[kStages], empty[kStages];
  BlockSlots<kWords, Config::ordered> slots;

  __device__ void init() {
    slots.init(kConsumers * kWarpgroup / 32 + kReaders);
    k_full.init(1);
    v_full.init(1);
    kv_empty.init(kConsumers * kWarpgroup / 32);
    for (int stage = 0; stage < kStages; ++stage) {
      q_full[stage].init(1);
      dy_full[stage].init(1);
      rows_full[stage].init(1);
      empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    fence_barriers();
  }
};

static_assert(sizeof(Shared) <= Config::shared_bytes, "the launch has room for all of it");

using Blocks = RisingBlocks<kWords, Config::masks>;

// A tile of keys and its blocks of queries, which are walked for one head after another.
struct Tile {
  int key, last;      // first and last key that exists
  int first, end;     // blocks of queries that see any of them
  Index at[kRank];    // the entry's place in the batch
  int keys, queries;  // that exist

  template <class Parameters>
  __device__ Tile(const Parameters& p, TileQueue::Item item) {
    // Early keys are seen by most queries where a mask is causal.
    key = (static_cast<int>(p.queue.tiles) - 1 - item.tile) * kTileK;
    last = min(key + kTileK, static_cast<int>(p.keys)) - 1;
    coordinates<0, kBatch>(Index(item.entry + static_cast<int>(p.first)), p.extents, at);
    keys = static_cast<int>(p.keys);
    queries = static_cast<int>(p.queries);
    if constexpr (Config::limited) find_lengths<N>(p, at, keys, queries);
    const RowRange any = p.visible.of_keys(key, last, queries);
    first = any.first / kTileQ;
    end = any.end > any.first && key < keys ? (any.end + kTileQ - 1) / kTileQ : first;
  }
  // Blocks of all heads.
  __device__ int steps(const Params& p, const Blocks& blocks) const {
    return blocks.count(first, end) * static_cast<int>(p.heads);
  }
  // Whether all queries of the block exist and see all keys of the tile. Keys that do not exist are seen.
  __device__ bool is_whole(const Params& p, int block) const {
    const int row = block * kTileQ, end_row = row + kTileQ;
    const KeyRange all = p.visible.of_all(row, end_row - 1, static_cast<int>(p.keys));
    const int end_key = min(key + kTileK, static_cast<int>(p.keys));
    if (Config::limited && (end_row > queries || end_key > keys)) return false;
    return end_row <= static_cast<int>(p.queries) && all.first <= key && end_key <= all.end;
  }
};

// The blocks of a tile, head by head.
struct Walk {
  const Params& p;
  const Tile& tile;
  const Blocks blocks;
  int block, head = 0;
  Index at[kRank];  // of the head's queries

  __device__ Walk(const Params& p_, const Tile& tile_, const Blocks& blocks_)
      : p(p_), tile(tile_), blocks(blocks_), block(blocks_.from(tile_.first, tile_.end)) {
    begin_head();
  }
  __device__ void begin_head() {
    Index member[kRank];
    coordinates<0, kBatch>(Index(head), p.members, member);
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) at[axis] = tile.at[axis] + member[axis];
  }
  // Whether another head begins.
  __device__ bool advance() {
    block = blocks.from(block + 1, tile.end);
    if (block < tile.end) return false;
    next_head();
    return true;
  }
  __device__ void next_head() {
    block = blocks.from(tile.first, tile.end);
    ++head;
    begin_head();
  }
};

// Producers find a tile anew for each head: they have few registers, and time.
struct Head {
  int first, end;  // blocks
  Index at[kRank];

  __device__ Head(const Params& p, TileQueue::Item item, int head) {
    const Tile tile(p, item);
    Index member[kRank];
    coordinates<0, kBatch>(Index(head), p.members, member);
    first = tile.first;
    end = tile.end;
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) at[axis] = tile.at[axis] + member[axis];
  }
};

template <bool kSecond, class A, class B>
FUSOR_DEVICE const auto& one_of(const A& a, const B& b) {
  if constexpr (kSecond)
    return b;
  else
    return a;
}

// The producer that copies k and q asks for tiles, unless these are handed over.
template <bool kOfValues>
struct ProducerTurns : Turns<kHanded> {};
template <>
struct ProducerTurns<false> : CopyTurns<kWords, Config::ordered> {};

// One thread copies k and q, another one v and dy: one has not registers enough for both.
template <bool kOfValues, class Memory>
FUSOR_DEVICE void produce(const Params& p, Memory& shared) {
  Ring<kStages> ring;
  u32 parity = 0;
  for (ProducerTurns<kOfValues> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Blocks blocks(shared.slots, turns);
    if (Tile(p, turns.item(p, shared.slots)).steps(p, blocks) == 0) continue;
    if constexpr (!kOfValues || kKeys) {
      const Tile tile(p, turns.again(p, shared.slots));
      MapEntry<kBatch> of_k;
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) of_k.set(axis, p.shares[axis].divide(tile.at[axis]));
      const auto& keys = rows_at(one_of<kOfValues>(p.k, p.v), of_k);
      shared.kv_empty.wait(parity ^ 1);
      parity ^= 1;
      if constexpr (kOfValues)
        copy_rows(shared.v, keys, shared.v_full, tile.key, of_k.at);
      else
        copy_rows(shared.k, keys, shared.k_full, tile.key, of_k.at);
    }
#pragma unroll 1
    for (int number = 0; number < static_cast<int>(p.heads); ++number) {
      const Head head(p, turns.again(p, shared.slots), number);
      MapEntry<kBatch> of_q;
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) of_q.set(axis, head.at[axis]);
      const auto& queries = rows_at(one_of<kOfValues>(p.q, p.dy), of_q);
#pragma unroll 1
      for (int block = blocks.from(head.first, head.end); block < head.end;
           block = blocks.from(block + 1, head.end)) {
        shared.empty[ring.stage].wait(ring.parity ^ 1);
        if constexpr (kOfValues)
          copy_rows(shared.dy[ring.stage], queries, shared.dy_full[ring.stage], block * kTileQ, of_q.at);
        else
          copy_rows(shared.q[ring.stage], queries, shared.q_full[ring.stage], block * kTileQ, of_q.at);
        ring.advance();
      }
    }
  }
}

// The blocks of all tiles and heads, one after another.
template <class Slots>
struct BlockCursor {
  Slots& slots;
  Turns<kHanded> turns;
  bool exists;
  int number = 0, block = 0, end = 0;
  Index at[kRank];  // of the head's queries

  __device__ BlockCursor(const Params& p, Slots& slots_) : slots(slots_), exists(turns.find(p, slots)) {
    find(p);
  }
  __device__ void advance(const Params& p) {
    block = Blocks(slots, turns).from(block + 1, end);
    if (block < end) return;
    ++number;
    find(p);
  }

 private:
  // The first block of this head, or of the next one that has any.
  __device__ void find(const Params& p) {
#pragma unroll 1
    while (exists) {
      if (number < static_cast<int>(p.heads)) {
        const Head head(p, turns.again(p, slots), number);
        end = head.end;
        block = Blocks(slots, turns).from(head.first, end);
#pragma unroll
        for (int axis = 0; axis < kBatch; ++axis) at[axis] = head.at[axis];
        if (block < end) return;
      }
      turns.leave(slots);
      exists = turns.find(p, slots);
      number = 0;
    }
  }
};

enum : int { kRowWarps = kWords > 0 ? 1 : 2, kRowSlots = kRowValues > 0 ? kRowValues : 1 };
// Queries of a lane whose values are on their way. With computed scores, which have more, two of 48 would
// spill.
enum : int { kAtOnce = kTileQ == 64 || (kTileQ == 48 && kPlain) ? 2 : 1 };

// Values of a lane's queries of a block from `first` on: all are on their way before the first is there.
template <class Cursor>
FUSOR_DEVICE void load_rows(const Params& p, const Cursor& cursor, int first,
                            float (&values)[kAtOnce][kRowSlots]) {
  Index at[kRank];
#pragma unroll
  for (int axis = 0; axis < kBatch; ++axis) at[axis] = cursor.at[axis];
  at[kBatch + 1] = 0;
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int row = cursor.block * kTileQ + first + 32 * i + static_cast<int>(threadIdx.x % 32);
    at[kBatch] = min(row, static_cast<int>(p.queries) - 1);
    row_values<R0, R1, R2, R3>(p, at, values[i]);
  }
}

// Warps that take turns: the values of a block's queries, loaded while the stage is not free yet.
FUSOR_DEVICE void produce_rows(const Params& p, Shared& shared, int warp) {
  Ring<kStages> ring;
  BlockCursor cursor(p, shared.slots);
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int turn = 0; cursor.exists; turn = (turn + 1) % kRowWarps) {
    if (turn == warp) {
#pragma unroll 1
      for (int first = 0; first < kTileQ; first += 32 * kAtOnce) {
        float values[kAtOnce][kRowSlots];
        load_rows(p, cursor, first, values);
        if (first == 0) shared.empty[ring.stage].wait(ring.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
          for (int value = 0; value < kRowValues; ++value) {
            const int column = first + 32 * i + lane;
            if (column < kTileQ) shared.rows[ring.stage][value][column] = values[i][value];
          }
      }
      __syncwarp();
      if (lane == 0) shared.rows_full[ring.stage].arrive();
    }
    ring.advance();
    cursor.advance(p);
  }
}

// A warp hands tiles and their live blocks over to all others.
template <class P, class Memory>
FUSOR_DEVICE void find_blocks(const P& p, Memory& shared) {
  hand_over<Config::ordered>(p, shared.slots, [&](TileQueue::Item item, u32* words) {
    const Tile tile(p, item);
    find_live<true, kWords>(p.ranges, tile.at, tile.key / kTileK, tile.first, tile.end, words);
  });
}

// The numbers that a mask compares, of a thread's two keys and the queries of a block of the head at `place`.
template <class OfQuery, class OfKey, class P>
FUSOR_DEVICE void find_seen(const P& p, const Index (&place)[kRank], const int (&keys)[2], int query,
                            bool is_mixed, SeenScores<Config::masks, kScores>& seen) {
  if constexpr (Config::masks)
    seen.find(is_mixed, [&](int pair) {
      Index at[kRank];
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[axis] = place[axis];
      at[kBatch] = query + 8 * pair;
      at[kBatch + 1] = 0;
      const auto queries =
          OfQuery::template apply<2>(p.r, at, static_cast<int>(p.queries) - static_cast<int>(at[kBatch]));
      u32 bits = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        at[kBatch] = 0;
        at[kBatch + 1] = keys[half];
        const auto key = OfKey::template apply<1>(p.c, at, 1)[0];
#pragma unroll
        for (int i = 0; i < 2; ++i) bits |= u32(sees(queries[i], key)) << (2 * half + i);
      }
      return bits;
    });
}

// A thread's two keys of a tile, and the way from products to probabilities and gradients of scores.
struct KeyRows {
  int first;           // the other one is 8 behind it
  Index at[2][kRank];  // of computed scores, and of dropped ones
  E::Loads loads[2];

  __device__ int existing(const Params& p, int half) const {
    return min(first + 8 * half, static_cast<int>(p.keys) - 1);
  }

  __device__ void begin_head(const Params& p, const Walk& walk) {
    if constexpr (!kPlain || Config::drops) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int axis = 0; axis < kBatch; ++axis) at[half][axis] = walk.at[axis];
        at[half][kBatch] = 0;
        at[half][kBatch + 1] = existing(p, half);
        if constexpr (!kPlain) loads[half] = E::loads(p.e, at[half], 1);
      }
    }
  }

  // Zeros where a query does not see the key. Which queries do is found anew: registers are scarce.
  template <class Compared>
  __device__ void hide(const Params& p, const Tile& tile, int block, const Compared& compared,
                       float (&values)[kScores]) const {
    RowRange seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = hidden(existing(p, half));
      seen[half] = p.visible.of_keys(key, key, static_cast<int>(p.queries));
      if constexpr (Config::limited)
        seen[half].end = key < tile.keys ? min(seen[half].end, tile.queries) : seen[half].first;
    }
    const int mine = block * kTileQ + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int half = i / 2 % 2, query = mine + i / 4 * 8 + i % 2;
      if (query < seen[half].first || query >= seen[half].end || !compared.has(i)) values[i] = 0;
    }
  }

  // Two neighbouring columns of a block from `column` on.
  static __device__ Vec<float, 2> row_pair(const Shared& shared, int stage, int value, int column) {
    const float2 pair = *reinterpret_cast<const float2*>(&shared.rows[stage][value][column]);
    return {pair.x, pair.y};
  }

  // Value number `value` of the thread's queries. Asked for before a product is waited for.
  static __device__ void load(const Shared& shared, int stage, int value, float (&rows)[kScores / 2]) {
    const int mine = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kScores / 2; i += 2) {
      const Vec<float, 2> row = row_pair(shared, stage, value, mine + i * 4);
      rows[i] = row[0];
      rows[i + 1] = row[1];
    }
  }

  static __device__ void probabilities(const Params& p, const float (&rows)[kScores / 2],
                                       float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      scores[i] = exp2_short(multiply_add(scores[i], p.factor, rows[i / 4 * 2 + i % 2]));
  }

  static __device__ void gradients(const float (&rows)[kScores / 2], const float (&probability)[kScores],
                                   float (&products)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) products[i] = probability[i] * (products[i] - rows[i / 4 * 2 + i % 2]);
  }

  // Both by site E: what it yields replaces the products.
  template <bool kWhole>
  __device__ void by_site(const Params& p, const Shared& shared, int stage, int block,
                          float (&scores)[kScores], float (&products)[kScores]) {
    const int mine = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const int half = i / 2 % 2, column = mine + i / 4 * 8, query = block * kTileQ + column;
      at[half][kBatch] = query;
      const int count = kWhole ? 2 : static_cast<int>(p.queries) - query;
      const auto row = [&](int value) { return row_pair(shared, stage, value, column); };
      const auto found =
          apply_pair<E>(p.e, at[half], count, loads[half], Vec<float, 2>{scores[i], scores[i + 1]},
                        Vec<float, 2>{products[i], products[i + 1]}, row);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if constexpr (kKeys && kValues) {
          scores[i + c] = found.value[c];
          products[i + c] = found.second[c];
        } else {
          (kKeys ? products : scores)[i + c] = found[c];
        }
      }
    }
  }
};

// A warp's gradients of scores on their way to the workspace, as they lie in registers; zeros for keys that
// do not exist. Shared memory holds them until a bulk copy has read them.
struct Spill {
  enum : int { kBytes = kSpilledBytes / 4 };  // of a warp
  u8* to = nullptr;

  template <class Params>
  __device__ void begin_head(const Params& p, const Walk& walk, int first_key) {
    int entry = 0;
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis)
      entry = entry * static_cast<int>(p.extents[axis].divisor * p.members[axis].divisor) +
              static_cast<int>(walk.at[axis]);
    to = p.gradients + p.spilled.place(p.spilled.entry_of(entry), first_key / kSpilledRows, walk.block) +
         threadIdx.x % kWarpgroup / 32 * kBytes;
  }
  template <int kCount>
  __device__ void store(u8* staged, const u32 (&gradients)[kCount], const bool (&exists)[2]) {
    u32* const mine = reinterpret_cast<u32*>(staged) + threadIdx.x % 32;
    if (threadIdx.x % 32 == 0) wait_for_stores<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kCount; ++i) mine[32 * i] = exists[i % 2] ? gradients[i] : 0;
    fence_shared_writes();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      store_bytes(to, staged, kBytes);
      commit_stores();
    }
    to += kSpilledBytes;
  }
};

// Calls store(at, whether it exists, half) for a thread's two keys.
template <class Store>
FUSOR_DEVICE void for_keys(const Tile& tile, int first, const Store& store) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Index at[kRank];
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) at[axis] = tile.at[axis];
    at[kBatch] = first + 8 * half;
    store(at, first + 8 * half <= tile.last, half);
  }
}

// The tile is found anew: its place in the batch needs no registers while blocks pass.
template <class KeyGradient, class ValueGradient, class KeyPlaces, class ValuePlaces, class Params>
FUSOR_DEVICE void finish_both(const Params& p, TileQueue::Item item, int first, const float (&dk)[kHead / 2],
                              const float (&dv)[kValue / 2]) {
  const Tile tile(p, item);
  const int elements = static_cast<int>(p.elements), values = static_cast<int>(p.values);
  if constexpr (kKeys)
    for_keys(tile, first, [&](Index(&at)[kRank], bool exists, int half) {
      if constexpr (Config::placed_dk)
        store_placed_row<KeyGradient, KeyPlaces>(p.dk, p.pk, p.to_dk, at, exists, elements, half, 1.0f, dk);
      else
        store_row<KeyGradient>(p.dk, at, exists, elements, half, 1.0f, dk);
    });
  if constexpr (kValues)
    for_keys(tile, first, [&](Index(&at)[kRank], bool exists, int half) {
      if constexpr (Config::placed_dv)
        store_placed_row<ValueGradient, ValuePlaces>(p.dv, p.pv, p.to_dv, at, exists, values, half, 1.0f, dv);
      else
        store_row<ValueGradient>(p.dv, at, exists, values, half, 1.0f, dv);
    });
}

// Zeros for the warp's 16 keys from `key` on, where no query of a block sees any of the tile's.
template <class Site>
FUSOR_DEVICE void store_unseen(const Params& p, const Tile& tile, const Blocks& blocks, int key) {
  const int all = (static_cast<int>(p.queries) + kTileQ - 1) / kTileQ;
  if (tile.first == 0 && tile.end == all) return;
  Walk walk(p, tile, blocks);
#pragma unroll 1
  for (int head = 0; head < static_cast<int>(p.heads); ++head, walk.next_head())
#pragma unroll 1
    for (int block = 0; block < all; ++block)
      if (block < tile.first || block >= tile.end)
        store_scores<Site, Element, kTileQ / 8>(p, walk.at, key, block * kTileQ, [](int) {
          return Vec<u32, 2>{0, 0};
        });
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  Ring<kStages> ring;
  u32 parity = 0;
  const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  for (Turns<kHanded> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile(p, turns.item(p, shared.slots));
    const Blocks blocks(shared.slots, turns);
    KeyRows rows;
    const int first_key = tile.key + consumer * 64 + warp * 16;
    rows.first = first_key + lane / 4;
    if constexpr (kStores) store_unseen<DS>(p, tile, blocks, first_key);
    float dk[kHead / 2], dv[kValue / 2];
    clear(dk);
    clear(dv);
    const int steps = tile.steps(p, blocks);
    if (steps == 0) {
      finish_both<DK, DV, PK, PV>(p, turns.again(p, shared.slots), rows.first, dk, dv);
      continue;
    }
    Walk walk(p, tile, blocks);
    rows.begin_head(p, walk);
    constexpr SharedWords kWordsOfKeys = Config::shares_words ? SharedWords::rows : SharedWords::none;
    Kept<Config::drops, M, kScores, kWordsOfKeys> kept;
    kept.begin(p, rows.at[0]);
    Spill spill;
    if constexpr (kSpills) spill.begin_head(p, walk, tile.key + consumer * 64);
    const bool exists[2] = {rows.first <= tile.last, rows.first + 8 <= tile.last};
    shared.k_full.wait(parity);
    if constexpr (kKeys) shared.v_full.wait(parity);
    parity ^= 1;
    bool begun = false;
#pragma unroll 1
    for (int left = steps; left > 0; --left) {
      // Fresh ones for each block: what an earlier one computed in them must not reach a product in flight.
      float scores[kScores], products[kScores];
      u32 probabilities[kScores / 2], gradients[kScores / 2];
      const int stage = ring.stage, keys = hidden(consumer) * 64 * kLineBytes;
      const bool is_mixed = blocks.is_mixed(walk.block);
      const bool whole = tile.is_whole(p, walk.block) && !is_mixed;
      shared.q_full[stage].wait(ring.parity);
      issue_along<Element, kHead, kTileK, kTileQ>(shared.k[0] + keys, shared.q[stage][0], scores);
      // Products of the block before are complete, and what they read is free.
      product_wait<1>();
      if (begun) release(shared.empty[ring.previous()]);
      begun = true;
      shared.dy_full[stage].wait(ring.parity);
      if constexpr (kKeys)
        issue_along<Element, kValue, kTileK, kTileQ>(shared.v[0] + keys, shared.dy[stage][0], products);
      kept.template find<kBatch>(p, rows.at, walk.block * kTileQ + 2 * (threadIdx.x % 4));
      SeenScores<Config::masks, kScores> seen;
      find_seen<R, C>(p, walk.at, {rows.existing(p, 0), rows.existing(p, 1)},
                      walk.block * kTileQ + 2 * (threadIdx.x % 4), is_mixed, seen);
      shared.rows_full[stage].wait(ring.parity);
      float row_values[kScores / 2];
      if constexpr (kPlain) rows.load(shared, stage, 0, row_values);
      product_wait<kKeys && kPlain ? 1 : 0>();
      pin(scores);
      if constexpr (kPlain) {
        rows.probabilities(p, row_values, scores);
      } else {
        if constexpr (kKeys) pin(products);
        if (whole)
          rows.by_site<true>(p, shared, stage, walk.block, scores, products);
        else
          rows.by_site<false>(p, shared, stage, walk.block, scores, products);
      }
      if (!whole && (kValues || kPlain)) rows.hide(p, tile, walk.block, seen, scores);
      if constexpr (Config::drops && kValues)
        kept.template pack<Element>(scores, probabilities);
      else if constexpr (kValues || (kPlain && Config::rounds))
        pack<Element>(scores, probabilities);
      const auto pack_gradients = [&] {
        if (!whole) rows.hide(p, tile, walk.block, seen, products);
        pack<Element>(products, gradients);
      };
      // Operands from registers are complete before the first product that may wait beside theirs.
      if constexpr (kKeys && !kPlain) pack_gradients();
      if constexpr (kValues) issue_across<Element, kTileQ>(probabilities, shared.dy[stage][0], dv, 1);
      if constexpr (kKeys && kPlain) {
        rows.load(shared, stage, kRowValues > 1 ? 1 : 0, row_values);
        product_wait<kValues ? 1 : 0>();
        pin(products);
        if constexpr (Config::rounds) round_as_packed<Element>(probabilities, scores);
        kept.drop_others(products);
        rows.gradients(row_values, scores, products);
        pack_gradients();
      }
      if constexpr (kStores)
        store_scores<DS, Element, kTileQ / 8>(p, walk.at, hidden(first_key), walk.block * kTileQ, [&](int i) {
          return keys_of_query(gradients[2 * i], gradients[2 * i + 1]);
        });
      if constexpr (kSpills) spill.store(shared.ds[consumer][warp], gradients, exists);
      if constexpr (kKeys) issue_across<Element, kTileQ>(gradients, shared.q[stage][0], dk, 1);
      ring.advance();
      if (walk.advance()) {
        rows.begin_head(p, walk);
        kept.begin(p, rows.at[0]);
        if constexpr (kSpills) spill.begin_head(p, walk, tile.key + consumer * 64);
      }
    }
    product_wait<0>();
    if constexpr (kKeys) pin(dk);
    if constexpr (kValues) pin(dv);
    release(shared.empty[ring.previous()]);
    release(shared.kv_empty);
    finish_both<DK, DV, PK, PV>(p, turns.again(p, shared.slots), rows.first, dk, dv);
  }
  if constexpr (kSpills)
    if (lane == 0) finish_stores();
  leave_chain(p);
}

// Computed scores have more values of a row, which producers load; live blocks are found by one of them.
enum : bool { kBusyProducers = !kPlain || kWords > 0 };
enum : int {
  kProducerRegisters = kConsumers > 2   ? 32
                       : kBusyProducers ? 40
                                        : 24,
  kConsumerRegisters = kConsumers > 2   ? 160
                       : kBusyProducers ? 232
                                        : 240,
};

extern "C" __global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    attention_backward_keys(const __grid_constant__ Params p) {
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
  enter_chain(p);
  __syncthreads();
  if (warpgroup == 0) {
    release_registers<kProducerRegisters>();
    if (is_producer(0)) produce<false>(p, shared);
    if (threadIdx.x / 32 % 2 == 1 && threadIdx.x / 64 < kRowWarps) produce_rows(p, shared, threadIdx.x / 64);
    if constexpr (kWords > 0)
      if (threadIdx.x / 32 == 3) find_blocks(p, shared);
    if (is_producer(2)) produce<true>(p, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(p, shared, warpgroup - 1);
  }
}
