// Owns where the sums of the tensor-core contraction of sm_90a lie in its result: the keys of a thread's rows
// and columns, their coordinates, and how many of them exist.
#pragma once

#include "codegen/device/sm90/pipeline/tiling.cuh"

// Pairs of columns exist whole or not at all, and no thread stores any. What lies outside may then be
// computed from a neighbour's coordinates: TMA drops it, and totals count what exists.
enum : bool { kClamped = Config::clamped };
enum : int { kVector = Config::vector };  // 2 where a pair of columns moves as one

// The rows of one thread in a part: row_in_part().
struct Rows {
  Key key[2];
  bool inside[2];
};

// Grid: which pixels (or other rows) of the problem the tiles consist of, and in which order: rows(problem)
// in all, and row<clamped>(problem, tile, index), whose lead is negative for what does not exist; and where
// boxes lie in the result's map: outer(tile), and first_line(problem, tile) of lines along columns.
template <class Grid>
struct ResultPlaces {
  const Problem& problem;
  const Grid& grid;

  __device__ Index rows() const { return static_cast<Index>(kSwapped ? problem.n : grid.rows(problem)); }
  __device__ Index columns() const { return static_cast<Index>(kSwapped ? grid.rows(problem) : problem.n); }
  __device__ Key row_key(const Tile& tile, Index row) const {
    if constexpr (kClamped)
      if (row >= rows()) row = rows() - 1;
    return kSwapped ? problem.column(row) : grid.template row<kClamped>(problem, tile, row);
  }
  __device__ Key column_key(const Tile& tile, Index column) const {
    if constexpr (kClamped)
      if (column >= columns()) column = columns() - kVector;
    return kSwapped ? grid.template row<kClamped>(problem, tile, column) : problem.column(column);
  }

  // Whether a row exists; its key may be clamped.
  __device__ bool is_inside(Index row, const Key& key) const {
    return kClamped ? row < rows() : key.lead >= 0;
  }

  // How many elements of the pair at `column` exist.
  __device__ int count(const Rows& mine, int half, const Key& key, int column) const {
    if constexpr (kClamped) return kVector;
    if (!mine.inside[half] || key.lead < 0) return 0;
    if constexpr (kVector == 1) return 1;
    return column + 1 < static_cast<int>(columns()) ? 2 : 1;
  }

  // Coordinates of a row and of what begins at `column`; how many of it exist.
  __device__ int place(const Tile& tile, const Rows& mine, int half, int column,
                       Index (&at)[Problem::kAxes]) const {
    const Key key = column_key(tile, column);
    problem.result(tile.entry, kSwapped ? key : mine.key[half], kSwapped ? mine.key[half] : key, at);
    return count(mine, half, key, column);
  }
  // The coordinates of a row alone; those of the column are arbitrary.
  __device__ void place_row(const Tile& tile, const Key& row, Index (&at)[Problem::kAxes]) const {
    const Key any{};
    problem.result(tile.entry, kSwapped ? any : row, kSwapped ? row : any, at);
  }
};
