// Owns the order of attention's tiles, and which keys the rows of a tile can see.
#pragma once

#include "codegen/device/base/indexing.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"

// A bound on the keys that a row sees: row * slope + offset.
struct KeyBound {
  i64 slope, offset;

  __device__ int at(int row) const { return static_cast<int>(slope) * row + static_cast<int>(offset); }
};

// Keys first <= key < end.
struct KeyRange {
  int first, end;
};

// Rows first <= row < end.
struct RowRange {
  int first, end;
};

// Row q sees the keys from the largest of `lower` to the smallest of `upper`, both included, that exist.
template <int kLower, int kUpper>
struct Visible {
  KeyBound lower[kLower > 0 ? kLower : 1];
  KeyBound upper[kUpper > 0 ? kUpper : 1];

  __device__ KeyRange of_row(int row, int keys) const {
    KeyRange range{0, keys};
#pragma unroll
    for (int i = 0; i < kLower; ++i) range.first = max(range.first, lower[i].at(row));
#pragma unroll
    for (int i = 0; i < kUpper; ++i) range.end = min(range.end, upper[i].at(row) + 1);
    return range;
  }
  // The keys that any of the rows may see: bounds are lines, so their extremes are at the ends.
  __device__ KeyRange of_any(int row, int last, int keys) const {
    KeyRange range{0, keys};
#pragma unroll
    for (int i = 0; i < kLower; ++i) range.first = max(range.first, min(lower[i].at(row), lower[i].at(last)));
#pragma unroll
    for (int i = 0; i < kUpper; ++i) range.end = min(range.end, max(upper[i].at(row), upper[i].at(last)) + 1);
    return range;
  }
  // The keys that all of them see.
  __device__ KeyRange of_all(int row, int last, int keys) const {
    KeyRange range{0, keys};
#pragma unroll
    for (int i = 0; i < kLower; ++i) range.first = max(range.first, max(lower[i].at(row), lower[i].at(last)));
#pragma unroll
    for (int i = 0; i < kUpper; ++i) range.end = min(range.end, min(upper[i].at(row), upper[i].at(last)) + 1);
    return range;
  }
  // Rows outside see none of the keys; of one key, exactly those inside see it. Slopes are -1, 0 and 1.
  __device__ RowRange of_keys(int key, int last, int rows) const {
    RowRange range{0, rows};
#pragma unroll
    for (int i = 0; i < kLower; ++i) limit(range, -lower[i].slope, last - static_cast<int>(lower[i].offset));
#pragma unroll
    for (int i = 0; i < kUpper; ++i) limit(range, upper[i].slope, static_cast<int>(upper[i].offset) - key);
    return range;
  }

 private:
  // Rows for which slope * row + offset is 0 or more.
  static __device__ void limit(RowRange& range, i64 slope, int offset) {
    if (slope > 0) range.first = max(range.first, -offset);
    if (slope < 0) range.end = min(range.end, offset + 1);
    if (slope == 0 && offset < 0) range.end = range.first;
  }
};

// Tiles of queries by section of heads, whose keys and values fit L2 together; within a section the tile with
// the last queries first, which sees most keys where keys are bounded by the row.
//   items   section 0: tile n-1 of heads 0 .. s-1, tile n-2 of heads 0 .. s-1, ..., section 1: ...
// Where sections take turns, the next one begins with a tile further down, so that blocks which take every
// 132nd item, say, come by tiles of all lengths.
struct TileQueue {
  i64 tiles, entries, section, turns;

  struct Item {
    int tile, entry;
  };
  __device__ int items() const { return static_cast<int>(tiles * entries); }
  __device__ Item item(int number) const {
    const int of_section = static_cast<int>(tiles * section);
    const int first = number / of_section * static_cast<int>(section), within = number % of_section;
    const int heads = min(static_cast<int>(section), static_cast<int>(entries) - first);
    const int down =
        (within / heads + static_cast<int>(turns) * (number / of_section)) % static_cast<int>(tiles);
    return {static_cast<int>(tiles) - 1 - down, first + within % heads};
  }
};

// A tile of queries and its blocks of keys. Entries that follow each other differ along the last axis of the
// batch, or the first one.
template <int kTileQ, int kTileK, int kRank, bool kFirstAxisFastest = false>
struct QueryTile {
  int row, last;              // first and last query that exists
  int first, end;             // blocks of keys that any of them sees
  KeyRange all;               // keys that all of them see
  Index at[kRank];            // the entry's place in the batch
  int keys = 0, queries = 0;  // that exist, where limit() says so

  // `first_entry`: of the batch, the one with which the queue's entries begin.
  template <class Params>
  __device__ QueryTile(const Params& p, TileQueue::Item item, int first_entry = 0) {
    const int all_keys = static_cast<int>(p.keys);
    row = item.tile * kTileQ;
    last = min(row + kTileQ, static_cast<int>(p.queries)) - 1;
    if constexpr (kFirstAxisFastest) {
      Index entry = item.entry + first_entry;
#pragma unroll
      for (int axis = 0; axis < kRank - 2; ++axis) at[axis] = p.extents[axis].split(entry);
    } else {
      coordinates<0, kRank - 2>(Index(item.entry + first_entry), p.extents, at);
    }
    const KeyRange any = p.visible.of_any(row, last, all_keys);
    all = p.visible.of_all(row, last, all_keys);
    first = any.first / kTileK;
    end = any.end > any.first ? (any.end + kTileK - 1) / kTileK : first;
  }
  // Queries and keys behind these see nothing and are not seen.
  __device__ void limit(int keys_, int queries_) {
    keys = keys_;
    queries = queries_;
    if (last >= queries) all.end = 0;
    all.end = min(all.end, keys);
    end = row < queries ? max(first, min(end, (keys + kTileK - 1) / kTileK)) : first;
  }
  __device__ bool is_whole(int block) const {
    return block * kTileK >= all.first && (block + 1) * kTileK <= all.end;
  }
};

// How many keys and queries exist of the entry at `place`, where site Lengths, with the arguments p.n, says
// it.
template <class Lengths, int kRank, class Params>
__device__ __forceinline__ void find_lengths(const Params& p, const Index (&place)[kRank], int& keys,
                                             int& queries) {
  Index at[kRank];
#pragma unroll
  for (int axis = 0; axis < kRank; ++axis) at[axis] = axis < kRank - 2 ? place[axis] : 0;
  const auto lengths = Lengths::template apply<1>(p.n, at, 1);
  keys = static_cast<int>(max(i64(0), min(i64(lengths.value[0]), p.keys)));
  queries = static_cast<int>(max(i64(0), min(i64(lengths.second[0]), p.queries)));
}

// A tile of queries within the lengths of its entry, if any.
template <class Tile, class Lengths, class Params>
__device__ __forceinline__ Tile tile_within(const Params& p, TileQueue::Item item) {
  Tile tile(p, item);
  if constexpr (Config::limited) {
    int keys, queries;
    find_lengths<Lengths>(p, tile.at, keys, queries);
    tile.limit(keys, queries);
  }
  return tile;
}
