// Owns where backward_keys leaves gradients of scores for backward_spilled: in the workspace, in blocks of 64
// keys x 64 queries.
//
//   blocks          [entry][block of keys][block of queries], 8 KB each
//   a block         [16 keys][8 queries][8 keys of these]: matrices of 8 x 8, a line of 16 bytes a key,
//                   written as threads have them; ldmatrix exchanges their axes
#pragma once

#include "codegen/device/base/indexing.cuh"

static constexpr int kSpilledRows = 64;  // keys, and queries, of a block
static constexpr int kSpilledBytes = 2 * kSpilledRows * kSpilledRows;

struct Spilled {
  i64 keys, queries;  // blocks of an entry
  i64 first;          // entry of the batch with which the launch's entries begin
  i64 step;           // keys that stay with a tile of backward_keys: it writes all of them, or none

  // Bytes in front of a block.
  __device__ i64 place(int entry, int block_of_keys, int block_of_queries) const {
    return ((i64(entry) * keys + block_of_keys) * queries + block_of_queries) * kSpilledBytes;
  }
};
