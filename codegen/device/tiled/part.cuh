// Owns the first kernel of a tiled contraction, apart from its inner loop: the part of the product that a
// block sums up, the keys of rows, columns and steps, and where a vector of sums goes.
#pragma once

#include "codegen/device/tiled/tiling.cuh"

/// Steps [begin, end) of a tile; `item` counts the tiles of all splits. The blocks of a cluster share a tile.
struct Part {
  Place place;
  Index item, begin, end;
  __device__ bool is_none() const { return item < 0; }
};

template <class Params>
FUSOR_DEVICE Part part_of_block(const Params& p) {
  const Index item = block_number();
  const Part none = {{}, -1, 0, 0};
  if constexpr (Config::cluster > 1) {
    const Index tile = item / Config::cluster;
    const Index begin = (item - tile * Config::cluster) * Index(p.k_per_split);
    const Index after = begin + Index(p.k_per_split), k = Index(p.problem.k);
    return {p.tiling.place(tile), tile, begin, after < k ? after : k};
  } else if constexpr (Config::split) {
    const Index split = p.tiles.divide(item);
    if (split >= Index(p.splits)) return none;
    const Index begin = split * Index(p.k_per_split);
    const Index after = begin + Index(p.k_per_split);
    const Index end = after < Index(p.problem.k) ? after : Index(p.problem.k);
    return {p.tiling.place(item - split * p.tiles.divisor), item, begin, end};
  } else {
    if (item >= Index(p.tiling.tiles)) return none;
    return {p.tiling.place(item), item, 0, Index(p.problem.k)};
  }
}

/// The keys of a tile's rows and columns, taken apart once.
FUSOR_DEVICE void write_tile_keys(const Problem& problem, const Place& place, Key* rows, Key* columns) {
#pragma unroll 1
  for (int i = threadIdx.x; i < kTileM + kTileN; i += kThreads) {
    if (i < kTileM) {
      rows[i] = problem.row(place.row + i);
    } else {
      columns[i - kTileM] = problem.column(place.column + (i - kTileM));
    }
  }
}

template <int kSteps>
FUSOR_DEVICE void write_step_keys(const Problem& problem, Index first, Index end, Key* steps) {
  static_assert(kSteps <= kThreads, "one key a thread");
  if (threadIdx.x < kSteps) steps[threadIdx.x] = problem.step(first + Index(threadIdx.x), end);
}

/// Which vectors of an operand tile, kSteps steps by kExtent rows or columns, a thread loads. Vectors and
/// neighbouring threads run along k or across it, whichever is adjacent in memory; a vector is inside whole
/// or not at all, and no longer than a thread's share.
template <int kSteps, int kExtent, int kLongest, bool kAlongK>
struct ThreadVectors {
  enum : int {
    kShare = kSteps * kExtent / kThreads,
    kWidth = kLongest < kShare ? kLongest : kShare,
    kItems = kShare / kWidth,
    kFast = (kAlongK ? kSteps : kExtent) / kWidth,  // vectors side by side
  };

  FUSOR_DEVICE int across(int i) {
    return kAlongK ? threadIdx.x / kFast + i * (kThreads / kFast) : threadIdx.x % kFast * kWidth;
  }
  FUSOR_DEVICE int step(int i) {
    return kAlongK ? threadIdx.x % kFast * kWidth : threadIdx.x / kFast + i * (kThreads / kFast);
  }
};

enum : int { kFinishWidth = Config::split ? 16 / int(sizeof(Sum)) : Config::vector };

struct Y;  // absent with a split of k

/// Applies the epilogue to the vector of sums at `position` of the tile; with a split of k, stores it to the
/// workspace as it is: partials[split][tile][position].
template <class Epilogue = Y, class Params>
FUSOR_DEVICE void finish_vector(const Params& p, const Part& part, int position, const Sum* staged) {
  const VectorPlace vector = vector_place(p.problem, part.place, position);
  if (!vector.inside) return;
  const auto sums = *reinterpret_cast<const Vec<Sum, kFinishWidth>*>(staged);
  if constexpr (Config::split) {
    store_whole(p.partials + i64(part.item) * kTileElements + position, sums, kFinishWidth);
  } else {
    Index at[Epilogue::kRank];
    p.problem.result(part.place.entry, vector.row, vector.column, at);
    Epilogue::template apply<kFinishWidth>(p.y, at, kFinishWidth, sums);
  }
}
