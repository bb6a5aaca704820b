// Owns a tile of a matmul whose rows belong to experts.
#pragma once

// Rows from `row` on, of which those from `last` on are not the expert's. expert: -1 where rows belong to
// none. In the first line of the list, row is the count of tiles.
struct alignas(16) ExpertTile {
  int row, last, expert, unused;
};
