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
};

// Tiles of queries by section of heads, whose keys and values fit L2 together; within a section the tile with
// the last queries first, which sees most keys where keys are bounded by the row.
//   items   section 0: tile n-1 of heads 0 .. s-1, tile n-2 of heads 0 .. s-1, ..., section 1: ...
struct TileQueue {
  i64 tiles, entries, section;

  struct Item {
    int tile, entry;
  };
  __device__ int items() const { return static_cast<int>(tiles * entries); }
  __device__ Item item(int number) const {
    const int of_section = static_cast<int>(tiles * section);
    const int first = number / of_section * static_cast<int>(section), within = number % of_section;
    const int heads = min(static_cast<int>(section), static_cast<int>(entries) - first);
    return {static_cast<int>(tiles) - 1 - within / heads, first + within % heads};
  }
};
