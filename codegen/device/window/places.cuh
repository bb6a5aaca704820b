// Owns the places of a tile's windows: which of them are one element, and the coordinates of each, as types.
//
//   forward, 3 taps every 2           window 0   0 1 2         backward of it      element 0     0 .
//   elements ──► numbers              window 1       2 3 4     windows ──► numbers element 1     0 1
#pragma once

#include "codegen/device/base/counted.cuh"

enum : int {
  kVector = Config::vector,
  kTileRows = Config::tile_rows,
  kTileColumns = Config::tile_columns,
};
// Places along the axes of a window, from its first on.
FUSOR_DEVICE constexpr int places_along(int axis) {
  return axis == 0 ? Config::places_0 : axis == 1 ? Config::places_1 : Config::places_2;
}
enum : int {
  kSteps = Config::places_0 * Config::places_1 * Config::places_2,
  kVectorAxis = Y::kKept - 1,
};
// The axes of a tile's columns and rows, and the axes of a window's places that go along with them; -1: none.
enum : int {
  kColumnAxis = Config::column_axis,
  kColumnPlaces = Config::column_places,
  kRowAxis = Config::row_axis,
  kRowPlaces = Config::row_places,
  kRowCount = kRowPlaces < 0 ? 1 : places_along(kRowPlaces),
  kColumnCount = kColumnPlaces < 0 ? 1 : places_along(kColumnPlaces),
  kOthers = kSteps / kRowCount / kColumnCount,  // places along the other axes
};

// The different elements of a tile's windows along one axis: place q of window u is number
// (step * u + turn * q + shift) / divisor of some order, or, with a divisor of 0, one of its own.
template <int kTile, int kCount, int kStep, int kTurn, int kShift, int kDivisor>
struct Line {
  int places = 0;
  int of[kTile][kCount] = {};       // window, place -> number
  int window[kTile * kCount] = {};  // number -> the first window there
  int place[kTile * kCount] = {};   // and its place
  int where[kTile * kCount] = {};   // number -> the element, in that order

  __device__ constexpr Line() {
    for (int u = 0; u < kTile; ++u)
      for (int q = 0; q < kCount; ++q) {
        const int at = kDivisor == 0 ? u * kCount + q
                                     : (kStep * u + kTurn * q + kShift) / (kDivisor == 0 ? 1 : kDivisor);
        int number = 0;
        while (number < places && where[number] != at) ++number;
        if (number == places) {
          where[places] = at;
          window[places] = u;
          place[places] = q;
          ++places;
        }
        of[u][q] = number;
      }
  }
};
static __device__ constexpr Line<kTileRows, kRowCount, Config::row_step, Config::row_turn, Config::row_shift,
                                 Config::row_divisor>
    kRowLine;
static __device__ constexpr Line<kTileColumns, kColumnCount, Config::column_step, Config::column_turn,
                                 Config::column_shift, Config::column_divisor>
    kColumnLine;
enum : int { kRows = kRowLine.places, kColumns = kColumnLine.places };

// Places that are no element, whatever the tile: a bit each.
FUSOR_DEVICE constexpr bool is_never(int all, int place) { return place < 32 && (all >> place & 1) != 0; }

// A place of a window of the tile: the places along the tile's axes, and those along the others, row-major.
template <int kWindowRow, int kWindowColumn, int kPlaceRow, int kPlaceColumn, int kPlaceOther>
struct At {
  const Index (&tile)[Y::kKept];

  static __device__ constexpr int place_along(int asked) {
    if (asked == kRowPlaces) return kPlaceRow;
    if (asked == kColumnPlaces) return kPlaceColumn;
    int other = kPlaceOther;
    for (int i = Y::kRank - Y::kKept - 1; i > asked; --i)
      if (i != kRowPlaces && i != kColumnPlaces) other /= places_along(i);
    return other % places_along(asked);
  }
  template <int kAxis>
  __device__ __forceinline__ auto axis() const {
    if constexpr (kAxis >= Y::kKept)
      return Number<place_along(kAxis - Y::kKept)>{0};
    else if constexpr (kTileRows > 1 && kAxis == kRowAxis)
      return Counted<kAxis, kTileRows, kWindowRow>{tile[kAxis]};
    else if constexpr (kTileColumns > 1 && kAxis == kColumnAxis)
      return Counted<kAxis, kTileColumns, kWindowColumn>{tile[kAxis]};
    else
      return Counted<kAxis, (kAxis == kVectorAxis ? kVector : 1), 0>{tile[kAxis]};
  }
};

// The same of a place by its number in the window, which orders totals.
struct Step {
  int row = 0, column = 0, other = 0;

  __device__ constexpr Step(int step) {
    int others = 1;
    for (int i = Y::kRank - Y::kKept - 1; i >= 0; --i) {
      const int along = step % places_along(i);
      step /= places_along(i);
      if (i == kRowPlaces) {
        row = along;
      } else if (i == kColumnPlaces) {
        column = along;
      } else {
        other += along * others;
        others *= places_along(i);
      }
    }
  }
};
template <int kWindowRow, int kWindowColumn, int kStep>
FUSOR_DEVICE auto place_at(const Index (&tile)[Y::kKept]) {
  constexpr Step kPlace(kStep);
  return At<kWindowRow, kWindowColumn, kPlace.row, kPlace.column, kPlace.other>{tile};
}

template <int... kNumbers>
struct Numbers {};
template <int kCount, int... kNumbers>
struct NumbersTo : NumbersTo<kCount - 1, kCount - 1, kNumbers...> {};
template <int... kNumbers>
struct NumbersTo<0, kNumbers...> {
  using All = Numbers<kNumbers...>;
};
template <class Visit, int... kNumbers>
FUSOR_DEVICE void visit_each(Visit& visit, Numbers<kNumbers...>) {
  (visit.template number<kNumbers>(), ...);
}
// Calls visit.number<0>() ... visit.number<kEnd - 1>().
template <int kEnd, class Visit>
FUSOR_DEVICE void visit_all(Visit& visit) {
  visit_each(visit, typename NumbersTo<kEnd>::All{});
}
