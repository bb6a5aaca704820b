// Owns the filters of a block's channels in shared memory, as fp32.
#pragma once

#include "codegen/device/depthwise/tiling.cuh"

/// [vector of the block][tap][pack], packs of up to 16 bytes; an odd number of them a vector, so that
/// neighbouring threads meet no bank twice.
struct Filters {
  enum : int { kPack = kVector < 4 ? kVector : 4 };
  using Pack = Vec<float, kPack>;
  enum : int { kPacks = kVector / kPack };  // of a tap
  Pack* packs;                              // this thread's first

  __device__ __forceinline__ Filters(Pack* first, Index taps, Index column)
      : packs(first + column * (taps * kPacks | 1)) {}

  __device__ __forceinline__ void read(Index tap, float (&filter)[kVector]) const {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const Pack pack = packs[tap * kPacks + i];
#pragma unroll
      for (int v = 0; v < kPack; ++v) filter[i * kPack + v] = pack[v];
    }
  }

  /// The lanes of a block share out the taps.
  __device__ __forceinline__ void stage(const Window& window, const B::Args& args, Index channel, Index lane,
                                        Index lanes) const {
#pragma unroll 1
    for (Index tap = lane; tap < window.taps(); tap += lanes) {
      Index at[5] = {channel, 0};
      window.stored(tap, at);
      const auto values = B::apply<kVector>(args, at, kVector);
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        Pack pack;
#pragma unroll
        for (int v = 0; v < kPack; ++v) pack[v] = narrow<float>(values[i * kPack + v]);
        packs[tap * kPacks + i] = pack;
      }
    }
  }
};
