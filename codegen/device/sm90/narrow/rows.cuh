// Owns the input rows of a convolution of few channels in shared memory: a ring of groups, and its loader.
//
//   strip (an item of work): neighbouring rows of the result in one image, kTilePixels columns wide
//   group g: the kStrideH input rows that result row g - kSpan needs and the row before it does not
//
//   warp 0: group 0, 4, ...   warp 1: group 1, 5, ...   --> group[kGroups][kStrideH] of slots, full[place]
//   from any layout, through any prologue, a pair of pixels a thread
#pragma once

#include "codegen/device/sm90/narrow/pixel_slots.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"

enum : int {
  kWindowH = Config::window_h,
  kWindowW = Config::window_w,
  kStrideH = Config::stride_h,
  kStrideW = Config::stride_w,
  kDilationH = Config::dilation_h,
  kChannels = Config::channels,
  kTilePixels = Config::tile_n,  // of a row of the result
  kGroups = Config::stages,      // that the ring holds
};

using Element = Config::ElementA;  // that the tensor cores multiply

using Slots = PixelSlots<kWindowW, kStrideW, kTilePixels, Config::tails>;
using Slot = Vec<Element, Slots::kSlot>;
// Input rows under a window, beside the first; groups likewise.
enum : int { kReach = (kWindowH - 1) * kDilationH, kSpan = kReach / kStrideH };
static_assert(kChannels <= Slots::kSlot, "a slot holds all channels");
static_assert(kGroups >= kSpan + 2 && kGroups >= 4, "loading runs ahead of the window");

// ---- Items ----

// A strip of the result: rows of one image, kTilePixels columns wide.
struct Strip {
  int image, row, rows, column;
  __device__ int groups() const { return rows + kSpan; }
};

struct Strips {
  FastDivisor along_h, along_w;  // strips of an image
  i64 rows;                      // of a strip
  i64 count;
  i64 height;  // of the result
  i64 input_height, input_width;
  i64 lower_h, lower_w;  // where the first window begins

  __device__ Strip strip(int item) const {
    Index rest = item;
    Strip strip;
    strip.row = static_cast<int>(along_h.split(rest) * rows);
    strip.column = static_cast<int>(along_w.split(rest)) * kTilePixels;
    strip.image = static_cast<int>(rest);
    const int left = static_cast<int>(height) - strip.row;
    strip.rows = left < static_cast<int>(rows) ? left : static_cast<int>(rows);
    return strip;
  }
};

// ---- The ring ----

enum : int { kLoadingWarps = 4 };

struct InputRows {
  alignas(128) u8 group[kGroups][kStrideH][Slots::kBytes];
  // The second unit of a step that has only one.
  alignas(128) u8 zeros[kTilePixels * 16];
  Barrier full[kGroups], empty[kGroups];

  // `beside`: arrivals at a full group other than the loading warp's.
  __device__ void init(int beside, int readers) {
#pragma unroll 1
    for (int i = 0; i < kGroups; ++i) {
      full[i].init(32 + beside);
      empty[i].init(readers);
    }
  }
  // Called by all threads before any group is loaded: zeroes the bytes that no pixel ever fills.
  __device__ void clear(int thread, int threads) {
    const Words<16> zero{};
#pragma unroll 1
    for (int i = thread; i < kTilePixels; i += threads) {
      *reinterpret_cast<Words<16>*>(zeros + i * 16) = zero;
      if constexpr (Slots::kTail) {
#pragma unroll 1
        for (int row = 0; row < kGroups * kStrideH; ++row)
          *reinterpret_cast<Words<16>*>(group[row / kStrideH][row % kStrideH] + Slots::kTailAt + i * 16) =
              zero;
      }
    }
  }
  // Called by every reading warp that needs the group no more.
  __device__ void release(int place) {
    if (threadIdx.x % 32 == 0) empty[place].arrive();
  }

  __device__ u32 unit(const u8* row, int number) const {
    const int at = Slots::unit(number);
    return shared_address(at < 0 ? zeros : row + at);
  }
};

// The next group, counted over all strips, its place in the ring and the parity of its barriers.
struct GroupRing {
  int number = 0;
  __device__ int place(int ahead) const { return (number + ahead) % kGroups; }
  __device__ u32 parity(int ahead) const { return (number + ahead) / kGroups & 1; }
};

// ---- Loading ----

// A pair of elements, or zeros where it does not exist. Predicated: dozens of such loads would each have a
// branch.
FUSOR_DEVICE Vec<Element, 2> load_pair_if(bool exists, const Element* from) {
  Words<4> words;
  asm("{\n.reg .pred exists;\nsetp.ne.b32 exists, %2, 0;\nmov.b32 %0, 0;\n"
      "@exists ld.global.nc.u32 %0, [%1];\n}"
      : "=r"(words.word[0])
      : "l"(from), "r"(static_cast<u32>(exists)));
  return bit_cast<Vec<Element, 2>>(words);
}

// Two neighbouring pixels at an even position, as they come from memory: where channels and pixels are one
// contiguous axis, pairs of its elements; else the pixels' pair of every channel.
struct PixelPair {
  Vec<Element, 2> words[kChannels];

  // `count` of the pixels exist; the others are zero. Where pairs are plain, they exist whole or not at all.
  template <class Site = X>
  __device__ void load(const typename Site::Args& args, int image, int row, int column, int count) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      Index at[X::kRank];
      at[0] = image;
      int existing = count;
      if constexpr (Config::merged) {
        if constexpr (X::kRank == 3) at[1] = row;
        at[X::kRank - 1] = column * kChannels + 2 * i;
        existing = count * kChannels - 2 * i;
        existing = existing < 0 ? 0 : existing > 2 ? 2 : existing;
      } else {
        at[1] = i;
        if constexpr (X::kRank == 4) at[2] = row;
        at[X::kRank - 1] = column;
      }
      if constexpr (Config::plain)
        words[i] = load_pair_if(existing > 0, Site::address(args, at));
      else
        words[i] = narrow<Element>(Site::template apply<2>(args, at, existing));
    }
  }

  __device__ Slot slot(int pixel) const {
    Slot slot{};
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
      const int at = Config::merged ? pixel * kChannels + channel : channel * 2 + pixel;
      slot[channel] = words[at / 2][at % 2];
    }
    return slot;
  }
};

// One warp's share of a group: pairs of pixels, the first of a row at an even position; 32 of them a round.
struct GroupLoader {
  enum : int {
    kPairs = Slots::kPixels / 2 + 1,  // wherever the first pixel is
    kRoundsOfRow = (kPairs + 31) / 32,
    kRounds = kStrideH * kRoundsOfRow,
  };
  // Loads under way at once: registers are what limits them.
  enum : int { kMost = !Config::plain || kChannels > 4 ? 3 : kChannels == 4 ? 6 : 8 };

  const Strips& strips;
  const X::Args& args;
  InputRows& rows;

  // `beside` is called when the group's place is free.
  template <class Beside>
  __device__ void fill(const Strip& strip, int group, const GroupRing& ring, const Beside& beside) {
    const int lane = threadIdx.x % 32;
    const int place = ring.place(group);
    const int first = strip.column * kStrideW + static_cast<int>(strips.lower_w);
    const int odd = first & 1;
    const int below = group * kStrideH;  // the strip's first row
    const int above = strip.row * kStrideH + below + static_cast<int>(strips.lower_h);
    const int last = (strip.rows - 1) * kStrideH + kReach;
#pragma unroll 1
    for (int begin = 0; begin < kRounds; begin += kMost) {
      PixelPair pairs[kMost];
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (begin + i >= kRounds) continue;
        const int in_group = (begin + i) / kRoundsOfRow, pair = (begin + i) % kRoundsOfRow * 32 + lane;
        const int row = above + in_group, column = first - odd + pair * 2;
        const bool inside = below + in_group <= last &&
                            static_cast<u32>(row) < static_cast<u32>(strips.input_height) &&
                            static_cast<u32>(column) < static_cast<u32>(strips.input_width);
        const int left = static_cast<int>(strips.input_width) - column;
        pairs[i].load(args, strip.image, row, column, !inside ? 0 : left < 2 ? 1 : 2);
      }
      if (begin == 0) {
        rows.empty[place].wait(ring.parity(group) ^ 1);
        beside(strip, group, place);
      }
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (begin + i >= kRounds) continue;
        u8* const row = rows.group[place][(begin + i) / kRoundsOfRow];
        const int round = (begin + i) % kRoundsOfRow;
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          const int pixel = (round * 32 + lane) * 2 + second - odd;
          // These checks remain only in the rounds in which they can fail.
          if (round == 0 && pixel < 0) continue;
          if (round * 64 + 63 >= Slots::kPixels && pixel >= Slots::kPixels) continue;
          const Slot slot = pairs[i].slot(second);
          *reinterpret_cast<Slot*>(row + Slots::slot(pixel)) = slot;
          if (const int tail = Slots::tail(pixel); tail >= 0) *reinterpret_cast<Slot*>(row + tail) = slot;
        }
      }
    }
    fence_shared_writes();
    // One arrival for the warp would do; this way race checkers can follow.
    rows.full[place].arrive();
  }
};

// Every `step`-th strip, from `first` on.
template <class Beside>
FUSOR_DEVICE void load_rows(const Strips& strips, int first, int step, const X::Args& args, InputRows& rows,
                            const Beside& beside) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0) % kLoadingWarps;
  GroupLoader loader{strips, args, rows};
  GroupRing ring;
#pragma unroll 1
  for (int item = first; item < static_cast<int>(strips.count); item += step) {
    const Strip strip = strips.strip(item);
    const int mine = (warp + kLoadingWarps - ring.number % kLoadingWarps) % kLoadingWarps;
#pragma unroll 1
    for (int group = mine; group < strip.groups(); group += kLoadingWarps)
      loader.fill(strip, group, ring, beside);
    ring.number += strip.groups();
  }
}
