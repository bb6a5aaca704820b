// Owns the work of the kernel of resident windows: the positions of its padded grid in tiles, and the places
// of taps in a window.
#pragma once

#include "codegen/device/contraction/padded_grid.cuh"
#include "codegen/device/sm90/epilogue/scatter.cuh"
#include "codegen/device/sm90/load/boxes.cuh"

enum : int {
  kMaxTaps = 16,
  kMaxWindows = 8,
};

using Grid = PaddedGrid<kSpatial, Index, i64, FastDivisor>;

struct Windows {
  Grid grid;
  i64 tiles;                                   // of positions
  FastDivisor filter_blocks, blocks_of_group;  // blocks of a tile's output channels: all; of one group
  i64 layers;                                  // of a window, copied one after the other
  i64 taps;                                    // of a layer
  i64 slices;                                  // of 32 bytes, of a line of channels
  i64 filter_lines;                            // that a copy brings of 64
  i64 filters;                                 // copies
  i64 joined;           // 2 to the power of it: taps of a copy's lines, one behind the other
  i64 lines[kMaxTaps];  // how far from a position's line the tap's is
  FastDivisor stages;   // of the ring
  i64 lines_of_stage;   // in multiples of 8
  i64 lines_of_window;

  // Of a line that so many slices fit into, which TMA swizzles.
  static __device__ constexpr int line_bytes_of(int slices) {
    return slices <= 1 ? 32 : slices == 2 ? 64 : 128;
  }
  __device__ int line_bytes() const { return line_bytes_of(static_cast<int>(slices)); }
  __device__ int filter_bytes() const { return static_cast<int>(filter_lines) * 128; }  // of a copy
  // Where a tap's filter begins.
  __device__ int filter(int tap) const {
    const int shift = static_cast<int>(joined), in_line = tap & ((1 << shift) - 1);
    return (tap >> shift) * filter_bytes() + in_line * (128 >> shift);
  }
  static __device__ constexpr int filters_of_tile() { return kSwapped ? 64 : kTileN; }
  static __device__ constexpr int positions_of_tile() { return kSwapped ? kTileN : kTileM; }
  // A block has one block of filters; those with the same share the tiles.
  __device__ int first_tile() const { return static_cast<int>(filter_blocks.divide(blockIdx.x)); }
  __device__ int tile_step() const { return static_cast<int>(filter_blocks.divide(gridDim.x)); }
  __device__ Tile tile(int number) const {
    Index group = blockIdx.x;
    group = filter_blocks.split(group);
    const int filters = static_cast<int>(blocks_of_group.split(group)) * filters_of_tile();
    const int positions = number * positions_of_tile(), entry = static_cast<int>(group);
    return {0, entry, kSwapped ? filters : positions, kSwapped ? positions : filters, 0, 0};
  }
};
