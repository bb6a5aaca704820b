// Owns which keys a tile of packed rows sees, and the parts of these that blocks take: bounds, and numbers
// that only the device knows.
#pragma once

#include "codegen/device/sm90/attention/tiles.cuh"
#include "codegen/device/tiled/attention/packed_rows.cuh"

enum : int { kTileK = Config::tile_k };  // keys of a group

// Numbers that bounds need and that only the device knows: lengths of sequences.
struct N0;
struct N1;
struct N2;
struct N3;

/// A tile of rows and the keys that they see.
struct Tile : RowTile {
  decltype(Params::visible) visible;
  int queries;  // those from here on see nothing

  __device__ Tile(const Params& p, int number) : RowTile(p, number), visible(p.visible) {
    queries = static_cast<int>(p.queries);
    add_limits<N0, N1, N2, N3>(p);
  }
  __device__ KeyRange keys_of(const Params& p, int query) const {
    return query < queries ? visible.of_row(query, static_cast<int>(p.keys)) : KeyRange{0, 0};
  }

 private:
  template <class First, class Second, class Third, class Fourth, class Params>
  __device__ void add_limits(const Params& p) {
    Index at[kRank];
    find(0, at);
    at[kBatch] = at[kBatch + 1] = 0;
    if constexpr (Config::limits > 0) add<Config::limit0>(First::template apply<1>(p.n0, at, 1)[0]);
    if constexpr (Config::limits > 1) add<Config::limit1>(Second::template apply<1>(p.n1, at, 1)[0]);
    if constexpr (Config::limits > 2) add<Config::limit2>(Third::template apply<1>(p.n2, at, 1)[0]);
    if constexpr (Config::limits > 3) add<Config::limit3>(Fourth::template apply<1>(p.n3, at, 1)[0]);
  }
  /// kPlace: the number of a bound, times 4, and whether it is a lower one (0), an upper one (1), or one of
  /// queries (2).
  template <int kPlace>
  __device__ void add(i64 number) {
    constexpr int kFarthest = 1 << 30;
    const int limit = static_cast<int>(min(max(number, i64(-kFarthest)), i64(kFarthest)));
    if constexpr (kPlace % 4 == 0) visible.lower[kPlace / 4].offset += limit;
    if constexpr (kPlace % 4 == 1) visible.upper[kPlace / 4].offset += limit;
    if constexpr (kPlace % 4 == 2) queries = min(queries, limit + kPlace / 4);
  }
};

/// The groups of keys of a part, and the keys that all rows see.
struct KeyPart {
  int first, end, end_key;
  KeyRange all;

  __device__ KeyPart(const Params& p, const Tile& tile, int part) {
    const int keys = static_cast<int>(p.keys);
    const int query = tile.query_of(tile.row), last = tile.query_of(tile.last);
    KeyRange any = tile.visible.of_any(query, last, keys);
    all = tile.visible.of_all(query, last, keys);
    if (query >= tile.queries) any.end = 0;
    if (last >= tile.queries) all.end = 0;
    const i64 from = any.first / kTileK;
    const i64 groups = any.end > any.first ? (any.end + kTileK - 1) / kTileK - from : 0;
    first = static_cast<int>(from + groups * part / p.rows.parts);
    end = static_cast<int>(from + groups * (part + 1) / p.rows.parts);
    end_key = any.end;
  }
  __device__ bool is_whole(int group) const {
    return group * kTileK >= all.first && (group + 1) * kTileK <= all.end;
  }
};
