// Owns what the kernels of a tiled contraction share: the product in the terms of the config, which tile a
// block works on, and where the vectors of a tile lie in the result.
#pragma once

#include "codegen/device/contraction/product.cuh"

using Sum = Config::Sum;

enum : int {
  kThreads = 256,  // of a block
  kTileM = Config::tile_m,
  kTileN = Config::tile_n,
  kTileElements = kTileM * kTileN,
};

// Blocks of channels, the last of which may lie partly outside, or taps of channels that are filled up.
enum : int { kChannelBlocks = Config::channel_block };
using Problem = Contraction<Config::op, Config::spatial, Config::batch, Config::channels_fastest,
                            Config::unit_stride, Index, i64, FastDivisor, kChannelBlocks>;
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
enum : int { kFastExtent = Config::y_along_n ? kTileN : kTileM };

/// Where the vector at `position` of a tile lies; position counts the tile's elements in the order above. A
/// vector lies inside the result whole or not at all: its width divides the extent it runs along.
struct VectorPlace {
  Index row, column;
  bool inside;
};

FUSOR_DEVICE VectorPlace vector_place(const Problem& problem, const Place& place, int position) {
  const int fast = position % kFastExtent, slow = position / kFastExtent;
  const Index row = place.row + (Config::y_along_n ? slow : fast);
  const Index column = place.column + (Config::y_along_n ? fast : slow);
  bool inside = row < Index(problem.m) && column < Index(problem.n);
  if constexpr (kChannelBlocks != 0) inside = inside && problem.column(column).lead >= 0;
  return {row, column, inside};
}
