// Owns the way of gradients of scores to memory, where somebody else reads them: the gradient of a bias.
//
//   wgmma leaves   two neighbouring queries of key r, and of key r + 8, in 16 bits each
//   movmatrix      two neighbouring keys of a query
//   shuffles       four neighbouring keys of a query: a warp's store has 8 rows of 32 bytes
#pragma once

#include "codegen/device/base/elements.cuh"

FUSOR_DEVICE u32 exchange_axes(u32 pair) {
  u32 exchanged;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(exchanged) : "r"(pair));
  return exchanged;
}

// Keys 4 c to 4 c + 3 of query r, of a warp's 16 keys x 8 queries, for lane 4 r + c. `first`, `second`: the
// lane's queries of key r, and of key r + 8.
FUSOR_DEVICE Vec<u32, 2> keys_of_query(u32 first, u32 second) {
  const u32 low = exchange_axes(first), high = exchange_axes(second);
  const int lane = threadIdx.x % 32, row = lane & ~3, column = lane & 3;
  // Even lanes hand on what lanes of the lower keys want first, odd ones what those of the upper keys do.
  const bool is_odd = lane & 1, is_upper = column >= 2;
  const u32 one = __shfl_sync(0xffffffff, is_odd ? high : low, row + 2 * (column & 1) + is_upper);
  const u32 other = __shfl_sync(0xffffffff, is_odd ? low : high, row + 2 * (column & 1) + !is_upper);
  return is_upper ? Vec<u32, 2>{other, one} : Vec<u32, 2>{one, other};
}

// A warp stores 16 keys from `key` on of 8 * kBlocks queries from `query` on, by site DS at the entry at
// `entry`. words(block): what keys_of_query() gives of 8 of the queries.
template <class Site, class Element, int kBlocks, int kRank, class Params, class Words>
FUSOR_DEVICE void store_scores(const Params& p, const Index (&entry)[kRank], int key, int query,
                               const Words& words) {
  const int lane = threadIdx.x % 32;
  Index at[kRank];
#pragma unroll
  for (int axis = 0; axis < kRank - 2; ++axis) at[axis] = entry[axis];
  at[kRank - 1] = key + lane % 4 * 4;
  const int keys = static_cast<int>(p.keys) - static_cast<int>(at[kRank - 1]);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const Vec<u32, 2> found = words(block);
    at[kRank - 2] = query + 8 * block + lane / 4;
    Vec<float, 4> values;
    PairConversion<Element>::widen(found[0], values[0], values[1]);
    PairConversion<Element>::widen(found[1], values[2], values[3]);
    Site::template apply<4>(p.ds, at, at[kRank - 2] < Index(p.queries) ? keys : 0, values);
  }
}
