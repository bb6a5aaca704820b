// Owns which elements of a thread's part of a block dropout keeps: a bit each, found from coordinates alone.
// The loop that finds them has few elements in it: a generator for each element of a block would be more code
// than the instruction cache holds.
//
//   Four keys from a multiple of four on share a block of random words, if the site says so. Lanes that hold
//   some of them find as many blocks as each needs words of, and exchange the bits (key, of lane):
//
//   columns are keys: two lanes hold four columns       rows are keys: four lanes hold four rows (keys)
//     columns 0..3   |0 0 1 1|  found by lane 0           columns 0, 1   rows 0 to 3   found by lane 0
//     columns 8..11  |0 0 1 1|  found by lane 1                          rows 8 to 11  found by lane 1
//     ...                                                 columns 8, 9   rows 0 to 3   found by lane 2
#pragma once

#include "codegen/device/sm90/attention/parts.cuh"

// How lanes share words.
enum class SharedWords { none, columns, rows };

// kCount elements: pairs of neighbours along an axis, in turn of two rows that are given and 8 further along.
// A round of the loop finds kAtOnce of them where each lane finds its own.
template <bool kExists, class Site, int kCount, SharedWords kShared, int kAtOnce = 4>
struct Kept {
  template <class Params, class At>
  __device__ void begin(const Params&, const At&) {}
  template <int kAxis, class Params, class At>
  __device__ void find(const Params&, const At&, int) {}
  __device__ void drop_others(float (&)[kCount]) const {}
  template <class Element>
  __device__ void pack(const float (&)[kCount], u32 (&)[kCount / 2]) const {}
};

template <class Site, int kCount, SharedWords kShared, int kAtOnce>
struct Kept<true, Site, kCount, kShared, kAtOnce> {
  enum : int { kWords = (kCount + 31) / 32 };
  // Elements of a round.
  enum : int { kRound = kShared == SharedWords::none ? kAtOnce : 8 };
  static_assert(kCount % kRound == 0, "a round of the loop finds whole groups");
  // Words of a loop, and rounds whose blocks are found together, as none waits for another.
  enum : int { kOfLoop = kWords > 1 ? 2 : 1, kTogether = kShared == SharedWords::none ? 1 : 2 };
  using Found = u64;
  static __device__ constexpr int end_of(int first_word) {
    return 32 * (first_word + kOfLoop) < kCount ? 32 * (first_word + kOfLoop) : kCount;
  }

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
    for (int first_word = 0; first_word < kWords; first_word += kOfLoop) {
      Found found = 0;
#pragma unroll kTogether
      for (int i = 32 * first_word; i < end_of(first_word); i += kRound) {
        const Found some = find_round<kAxis>(p, place, first, i);
        found = found >> kRound | some << (32 * kOfLoop - kRound);
      }
      found >>= 32 * (first_word + kOfLoop) - end_of(first_word);
#pragma unroll
      for (int word = 0; word < kOfLoop && first_word + word < kWords; ++word)
        bits[first_word + word] = exchanged(static_cast<u32>(found >> 32 * word));
    }
  }

  __device__ float kept(int i, float value) const {
    return bits[i / 32] >> bit_of(i % 32) & 1 ? value : 0.0f;
  }
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

 private:
  // Bits of the N elements at `at`, the first one the lowest.
  template <int N, class Params, class At>
  __device__ u32 bits_at(const Params& p, const At& at) const {
    const auto keeps = Site::template apply<N>(p.m, at, N, loads, Vec<float, N>{});
    u32 some = 0;
#pragma unroll
    for (int c = 0; c < N; ++c)
      if (keeps[c]) some |= 1u << c;
    return some;
  }

  // The bits that this lane finds in the round of element i.
  template <int kAxis, class Params, int kRank>
  __device__ u32 find_round(const Params& p, Index (&place)[2][kRank], int first, int i) const {
    u32 some = 0;
    if constexpr (kShared == SharedWords::none) {
#pragma unroll
      for (int j = 0; j < kRound; j += 2) {
        Index(&here)[kRank] = place[j / 2 % 2];
        here[kAxis] = first + i / 4 * 8 + j / 4 * 8;
        some |= bits_at<2>(p, here) << j;
      }
    } else if constexpr (kShared == SharedWords::columns) {
      const int lane = threadIdx.x % 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        place[half][kAxis] = first - 2 * lane + 8 * (i / 4 + lane);
        some |= bits_at<4>(p, place[half]) << 4 * half;
      }
    } else {
      const int lane = threadIdx.x / 4 % 4;
      Index here[kRank];
#pragma unroll
      for (int axis = 0; axis < kRank; ++axis) here[axis] = lane % 2 == 0 ? place[0][axis] : place[1][axis];
      here[kRank - 1] &= ~Index(3);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        here[kAxis] = first + 8 * (i / 4 + lane / 2) + c;
        some |= bits_at<4>(p, here) << 4 * c;
      }
    }
    return some;
  }

  // This lane's bits of all that neighbours found.
  static __device__ u32 exchanged(u32 found) {
    if constexpr (kShared == SharedWords::columns) {
      const int lane = threadIdx.x % 2;
      const u32 other = __shfl_xor_sync(0xffffffffu, found, 1);
      const u32 even = lane == 0 ? found : other, odd = lane == 0 ? other : found;
      return (even >> 2 * lane & 0x33333333u) | (odd >> 2 * lane & 0x33333333u) << 2;
    } else if constexpr (kShared == SharedWords::rows) {
      const int lane = threadIdx.x / 4 % 4;
      u32 all = 0;
#pragma unroll
      for (int far = 0; far < 4; ++far) {
        const u32 theirs = far == 0 ? found : __shfl_xor_sync(0xffffffffu, found, 4 * far);
        all |= (theirs >> lane & 0x11111111u) << (lane ^ far);
      }
      return all;
    } else {
      return found;
    }
  }

  // Where exchanged() leaves the bit of element i of a word.
  static __device__ constexpr int bit_of(int i) {
    if (kShared == SharedWords::columns) return i / 8 * 8 + i / 2 % 2 * 4 + i / 4 % 2 * 2 + i % 2;
    if (kShared == SharedWords::rows) return i / 8 * 8 + i % 2 * 4 + i / 2 % 4;
    return i;
  }
};
