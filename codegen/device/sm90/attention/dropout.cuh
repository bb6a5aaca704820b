// Owns which elements of a thread's part of a block dropout keeps: a bit each, found from coordinates alone.
// The loop that finds them has few elements in it: a generator for each element of a block would be more code
// than the instruction cache holds.
#pragma once

#include "codegen/device/sm90/attention/parts.cuh"

// kCount elements: pairs of neighbours along an axis, in turn of two rows that are given and 8 further along.
// A round of the loop finds kAtOnce of them.
template <bool kExists, class Site, int kCount, int kAtOnce = 4>
struct Kept {
  template <class Params, class At>
  __device__ void begin(const Params&, const At&) {}
  template <int kAxis, class Params, class At>
  __device__ void find(const Params&, const At&, int) {}
  __device__ void drop_others(float (&)[kCount]) const {}
  template <class Element>
  __device__ void pack(const float (&)[kCount], u32 (&)[kCount / 2]) const {}
};

template <class Site, int kCount, int kAtOnce>
struct Kept<true, Site, kCount, kAtOnce> {
  static constexpr int kWords = (kCount + 31) / 32;
  static_assert(kCount % kAtOnce == 0, "a round of the loop finds whole groups");

  typename Site::Loads loads;
  u32 bits[kWords];

  // Numbers of the entry at `at`.
  template <class Params, class At>
  __device__ void begin(const Params& p, const At& at) {
    loads = Site::loads(p.m, at, 1);
  }

  // `at`: the two rows; `first`: the first element along kAxis.
  template <int kAxis, class Params, int kRank>
  __device__ void find(const Params& p, const Index (&at)[2][kRank], int first) {
    Index place[2][kRank];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int axis = 0; axis < kRank; ++axis) place[half][axis] = at[half][axis];
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      const int begin = word * 32, end = begin + 32 < kCount ? begin + 32 : kCount;
      u32 found = 0;
#pragma unroll 1
      for (int i = begin; i < end; i += kAtOnce) {
        u32 some = 0;
#pragma unroll
        for (int j = 0; j < kAtOnce; j += 2) {
          Index(&here)[kRank] = place[j / 2 % 2];
          here[kAxis] = first + i / 4 * 8 + j / 4 * 8;
          const auto keeps = Site::template apply<2>(p.m, here, 2, loads, Vec<float, 2>{0.0f, 0.0f});
#pragma unroll
          for (int c = 0; c < 2; ++c)
            if (keeps[c]) some |= 1u << (j + c);
        }
        found = found >> kAtOnce | some << (32 - kAtOnce);
      }
      bits[word] = found >> (begin + 32 - end);
    }
  }

  __device__ float kept(int i, float value) const { return bits[i / 32] >> i % 32 & 1 ? value : 0.0f; }
  __device__ void drop_others(float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = kept(i, values[i]);
  }
  // Packs like ::pack(), with zeros in place of dropped values.
  template <class Element>
  __device__ void pack(const float (&values)[kCount], u32 (&words)[kCount / 2]) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 2)
      words[i / 2] = PairConversion<Element>::narrow(kept(i, values[i]), kept(i + 1, values[i + 1]));
  }
};
