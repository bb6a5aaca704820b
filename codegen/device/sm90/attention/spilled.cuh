// Owns where backward_keys leaves gradients of scores for backward_spilled: in the workspace, in blocks of 64
// keys x 64 queries.
//
//   blocks          [entry][block of keys][block of queries], 8 KB each; where no query sees a later
//                   key, those of a tile of keys begin with the queries beside it
//   a block         [16 keys][8 queries][8 keys of these]: matrices of 8 x 8, a line of 16 bytes a key,
//                   written as threads have them; ldmatrix exchanges their axes
#pragma once

#include "codegen/device/base/indexing.cuh"

enum : int {
  kSpilledRows = 64,  // keys, and queries, of a block
  kSpilledBytes = 2 * kSpilledRows * kSpilledRows,
};

struct Spilled {
  i64 blocks, queries;  // of an entry: blocks, and those of queries that a block of keys has at most
  i64 beside;           // blocks of keys whose queries begin beside them; 0: all begin with the first query
  i64 all, part;        // entries that follow each other in the batch, and those of them that a launch has
  i64 first;            // the first of these
  i64 step;             // keys that stay with a tile of backward_keys: it writes all of them, or none

  // The number of an entry of the batch among the launch's.
  __device__ int entry_of(int entry) const {
    const int whole = static_cast<int>(all);
    return entry / whole * static_cast<int>(part) + entry % whole - static_cast<int>(first);
  }
  // Bytes in front of a block.
  __device__ i64 place(int entry, int block_of_keys, int block_of_queries) const {
    i64 block = i64(block_of_keys) * queries + block_of_queries;
    if (beside > 0) {
      // Left out: of each tile before, and of this one, what lies in front of its own queries.
      const int step = static_cast<int>(beside), tile = block_of_keys / step, within = block_of_keys % step;
      block -= step * (step * tile * (tile - 1) / 2 + (within + 1) * tile);
    }
    return (i64(entry) * blocks + block) * kSpilledBytes;
  }
};
