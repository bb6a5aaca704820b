// Owns what a thread takes from memory: every element that the windows of its tile need, once.
//
//   a row of elements    . . . . . . . x | x x x x x x x x |   runs of kRun (here 8): inside or outside as a
//   a tile needs 9                     ^   ^^^^^^^^^^^^^^^     whole; a part is loaded by the smallest vector
#pragma once

#include "codegen/device/window/places.cuh"

struct Taken {
  Y::Held<kVector> held[kOthers][kRows][kColumns];
};

// Elements, or vectors of channels, one by one.
struct Take {
  const Params& p;
  const Index (&tile)[Y::kKept];
  Taken& taken;

  template <int kNumber>
  __device__ __forceinline__ void number() {
    constexpr int kOther = kNumber / (kRows * kColumns), kRow = kNumber / kColumns % kRows,
                  kColumn = kNumber % kColumns;
    const At<kRowLine.window[kRow], kColumnLine.window[kColumn], kRowLine.place[kRow],
             kColumnLine.place[kColumn], kOther>
        at{tile};
    taken.held[kOther][kRow][kColumn] = Y::load<kVector>(p.y, at, kVector);
  }
};

enum : int { kRun = Config::run };  // 1: there are none
FUSOR_DEVICE constexpr int floor_div(int a, int b) { return (a >= 0 ? a : a - b + 1) / b; }
// Whether the element of this number is ever one, and its place along the row, counted from the tile's.
FUSOR_DEVICE constexpr bool is_live(int number) { return (Config::column_live >> number & 1) != 0; }
FUSOR_DEVICE constexpr int element_of(int number) { return kColumnLine.where[number] + Config::column_base; }

struct Runs {
  int first = 1 << 30, last = -(1 << 30);

  __device__ constexpr Runs() {
    for (int number = 0; number < kColumns; ++number) {
      if (!is_live(number)) continue;
      const int run = floor_div(element_of(number), kRun);
      if (run < first) first = run;
      if (run > last) last = run;
    }
  }
};
static __device__ constexpr Runs kAllRuns;
enum : int { kRuns = kRun > 1 ? kAllRuns.last - kAllRuns.first + 1 : 0 };

// The part of a run that the tile needs: `width` elements from `first` on, one of which has this number.
struct RunPart {
  int first = 0, width = 0, number = 0;

  __device__ constexpr RunPart(int run) {
    int low = 0, high = -1;
    for (int i = 0; i < kColumns; ++i) {
      const int element = element_of(i);
      if (!is_live(i) || floor_div(element, kRun) != run) continue;
      if (high < low) low = high = element;
      if (element <= low) low = element, number = i;
      if (element > high) high = element;
    }
    if (high < low) return;
    width = 1;
    while (floor_div(low, width) != floor_div(high, width)) width *= 2;
    first = floor_div(low, width) * width;
  }
};

struct TakeRuns {
  const Params& p;
  const Index (&tile)[Y::kKept];
  Taken& taken;

  template <int kNumber>
  __device__ __forceinline__ void number() {
    constexpr int kOther = kNumber / (kRows * kRuns), kRow = kNumber / kRuns % kRows;
    constexpr RunPart kPart(kAllRuns.first + kNumber % kRuns);
    if constexpr (kPart.width > 0) {
      const At<kRowLine.window[kRow], kColumnLine.window[kPart.number], kRowLine.place[kRow],
               kColumnLine.place[kPart.number], kOther>
          at{tile};
      const auto run = Y::template load_run<kPart.width, element_of(kPart.number) - kPart.first>(p.y, at);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int element = element_of(i);
        if (is_live(i) && element >= kPart.first && element < kPart.first + kPart.width)
          Y::take(run, element - kPart.first, taken.held[kOther][kRow][i]);
      }
    }
  }
};

static __device__ __forceinline__ void take_all(const Params& p, const Index (&tile)[Y::kKept],
                                                Taken& taken) {
  if constexpr (kRun > 1) {
    TakeRuns take{p, tile, taken};
    visit_all<kOthers * kRows * kRuns>(take);
  } else {
    Take take{p, tile, taken};
    visit_all<kOthers * kRows * kColumns>(take);
  }
}
