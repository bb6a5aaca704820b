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

/// Where a line is loaded from. Loads beyond [0, end) are zero after the prologue; what is read in their
/// place keeps the loads free of branches.
template <class Loads>
struct Places {
  enum : int { kLoads = Loads::kLoads, kWidth = kVector * Loads::kLength };
  static_assert(kLoads <= 32, "a bit for each");
  Index at[kLoads];
  u32 beyond = 0;  // which of them are

  __device__ __forceinline__ Places(const Loads& loads, Index end) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      at[i] = loads.clamped(i, end);
      beyond |= u32(at[i] != loads.position(i)) << i;
    }
  }

  // Places of a line that are no elements, all where the line itself is none.
  template <class Value>
  __device__ __forceinline__ void mask(Value (&line)[kLoads], bool inside) const {
    const u32 masked = inside ? beyond : ~0u;
    if (masked == 0) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (masked >> i & 1) line[i] = {};
  }
};

/// One line after another. fetch() says which row is next, take() returns its values, zeros if it is not
/// `inside` the operand.
template <class Site, class Loads, bool kPlain>
struct Lines {
  enum : int { kLoads = Places<Loads>::kLoads, kWidth = Places<Loads>::kWidth };
  const typename Site::Args& args;
  Places<Loads> places;
  Index row[5];

  __device__ __forceinline__ Lines(const typename Site::Args& args_, const Places<Loads>& places_)
      : args(args_), places(places_) {}
  __device__ __forceinline__ void fetch(const Index (&at)[5]) {
#pragma unroll
    for (int i = 0; i < 5; ++i) row[i] = at[i];
  }
  template <int kCount>
  __device__ __forceinline__ void take(Line<kCount>& line, bool inside) {
    Vec<float, kWidth> values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      row[4] = places.at[i];
      const auto loaded = Site::template apply<kWidth>(args, row, kWidth);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) values[i][v] = static_cast<float>(loaded[v]);
    }
    places.mask(values, inside);
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
#pragma unroll
      for (int v = 0; v < kWidth; ++v) put<Loads>(line, i, v, values[i][v]);
  }
};

/// Specialised for a site that is a plain load of 16 bits: fetch() loads a row ahead, as it is stored.
template <class Site, class Loads>
struct Lines<Site, Loads, true> {
  enum : int { kLoads = Places<Loads>::kLoads, kWidth = Places<Loads>::kWidth };
  const typename Site::Args& args;
  Places<Loads> places;  // as distances in memory
  Vec<typename Site::Stored, kWidth> stored[kLoads];

  __device__ __forceinline__ Lines(const typename Site::Args& args_, const Places<Loads>& places_)
      : args(args_), places(places_) {
    const Index origin[5] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const Index at[5] = {0, 0, 0, 0, places.at[i]};
      places.at[i] = Index(Site::address(args, at) - Site::address(args, origin));
    }
  }
  __device__ __forceinline__ void fetch(const Index (&at)[5]) {
    const auto* line = Site::address(args, at);
    // One sum for all: else the compiler adds up every element's address from the operand's.
    asm("" : "+l"(line));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) stored[i] = load_whole<kWidth>(line + places.at[i], kWidth);
  }
  template <int kCount>
  __device__ __forceinline__ void take(Line<kCount>& line, bool inside) {
    places.mask(stored, inside);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto values = widen(stored[i]);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        const int element = Loads::element(i, v / kVector);
        if (element < 0 || element >= kCount) continue;
        line.at[element][v % kVector] = values[v];
        // Converts here and not later: the registers of `stored` are for the next line.
        asm volatile("" : "+f"(line.at[element][v % kVector]));
      }
    }
  }
};
