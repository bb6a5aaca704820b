// Owns what the kernels of a tiled contraction share: the product in the terms of the config, which tile a
// block works on, and where the vectors of a tile lie in the result.
#pragma once

#include "codegen/device/contraction/product.cuh"

#if FUSOR_COMPUTE == 0
using Sum = float;
#elif FUSOR_COMPUTE == 1
using Sum = double;
#elif FUSOR_COMPUTE == 2
using Sum = i32;
#else
using Sum = i64;
#endif

static constexpr int kThreads = 256;  // of a block
static constexpr int kTileM = FUSOR_TILE_M, kTileN = FUSOR_TILE_N;
static constexpr int kTileElements = kTileM * kTileN;

#ifdef FUSOR_CHANNEL_BLOCK
static constexpr bool kChannelBlocks = true;  // the last of which may lie partly outside
#else
static constexpr bool kChannelBlocks = false;
#endif
using Problem = Contraction<FUSOR_OP, FUSOR_SPATIAL, FUSOR_BATCH, FUSOR_CHANNELS_FASTEST, FUSOR_UNIT_STRIDE,
                            Index, i64, FastDivisor, kChannelBlocks>;
using Key = Problem::Key;

/// A tile: its batch entry (matmul: linear over the leading axes; convolution: the group), first row and
/// first column.
struct Place {
  Index entry, row, column;
};

/// All tiles of the result; those along n are neighbours.
struct Tiling {
  i64 tiles;
  FastDivisor along_n, along_m;  // tiles along the axis

  __device__ Place place(Index tile) const {
    const Index rows = along_n.divide(tile);
    const Index entry = along_m.divide(rows);
    return {entry, (rows - entry * along_m.divisor) * kTileM, (tile - rows * along_n.divisor) * kTileN};
  }
};

/// A tile is stored along n or along m, whichever is adjacent in memory.
static constexpr int kFastExtent = FUSOR_Y_ALONG_N ? kTileN : kTileM;

/// Where the vector at `position` of a tile lies; position counts the tile's elements in the order above. A
/// vector lies inside the result whole or not at all: its width divides the extent it runs along.
struct VectorPlace {
  Index row, column;
  bool inside;
};

FUSOR_DEVICE VectorPlace vector_place(const Problem& problem, const Place& place, int position) {
  const int fast = position % kFastExtent, slow = position / kFastExtent;
  const Index row = place.row + (FUSOR_Y_ALONG_N ? slow : fast);
  const Index column = place.column + (FUSOR_Y_ALONG_N ? fast : slow);
  bool inside = row < Index(problem.m) && column < Index(problem.n);
  if constexpr (kChannelBlocks) inside = inside && problem.column(column).lead >= 0;
  return {row, column, inside};
}
