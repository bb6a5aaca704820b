// Owns reductions of results in the epilogue of the tensor-core contraction of sm_90a.
//
//   Y, pair by pair --> totals of a thread --> warp shuffles --> partials[part][result] --> reduce_parts
//   columns: a part is 16 rows; rows: the columns of a tile; everything: all tiles of one warp
#pragma once

#include "codegen/device/sm90/pipeline/tiling.cuh"

// Results of a reduction of a tile: one for each column, one for each row, or one in all.
enum : int {
  kColumnsLeft = 1,
  kRowsLeft = 2,
  kOneLeft = 3,
  kReduced = Config::reduced,  // 0: the results are not reduced
};
enum : bool { kReduces = kReduced > 0 };
enum : int { kWarpRows = 16 };  // of a part of 64
static_assert(!kReduces || !kFromRegisters, "a warp's rows are neighbours");

// The accumulators of a site that reduces.
template <class Site, bool kReduces>
struct TotalOf {
  using type = typename Site::Accumulator;
};
template <class Site>
struct TotalOf<Site, false> {
  using type = u32;
};
struct Y;
using Total = TotalOf<Y, kReduces>::type;

// [part][result]: a part is 16 rows, the columns of a tile, or what one warp sees of all. Entries of the
// batch add results, or parts.
template <class Total>
struct PartialsOf {
  Total* first;
  i64 results;  // of a part
  i64 entry_parts, entry_results;

  __device__ void store(int entry, int part, int result, const Total& total) const {
    first[(entry * entry_parts + part) * results + entry * entry_results + result] = total;
  }
};

using Partials = PartialsOf<Total>;

// kPiece: columns that the epilogue processes at a time; a thread has a fourth of them, in pairs 8 apart.
template <int kPiece, class Total = ::Total, bool kReduces = ::kReduces>
struct Reducer {
  enum : int { kTotals = kReduced == kColumnsLeft ? kPiece / 4 : kReduced == kRowsLeft ? 2 : 1 };
  enum : bool { kSpread = kReduced == kColumnsLeft };

  const Partials* partials;
  Total totals[kTotals];

  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
  __device__ void init() {
#pragma unroll
    for (Total& total : totals) total.init();
  }
  // The total to which element i of pair j of a thread's row `half` is added.
  __device__ Total* totals_of(int j, int half, int i) {
    return totals + (kReduced == kColumnsLeft ? 2 * j + i : kReduced == kRowsLeft ? half : 0);
  }

  __device__ void begin(const Partials& to) {
    partials = &to;
    init();
  }
  __device__ void begin_part() {
    if constexpr (kReduced == kRowsLeft) init();
  }
  __device__ void begin_piece() {
    if constexpr (kReduced == kColumnsLeft) init();
  }

  // `row`: the warp's first; `column`: the piece's first; how many there are of both.
  __device__ void end_piece(const Tile& tile, int row, int column, int rows, int columns) {
    if constexpr (kReduced == kColumnsLeft) {
      const int index = fold_rows();
      const bool mine = kTotals == 8 || (lane() & 4) == 0;
      column += index / 2 * 8 + lane() % 4 * 2 + index % 2;
      if (mine && row < rows && column < columns)
        partials->store(tile.entry, row / kWarpRows, column, totals[0]);
    }
  }
  __device__ void end_part(const Tile& tile, int row, int rows) {
    if constexpr (kReduced == kRowsLeft) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        combine_lanes<4>(totals[half]);
        const int mine = row + lane() / 4 + 8 * half;
        if (lane() % 4 == 0 && mine < rows)
          partials->store(tile.entry, tile.column / kColumns, mine, totals[half]);
      }
    }
  }
  // Called after all tiles. `warp` counts the consumer warps of the grid.
  __device__ void end(int warp) {
    if constexpr (kReduced == kOneLeft) {
      combine_lanes<32>(totals[0]);
      if (lane() == 0) partials->store(0, warp, 0, totals[0]);
    }
  }

  // Lanes of equal lane % 4 hold the same columns of other rows. Each exchanges half of its columns with its
  // partner, until one column is left, in totals[0]. Returns the number of that column.
  __device__ int fold_rows() {
    int held = kTotals;
#pragma unroll
    for (int distance = 16; distance >= 4; distance /= 2) {
      const bool halves = held > 1, upper = (lane() & distance) != 0;
      if (halves) held /= 2;
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const int other = halves ? i + held : i;
        const Total sent = upper ? totals[i] : totals[other];
        Total held_on = upper ? totals[other] : totals[i];
        held_on.combine(from_lane(sent, distance));
        totals[i] = held_on;
      }
    }
    return lane() / (32 / kTotals);
  }
};
template <int kPiece, class Total>
struct Reducer<kPiece, Total, false> {
  __device__ Total* totals_of(int, int, int) { return nullptr; }
  __device__ void begin_part() {}
  __device__ void begin_piece() {}
  __device__ void end_piece(const Tile&, int, int, int, int) {}
  __device__ void end_part(const Tile&, int, int) {}
};
