// Owns which blocks of keys a tile of queries meets where a mask compares numbers of both, such as documents:
//
//   value_ranges.cuh   least and largest number of each tile of queries and each block of keys --> memory
//   one warp           both ranges --> two bits for each block, whether any key of it may be seen, and
//   whether
//                      some may not --> words in a slot of shared memory (order.cuh)
//   all others         walk the first bits from the last block down
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
// strides: of the batch axes, in entries; axes along which numbers are the same have 0.
template <int kAxes>
struct ValueRanges {
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

template <int kWords>
struct LiveSlots : TileSlots<true> {
  u32 words[kSlots][2 * kWords];  // bits of blocks that may be seen, and of those that need the mask
};

// A warp finds the bits of the blocks first .. end - 1 for tile number `tile` of the entry at `at`.
template <int kBoth, int kAxes, int kRank>
FUSOR_DEVICE void find_live(const ValueRanges<kAxes>& ranges, const Index (&at)[kRank], int tile, int first,
                            int end, u32 (&words)[kBoth]) {
  constexpr int kWords = kBoth / 2;
  i64 entry = 0;
#pragma unroll
  for (int axis = 0; axis < kRank - 2; ++axis) entry += at[axis] * ranges.strides[axis];
  const ValueRange queries = ranges.of_queries[entry * ranges.tiles + tile];
  const ValueRange* const keys = ranges.of_keys + entry * ranges.blocks;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int word = 0; word < kWords; ++word) {
    const int block = 32 * word + lane;
    ValueRange of_block{};
    const bool exists = block >= first && block < end;
    if (exists) of_block = keys[block];
    const u32 live = __ballot_sync(0xffffffff, exists && ranges.may_see(queries, of_block));
    const u32 mixed = __ballot_sync(0xffffffff, !ranges.surely_sees(queries, of_block));
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
