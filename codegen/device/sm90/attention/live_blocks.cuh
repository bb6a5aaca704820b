// Owns which blocks of keys a tile of queries meets, or which blocks of queries a tile of keys, where a mask
// compares numbers of both, such as documents:
//
//   value_ranges.cuh   least and largest number of each tile and each block --> memory
//   one warp           both ranges --> two bits for each block, whether any pair may be seen, and whether
//                      some may not --> words in a slot of shared memory (order.cuh)
//   all others         walk the first bits, keys from the last block down, queries from the first one up
#pragma once

#include "codegen/device/sm90/attention/order.cuh"

struct alignas(16) ValueRange {
  i64 least, most;
};

template <class How, class Number>
FUSOR_DEVICE bool reaches(How how, Number number, Number other) {
  return how == 0 || number > other || (how == 1 && number == other);
}

// query, key: how a number of a query has to reach that of a key, and back: 0 it need not, 1 as much, 2 more.
// strides: of the batch axes, in entries; axes along which numbers are the same have 0. taken: how many tiles
// blocks have asked for beside their first ones, so that none waits for one whose tiles see more.
template <int kAxes>
struct ValueRanges {
  u32* taken;
  const ValueRange *of_queries, *of_keys;
  i64 tiles, blocks, query, key, strides[kAxes];

  // Whether some number of `a`, of queries, and some of `b`, of keys, compare as they should; whether all do.
  __device__ bool may_see(const ValueRange& a, const ValueRange& b) const {
    return reaches(query, a.most, b.least) && reaches(key, b.most, a.least);
  }
  __device__ bool surely_sees(const ValueRange& a, const ValueRange& b) const {
    return reaches(query, a.least, b.most) && reaches(key, b.least, a.most);
  }
};

// Whether a query's number and a key's compare as the mask has it.
template <class Number, class Other>
FUSOR_DEVICE bool sees(Number query, Other key) {
  const i64 of_query = query, of_key = key;
  return reaches(int(Config::query_reach), of_query, of_key) &&
         reaches(int(Config::key_reach), of_key, of_query);
}

// Slots of tiles, and of their blocks' bits: of those that may be seen, and of those that need the mask.
template <int kWords, bool kOrdered>
struct BlockSlots : TileSlots<true> {
  u32 words[kSlots][2 * kWords];
};
template <bool kOrdered>
struct BlockSlots<0, kOrdered> : TileSlots<kOrdered> {};

// The turns of a warp that copies: it asks for tiles, unless another one hands them over with their bits.
template <int kWords, bool kOrdered>
struct CopyTurns : Turns<true> {};
template <bool kOrdered>
struct CopyTurns<0, kOrdered> : AskingTurns<kOrdered> {};

// A warp hands tiles over to all others; find(item, words) finds the bits of a tile's blocks.
template <bool kOrdered, class P, class Slots, class Find>
FUSOR_DEVICE void hand_over(const P& p, Slots& slots, const Find& find) {
  Ring<TileSlots<true>::kSlots> ring;
  int number = static_cast<int>(blockIdx.x);
  u32* taken = p.ranges.taken;
  if constexpr (kOrdered) taken = &p.ordered.order->taken[p.ordered.chunk];
  for (bool exists = true; exists;) {
    TileQueue::Item item{0, -1};
    if constexpr (kOrdered) {
      exists = number < p.ordered.order->items;
      if (exists) item = p.ordered.item(number);
    } else {
      exists = number < p.queue.items();
      if (exists) item = p.queue.item(number);
    }
    slots.empty[ring.stage].wait(ring.parity ^ 1);
    if (exists) find(item, slots.words[ring.stage]);
    if (threadIdx.x % 32 == 0) {
      slots.items[ring.stage] = item;
      slots.full[ring.stage].arrive();
    }
    ring.advance();
    if (exists && threadIdx.x % 32 == 0) number = static_cast<int>(gridDim.x + atomicAdd(taken, 1u));
    number = __shfl_sync(0xffffffff, number, 0);
  }
}

// A warp finds the bits of the blocks first .. end - 1 for tile number `tile`, of queries or of keys, of the
// entry at `at`.
template <bool kOfKeys, int kWords, int kAxes, int kRank>
FUSOR_DEVICE void find_live(const ValueRanges<kAxes>& ranges, const Index (&at)[kRank], int tile, int first,
                            int end, u32* words) {
  i64 entry = 0;
#pragma unroll
  for (int axis = 0; axis < kRank - 2; ++axis) entry += at[axis] * ranges.strides[axis];
  const ValueRange* const queries = ranges.of_queries + entry * ranges.tiles;
  const ValueRange* const keys = ranges.of_keys + entry * ranges.blocks;
  const ValueRange* const passing = kOfKeys ? queries : keys;
  const ValueRange of_tile = (kOfKeys ? keys : queries)[tile];
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int word = 0; word < kWords; ++word) {
    const int block = 32 * word + lane;
    ValueRange of_block{};
    const bool exists = block >= first && block < end;
    if (exists) of_block = passing[block];
    const ValueRange &query = kOfKeys ? of_block : of_tile, &key = kOfKeys ? of_tile : of_block;
    const u32 live = __ballot_sync(0xffffffff, exists && ranges.may_see(query, key));
    const u32 mixed = __ballot_sync(0xffffffff, !ranges.surely_sees(query, key));
    if (lane == 0) {
      words[word] = live;
      words[kWords + word] = mixed;
    }
  }
}

// The blocks of keys of a tile, from the last one down:
//   for (int block = walk.last(); walk.has(block); block = walk.next(block)) ...
// AllBlocks are the blocks first .. end - 1.
template <bool kMasks>
struct AllBlocks {
  int first, end;

  __device__ bool is_empty() const { return end == first; }
  __device__ int last() const { return end - 1; }
  __device__ bool has(int block) const { return block >= first; }
  __device__ int next(int block) { return block - 1; }
  __device__ bool is_mixed(int) const { return kMasks; }
};
// LiveBlocks are those that have a bit.
template <int kWords>
struct LiveBlocks {
  const volatile u32* words;
  int word = kWords, found;
  u32 bits = 0;

  explicit __device__ LiveBlocks(const u32* words_) : words(words_) { found = next(0); }
  __device__ bool is_empty() const { return found < 0; }
  __device__ int last() const { return found; }
  __device__ bool has(int block) const { return block >= 0; }
  __device__ bool is_mixed(int block) const { return words[kWords + block / 32] >> block % 32 & 1; }
  __device__ int next(int) {
#pragma unroll 1
    while (bits == 0) {
      if (word == 0) return -1;
      bits = words[--word];
    }
    const int bit = 31 - __clz(static_cast<int>(bits));
    bits ^= 1u << bit;
    return 32 * word + bit;
  }
};

// The blocks of the tile whose slot a warp has come to.
template <int kWords, bool kMasks, class Tile, class Slots, class Way>
FUSOR_DEVICE auto blocks_of(const Tile& tile, const Slots& slots, const Way& way) {
  if constexpr (kWords > 0)
    return LiveBlocks<kWords>(slots.words[way.ring.stage]);
  else
    return AllBlocks<kMasks>{tile.first, tile.end};
}

// The same in rising order, without a register between blocks. Without words no block is left out.
template <int kWords, bool kMasks>
struct RisingBlocks {
  const volatile u32* words;

  template <class Slots, class Way>
  __device__ RisingBlocks(const Slots& slots, const Way& way) : words(slots.words[way.ring.stage]) {}

  __device__ int count(int, int) const {
    int blocks = 0;
#pragma unroll 1
    for (int word = 0; word < kWords; ++word) blocks += __popc(words[word]);
    return blocks;
  }
  // The first one from `block` on, or `end`.
  __device__ int from(int block, int end) const {
    if (block >= end) return end;
    int word = block / 32;
    u32 bits = words[word] & ~0u << block % 32;
#pragma unroll 1
    while (bits == 0) {
      if (++word == kWords) return end;
      bits = words[word];
    }
    return 32 * word + __ffs(static_cast<int>(bits)) - 1;
  }
  __device__ bool is_mixed(int block) const { return words[kWords + block / 32] >> block % 32 & 1; }
};
template <bool kMasks>
struct RisingBlocks<0, kMasks> {
  template <class Slots, class Way>
  __device__ RisingBlocks(const Slots&, const Way&) {}

  __device__ int count(int first, int end) const { return end - first; }
  __device__ int from(int block, int) const { return block; }
  __device__ bool is_mixed(int) const { return kMasks; }
};

// Which of a thread's scores of a block the mask leaves, a bit for each: scores of two rows that stay, in
// pairs of neighbours of those that pass. Found while products are in flight.
template <bool kMasks, int kScores>
struct SeenScores {
  template <class Find>
  __device__ void find(bool, const Find&) {}
  __device__ bool has(int) const { return true; }
};
template <int kScores>
struct SeenScores<true, kScores> {
  u32 words[(kScores + 31) / 32];

  // find(pair): bits 0 and 1 are those of the first row and the pair's two neighbours, bits 2 and 3 those of
  // the second row.
  template <class Find>
  __device__ void find(bool is_mixed, const Find& find) {
#pragma unroll
    for (u32& word : words) word = ~0u;
    if (!is_mixed) return;
#pragma unroll
    for (u32& word : words) word = 0;
#pragma unroll
    for (int pair = 0; pair < kScores / 4; ++pair) words[pair / 8] |= u32(find(pair)) << pair % 8 * 4;
  }
  __device__ bool has(int score) const { return words[score / 32] >> score % 32 & 1; }
};
