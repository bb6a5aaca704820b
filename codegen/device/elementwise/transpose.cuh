// Owns the transposing kernel: stores are adjacent along the last axis (v), some loads along f, the one
// before it.
//
//   loads along f            shared memory: a tile for each of X0, X1        stores along v
//   X0, X1  -- vectors -->   kTile lines of 8 vectors  -- __syncthreads -->  columns of the tile --> Y
//
//   line v = 0 .. N - 1      c0 c1 c2 c3 ...     N = kVector: vector c of line v lies at place
//            N .. 2 N - 1    c1 c0 c3 c2 ...     c ^ (v / N % 8), which spreads the reads of a
//            2 N .. 3 N - 1  c2 c3 c0 c1 ...     column over all banks
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

enum : int {
  kVector = Config::vector,
  kThreads = Config::threads,
};
enum : bool { kTileTails = Config::tile_tails };  // the extents are not multiples of a tile
enum : int {
  kF = Y::kRank - 2,
  kV = Y::kRank - 1,
  kSide = 8,
  kTile = kSide * kVector,
  kLines = kThreads / kSide,  // of a tile that the block loads at a time
};
static_assert(kTile % kLines == 0, "every thread takes part in every pass over a tile");

// extents: outer axes in elements, the last two in tiles.

struct X1;  // the second staged site, where there is one

template <class T>
using Tile = Vec<T, kVector>[kTile][kSide];

// How many of the kVector elements from `from` on lie below `extent`.
static __device__ __forceinline__ int count_below(Index extent, Index from) {
  if (!kTileTails) return kVector;
  const Index rest = extent - from;
  return rest > kVector ? kVector : rest < 0 ? 0 : static_cast<int>(rest);
}

// Fills the tile row by row along f. Elements that do not exist are never read back.
template <class X>
static __device__ __forceinline__ void fill(Tile<typename X::Stored>& tile, const Params& p,
                                            const typename X::Args& args, const Index (&corner)[Y::kRank]) {
  const int chunk = threadIdx.x % kSide;
#pragma unroll 2
  for (int pass = 0; pass < kTile / kLines; ++pass) {
    const int v = pass * kLines + threadIdx.x / kSide;
    Index at[Y::kRank];
#pragma unroll
    for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = corner[axis];
    at[kF] += chunk * kVector;
    at[kV] += v;
    Vec<typename X::Stored, kVector>& to = tile[v][chunk ^ (v / kVector % kSide)];
    const int count = kTileTails && at[kV] >= p.extent_v ? 0 : count_below(p.extent_f, at[kF]);
    if (count == kVector) {
      to = narrow<typename X::Stored>(X::template apply<kVector>(args, at, kVector));
    } else {
#pragma unroll 1
      for (int i = 0; i < count; ++i, ++at[kF])
        to.lane[i] = narrow<typename X::Stored>(X::template apply<1>(args, at, 1)[0]);
    }
  }
}

// The vector along v at line f of the tile.
template <class T>
static __device__ __forceinline__ Vec<Carrier<T>, kVector> column(const Vec<T, kVector> (&tile)[kTile][kSide],
                                                                  int f, int chunk) {
  Vec<Carrier<T>, kVector> values;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    values[i] = widen(tile[chunk * kVector + i][(f / kVector) ^ chunk].lane[f % kVector]);
  return values;
}

template <class T>
static __device__ __forceinline__ Vec<Carrier<T>, 1> element(const Vec<T, kVector> (&tile)[kTile][kSide],
                                                             int f, int v) {
  return {{widen(tile[v][(f / kVector) ^ (v / kVector)].lane[f % kVector])}};
}

// Columns of the tiles leave through Y.
template <class... T>
static __device__ __forceinline__ void store(const Params& p, Index (&corner)[Y::kRank],
                                             const Vec<T, kVector> (&... tiles)[kTile][kSide]) {
  const int chunk = threadIdx.x % kSide;
  corner[kV] += chunk * kVector;
  const int count = count_below(p.extent_v, corner[kV]);
  const Index first_f = corner[kF];
#pragma unroll 1
  for (int f = threadIdx.x / kSide; f < kTile; f += kLines) {
    corner[kF] = first_f + f;
    if (kTileTails && corner[kF] >= p.extent_f) break;
    if (count == kVector) {
      Y::apply<kVector>(p.y, corner, kVector, column(tiles, f, chunk)...);
    } else {
      const Index first_v = corner[kV];
#pragma unroll 1
      for (int i = 0; i < count; ++i, ++corner[kV]) {
        const int v = chunk * kVector + i;
        Y::apply<1>(p.y, corner, 1, element(tiles, f, v)...);
      }
      corner[kV] = first_v;
    }
  }
}

template <class Second, class P>
static __device__ __forceinline__ void transpose_tile(const P& p) {
  __shared__ Tile<X0::Stored> tile0;
  Index corner[Y::kRank];
  coordinates<0, Y::kRank>(blockIdx.x, p.extents, corner);
  corner[kF] *= kTile;
  corner[kV] *= kTile;
  fill<X0>(tile0, p, p.x0, corner);
  if constexpr (Config::staged > 1) {
    __shared__ Tile<typename Second::Stored> tile1;
    fill<Second>(tile1, p, p.x1, corner);
    __syncthreads();
    store(p, corner, tile0, tile1);
  } else {
    __syncthreads();
    store(p, corner, tile0);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) transpose(const __grid_constant__ Params p) {
  enter_launch(p);
  transpose_tile<X1>(p);
  leave_launch(p);
}
