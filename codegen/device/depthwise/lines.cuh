// Owns the lines that a marching kernel of the depthwise engine loads: neighbours along the last axis, row by
// row at the same places, each row while the one before it is multiplied.
#pragma once

#include "codegen/device/depthwise/tiling.cuh"

enum : int {
  kLines = Config::lines,      // of the operand, under a row of results
  kAdvance = Config::advance,  // lines from one row of results to the next
};
// Rows of results that a line meets at most.
enum : int { kRing = (kLines + kAdvance - 1) / kAdvance };
// Columns that lie side by side.
enum : int { kColumnGroup = kSpread < kTaps ? kColumns : kTaps };

/// Elements `first + offset * step` of the last axis, where `offset` counts kGroup neighbours and then goes
/// on at the next multiple of `jump`. Those beyond [0, end) are zero after the prologue; what is read in
/// their place keeps the loads free of branches.
template <int kCount, int kGroup>
struct Places {
  static_assert(kCount <= 32, "a bit for each");
  Index at[kCount];
  u32 beyond = 0;  // which of them are

  __device__ __forceinline__ Places(Index first, Index step, Index jump, Index end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Index position = first + (i / kGroup * jump + i % kGroup) * step;
      at[i] = clamped(position, end);
      beyond |= u32(at[i] != position) << i;
    }
  }

  // Places of a line that are no elements, all where the line itself is none.
  template <class Value>
  __device__ __forceinline__ void mask(Value (&line)[kCount], bool inside) const {
    const u32 masked = inside ? beyond : ~0u;
    if (masked == 0) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (masked >> i & 1) line[i] = {};
  }
};

/// One line after another. fetch() says which row is next, take() returns its values, zeros if it is not
/// `inside` the operand.
template <class Site, int kCount, int kGroup, bool kPlain>
struct Lines {
  const typename Site::Args& args;
  Places<kCount, kGroup> places;
  Index row[5];

  __device__ __forceinline__ Lines(const typename Site::Args& args_, const Places<kCount, kGroup>& places_)
      : args(args_), places(places_) {}
  __device__ __forceinline__ void fetch(const Index (&at)[5]) {
#pragma unroll
    for (int i = 0; i < 5; ++i) row[i] = at[i];
  }
  __device__ __forceinline__ void take(Line<kCount>& line, bool inside) {
    Vec<float, kVector> values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      row[4] = places.at[i];
      const auto loaded = Site::template apply<kVector>(args, row, kVector);
#pragma unroll
      for (int v = 0; v < kVector; ++v) values[i][v] = static_cast<float>(loaded[v]);
    }
    places.mask(values, inside);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int v = 0; v < kVector; ++v) line.at[i][v] = values[i][v];
  }
};

/// Specialised for a site that is a plain load of 16 bits: fetch() loads a row ahead, as it is stored.
template <class Site, int kCount, int kGroup>
struct Lines<Site, kCount, kGroup, true> {
  const typename Site::Args& args;
  Places<kCount, kGroup> places;  // as distances in memory
  Vec<typename Site::Stored, kVector> stored[kCount];

  __device__ __forceinline__ Lines(const typename Site::Args& args_, const Places<kCount, kGroup>& places_)
      : args(args_), places(places_) {
    const Index origin[5] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Index at[5] = {0, 0, 0, 0, places.at[i]};
      places.at[i] = Index(Site::address(args, at) - Site::address(args, origin));
    }
  }
  __device__ __forceinline__ void fetch(const Index (&at)[5]) {
    const auto* line = Site::address(args, at);
    // One sum for all: else the compiler adds up every element's address from the operand's.
    asm("" : "+l"(line));
#pragma unroll
    for (int i = 0; i < kCount; ++i) stored[i] = load_whole<kVector>(line + places.at[i], kVector);
  }
  __device__ __forceinline__ void take(Line<kCount>& line, bool inside) {
    places.mask(stored, inside);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const auto values = widen(stored[i]);
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        line.at[i][v] = values[v];
        // Converts here and not later: the registers of `stored` are for the next line.
        asm volatile("" : "+f"(line.at[i][v]));
      }
    }
  }
};
