// Owns the order of the tiles of a result: by part of k (or class), entry of the batch, band of tile rows,
// column, and row of the band. Tiles of one wave then share operands in L2. A template, so that a host test
// runs it.
#pragma once

/// The place of a tile; row and column count tiles.
struct TilePlace {
  int part, entry, row, column;
};

/// The divisors are known before a launch: a block's first load waits for the place of its tile, and a
/// division by any other number is a chain of two dozen instructions.
template <class Index, class Long, class Divisor>
struct TileOrder {
  Long items;  // tiles of all parts
  Long entries;
  Long rows, columns;  // of an entry
  Long band;           // tile rows of a band; the last one may have fewer
  Divisor tiles_of_part, tiles_of_entry, tiles_of_band, rows_of_band, rows_of_last_band;

  __device__ TilePlace place(int item) const {
    Index part = item;
    Index entry = tiles_of_part.split(part);
    Index number = tiles_of_entry.split(entry);
    Index column = tiles_of_band.split(number);
    const int first = static_cast<int>(number) * static_cast<int>(band);
    const bool is_last = first + static_cast<int>(band) > static_cast<int>(rows);
    const Index row = is_last ? rows_of_last_band.split(column) : rows_of_band.split(column);
    return {static_cast<int>(part), static_cast<int>(entry), first + static_cast<int>(row),
            static_cast<int>(column)};
  }
};
