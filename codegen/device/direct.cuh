// Owns the direct contraction: matmul and convolutions of any layout and type on the CUDA cores, tile by
// tile. load: operand elements pass their prologue on the way to shared memory; padding and tails become zero
// after it. compute: each thread adds up a micro-tile. finish: the sums pass the epilogue, or go to the
// scratch of a split.
#include "fusor_generated.cuh"

#include "codegen/device/direct_tiling.cuh"

struct Params {
  Problem problem;
  Tiling tiling;
#if FUSOR_SPLIT
  FastDivisor tiles;
  i64 splits, k_per_split;  // the latter a multiple of kTileK
  Sum* partials;            // [split][tile][position]
#endif
  A::Args a;
  B::Args b;
#if !FUSOR_SPLIT
  Y::Args y;
#endif
};

using Tiles = OperandTiles<Sum, kTileM, kTileN>;
static constexpr int kStagedPitch = kFastExtent + Tiles::kPadding;

struct Shared {
  Key rows[kTileM], columns[kTileN];
  Key steps[2][kTileK];
  union {
    Tiles tiles[2];
    alignas(16) Sum staged[kTileElements / kFastExtent * kStagedPitch];
  };
};

/// What the operand's prologue gave, or zeros.
template <int kWidth, class Value>
FUSOR_DEVICE Vec<Sum, kWidth> masked(const Vec<Value, kWidth>& values, bool inside) {
  Vec<Sum, kWidth> sums;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) sums[v] = inside ? narrow<Sum>(values[v]) : Sum(0);
  return sums;
}

/// Vectors of an operand are no longer than what a thread loads of a tile.
FUSOR_DEVICE constexpr int fitting_width(int width, int extent) {
  const int elements = kTileK * extent / kThreads;
  return width < elements ? width : elements;
}

struct LoadA {
  static constexpr int kExtent = kTileM, kWidth = fitting_width(FUSOR_A_WIDTH, kTileM);
  static constexpr bool kAlongK = FUSOR_A_ALONG_K;
  FUSOR_DEVICE const Key* keys(const Shared& shared) { return shared.rows; }
  FUSOR_DEVICE Sum* tile(Tiles& tiles, int step) { return tiles.left[step]; }
  FUSOR_DEVICE Vec<Sum, kWidth> elements(const Params& p, Index entry, const Key& row, const Key& step) {
    Index at[A::kRank];
    const bool inside = p.problem.first_operand(entry, row, step, at);
    return masked<kWidth>(A::apply<kWidth>(p.a, at, inside ? kWidth : 0), inside);
  }
};

struct LoadB {
  static constexpr int kExtent = kTileN, kWidth = fitting_width(FUSOR_B_WIDTH, kTileN);
  static constexpr bool kAlongK = FUSOR_B_ALONG_K;
  FUSOR_DEVICE const Key* keys(const Shared& shared) { return shared.columns; }
  FUSOR_DEVICE Sum* tile(Tiles& tiles, int step) { return tiles.right[step]; }
  FUSOR_DEVICE Vec<Sum, kWidth> elements(const Params& p, Index entry, const Key& column, const Key& step) {
    Index at[B::kRank];
    const bool inside = p.problem.second_operand(entry, column, step, at);
    return masked<kWidth>(B::apply<kWidth>(p.b, at, inside ? kWidth : 0), inside);
  }
};

/// A thread's vectors of one operand tile, on their way from global to shared memory. Vectors and
/// neighbouring threads run along k or across it, whichever is adjacent in memory; a vector is inside whole
/// or not at all.
template <class Load>
struct Transfer {
  static constexpr int kWidth = Load::kWidth;
  static constexpr int kFast = (Load::kAlongK ? kTileK : Load::kExtent) / kWidth;
  static constexpr int kItems = kTileK * Load::kExtent / kThreads / kWidth;
  Vec<Sum, kWidth> items[kItems];

  FUSOR_DEVICE int across(int i) {
    return Load::kAlongK ? threadIdx.x / kFast + i * (kThreads / kFast) : threadIdx.x % kFast * kWidth;
  }
  FUSOR_DEVICE int step(int i) {
    return Load::kAlongK ? threadIdx.x % kFast * kWidth : threadIdx.x / kFast + i * (kThreads / kFast);
  }
  __device__ void fetch(const Params& p, Index entry, const Shared& shared, const Key* steps) {
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      items[i] = Load::elements(p, entry, Load::keys(shared)[across(i)], steps[step(i)]);
  }
  __device__ void stash(Tiles& tiles) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i)
#pragma unroll
      for (int v = 0; v < kWidth; ++v)
        Load::tile(tiles, step(i) + (Load::kAlongK ? v : 0))[across(i) + (Load::kAlongK ? 0 : v)] =
            items[i][v];
  }
};

/// The keys of a tile's rows and columns, taken apart once.
FUSOR_DEVICE void write_tile_keys(const Problem& problem, const Place& place, Shared& shared) {
  static_assert(kTileM + kTileN <= kThreads, "one key a thread");
  const int i = threadIdx.x;
  if (i < kTileM) {
    shared.rows[i] = problem.row(place.row + i);
  } else if (i < kTileM + kTileN) {
    shared.columns[i - kTileM] = problem.column(place.column + (i - kTileM));
  }
}

FUSOR_DEVICE void write_step_keys(const Problem& problem, Index first, Index end, Key* steps) {
  if (threadIdx.x < kTileK) steps[threadIdx.x] = problem.step(first + Index(threadIdx.x), end);
}

/// Sums steps [begin, end) of a tile. A pair of operand tiles is multiplied while the next is on its way and
/// the keys of the one after it are made; the first two turns fill this pipeline.
FUSOR_DEVICE void sum_tile(const Params& p, const Place& place, Index begin, Index end, Shared& shared,
                           MicroTile<Sum, kTileM, kTileN>& micro) {
  write_tile_keys(p.problem, place, shared);
  Transfer<LoadA> a;
  Transfer<LoadB> b;
  int turn = 0;
#pragma unroll 1
  for (Index k = begin - 2 * kTileK; k < end; k += kTileK) {
    const Index next = k + kTileK;
    const bool fetches = next >= begin && next < end;
    if (fetches) {
      a.fetch(p, place.entry, shared, shared.steps[turn ^ 1]);
      b.fetch(p, place.entry, shared, shared.steps[turn ^ 1]);
    }
    if (k >= begin) micro.multiply(shared.tiles[turn]);
    if (fetches) {
      a.stash(shared.tiles[turn ^ 1]);
      b.stash(shared.tiles[turn ^ 1]);
    }
    write_step_keys(p.problem, next + kTileK, end, shared.steps[turn]);
    __syncthreads();
    turn ^= 1;
  }
}

/// Hands the staged sums to the epilogue; with a split of k they go to the scratch as they are.
FUSOR_DEVICE void finish(const Params& p, const Place& place, Index item, const Shared& shared) {
#if FUSOR_SPLIT
  constexpr int kVector = 1;
#else
  constexpr int kVector = FUSOR_VECTOR;
#endif
#pragma unroll 1
  for (int position = threadIdx.x * kVector; position < kTileElements; position += kThreads * kVector) {
    const VectorPlace vector = vector_place(p.problem, place, position);
    if (!vector.inside) continue;
    const Sum* const staged = shared.staged + position / kFastExtent * kStagedPitch + position % kFastExtent;
#if FUSOR_SPLIT
    p.partials[i64(item) * kTileElements + position] = *staged;
#else
    Vec<Sum, kVector> sums;
#pragma unroll
    for (int i = 0; i < kVector; ++i) sums[i] = staged[i];
    Index at[Y::kRank];
    p.problem.result(place.entry, vector.row, vector.column, at);
    Y::apply<kVector>(p.y, at, kVector, sums);
#endif
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) direct(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  const Index item = block_number();
  Index begin = 0, end = Index(p.problem.k);
#if FUSOR_SPLIT
  const Index split = p.tiles.divide(item);
  if (split >= Index(p.splits)) return;
  const Place place = p.tiling.place(item - split * p.tiles.divisor);
  begin = split * Index(p.k_per_split);
  if (begin + Index(p.k_per_split) < end) end = begin + Index(p.k_per_split);
#else
  if (item >= Index(p.tiling.tiles)) return;
  const Place place = p.tiling.place(item);
#endif
  MicroTile<Sum, kTileM, kTileN> micro;
  micro.clear();
  sum_tile(p, place, begin, end, shared, micro);
  micro.stage<FUSOR_Y_ALONG_N, kStagedPitch>(shared.staged);
  __syncthreads();
  finish(p, place, item, shared);
}
