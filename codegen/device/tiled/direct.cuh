// Owns the direct contraction: matmul and convolutions of any layout and type on the CUDA cores.
//
//   256 threads, 2 blocks an SM; a block sums one tile, or one part of its steps (split k).
//   iteration   0     1          2            3            one __syncthreads() each
//   keys        k0    k1         k2           k3           step coordinates; those of rows, columns: once
//   load              A0, B0     A1, B1       A2, B2       global --> prologue --> registers --> shared;
//                                                          without a prologue nothing waits for a load until
//                                                          the products beside it are done
//   compute                      A0 * B0      A1 * B1      micro-tile a thread, 16 x 16 threads
//   finish: sums --> shared memory --> Y, or the workspace of a split. Padding is zero after the prologue.
//   shared: rows[], columns[], steps[2][]; union of tiles[2] {left, right: [kTileK][extent]} and staged sums
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/micro_tile.cuh"
#include "codegen/device/tiled/part.cuh"

using Tiles = OperandTiles<Sum, kTileM, kTileN>;
enum : int { kStagedPitch = kFastExtent + Tiles::kPadding };
// The largest tile is staged half by half.
enum : int {
  kPasses = kTileElements > 128 * 64 ? 2 : 1,
  kElementsOfPass = kTileElements / kPasses,
};

struct Shared {
  Key rows[kTileM], columns[kTileN];
  Key steps[2][kTileK];
  union {
    Tiles tiles[2];
    alignas(16) Sum staged[kElementsOfPass / kFastExtent * kStagedPitch];
  };
};

/// The values of an operand's prologue, or zeros outside the operand.
template <int kWidth, class Value>
FUSOR_DEVICE Vec<Sum, kWidth> masked(const Vec<Value, kWidth>& values, bool inside) {
  Vec<Sum, kWidth> sums;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) sums[v] = inside ? narrow<Sum>(values[v]) : Sum(0);
  return sums;
}

struct LoadA {
  enum : bool { kAlongK = Config::a_along_k };
  using Vectors = ThreadVectors<kTileK, kTileM, Config::a_width, kAlongK>;
  FUSOR_DEVICE const Key* keys(const Shared& shared) { return shared.rows; }
  FUSOR_DEVICE Sum* tile(Tiles& tiles, int step) { return tiles.left[step]; }
  template <class Site = A>
  FUSOR_DEVICE Vec<Sum, Vectors::kWidth> elements(const Params& p, Index entry, const Key& row,
                                                  const Key& step) {
    Index at[A::kRank];
    const bool inside = p.problem.first_operand(entry, row, step, at);
    if constexpr (Config::a_plain)
      return load_whole_where<Vectors::kWidth>(Site::address(p.a, at), inside);
    else
      return masked<Vectors::kWidth>(
          Site::template apply<Vectors::kWidth>(p.a, at, inside ? Vectors::kWidth : 0), inside);
  }
};

struct LoadB {
  enum : bool { kAlongK = Config::b_along_k };
  using Vectors = ThreadVectors<kTileK, kTileN, Config::b_width, kAlongK>;
  FUSOR_DEVICE const Key* keys(const Shared& shared) { return shared.columns; }
  FUSOR_DEVICE Sum* tile(Tiles& tiles, int step) { return tiles.right[step]; }
  template <class Site = B>
  FUSOR_DEVICE Vec<Sum, Vectors::kWidth> elements(const Params& p, Index entry, const Key& column,
                                                  const Key& step) {
    Index at[B::kRank];
    const bool inside = p.problem.second_operand(entry, column, step, at);
    if constexpr (Config::b_plain)
      return load_whole_where<Vectors::kWidth>(Site::address(p.b, at), inside);
    else
      return masked<Vectors::kWidth>(
          Site::template apply<Vectors::kWidth>(p.b, at, inside ? Vectors::kWidth : 0), inside);
  }
};

/// A thread's vectors of one operand tile, on their way from global to shared memory.
template <class Load>
struct Transfer {
  using Vectors = typename Load::Vectors;
  Vec<Sum, Vectors::kWidth> items[Vectors::kItems];

  __device__ void fetch(const Params& p, Index entry, const Shared& shared, const Key* steps) {
#pragma unroll
    for (int i = 0; i < Vectors::kItems; ++i)
      items[i] = Load::elements(p, entry, Load::keys(shared)[Vectors::across(i)], steps[Vectors::step(i)]);
  }
  __device__ void stash(Tiles& tiles) const {
#pragma unroll
    for (int i = 0; i < Vectors::kItems; ++i)
#pragma unroll
      for (int v = 0; v < Vectors::kWidth; ++v)
        Load::tile(tiles,
                   Vectors::step(i) + (Load::kAlongK ? v : 0))[Vectors::across(i) + (Load::kAlongK ? 0 : v)] =
            items[i][v];
  }
};

/// Sums the part's steps of its tile: the pipeline drawn above. Its first two iterations fill it.
FUSOR_DEVICE void sum_tile(const Params& p, const Part& part, Shared& shared,
                           MicroTile<Sum, kTileM, kTileN>& micro) {
  write_tile_keys(p.problem, part.place, shared.rows, shared.columns);
  Transfer<LoadA> a;
  Transfer<LoadB> b;
  int turn = 0;
#pragma unroll 1
  for (Index k = part.begin - 2 * kTileK; k < part.end; k += kTileK) {
    const Index next = k + kTileK;
    const bool fetches = next >= part.begin && next < part.end;
    if (fetches) {
      a.fetch(p, part.place.entry, shared, shared.steps[turn ^ 1]);
      b.fetch(p, part.place.entry, shared, shared.steps[turn ^ 1]);
    }
    if (k >= part.begin) micro.multiply(shared.tiles[turn]);
    if (fetches) {
      a.stash(shared.tiles[turn ^ 1]);
      b.stash(shared.tiles[turn ^ 1]);
    }
    write_step_keys<kTileK>(p.problem, next + kTileK, part.end, shared.steps[turn]);
    __syncthreads();
    turn ^= 1;
  }
}

/// Stages the sums and applies the epilogue.
template <int kPass = 0>
FUSOR_DEVICE void finish(const Params& p, const Part& part, Shared& shared,
                         const MicroTile<Sum, kTileM, kTileN>& micro) {
  if constexpr (kPass > 0) __syncthreads();
  micro.template stage<Config::y_along_n, kStagedPitch, kPass, kPasses>(shared.staged);
  __syncthreads();
#pragma unroll 1
  for (int position = threadIdx.x * kFinishWidth; position < kElementsOfPass;
       position += kThreads * kFinishWidth)
    finish_vector(p, part, kPass * kElementsOfPass + position,
                  shared.staged + position / kFastExtent * kStagedPitch + position % kFastExtent);
  if constexpr (kPass + 1 < kPasses) finish<kPass + 1>(p, part, shared, micro);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) direct(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  enter_launch(p);
  const Part part = part_of_block(p);
  if (part.is_none()) return;
  MicroTile<Sum, kTileM, kTileN> micro;
  micro.clear();
  sum_tile(p, part, shared, micro);
  finish(p, part, shared, micro);
  leave_launch(p);
}
