// Owns the sum of a tile's parts across the blocks of a cluster, each of which has summed a part of k
// (sm_90): of mma, and of sm90/epilogue/gathered.cuh.
//
//   block 0: staged sums --+   synchronise   block r: every kBlocks-th round of vectors
//   block 1: staged sums --+-------------->  staged[0] + staged[1] + ... in the order of the blocks --> Y
//   ...                    |                 (ld.shared::cluster)
#pragma once

#include "codegen/device/sm90/ptx/tma.cuh"

/// The address that a place in this block's shared memory has in another block of the cluster.
FUSOR_DEVICE u32 address_in_block(u32 here, u32 block) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  return there;
}

template <int kWords>
FUSOR_DEVICE void load_from_block(u32 (&words)[kWords], u32 from) {
  if constexpr (kWords == 1)
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(words[0]) : "r"(from) : "memory");
  else if constexpr (kWords == 2)
    asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
}

/// kWidth neighbouring sums of all kBlocks blocks of the cluster, added in the order of the blocks.
template <int kWidth, int kBlocks, class T>
FUSOR_DEVICE Vec<T, kWidth> sum_of_blocks(const T* staged) {
  static_assert(sizeof(T) == 4, "a sum is a word");
  constexpr int kWords = kWidth < 4 ? kWidth : 4;
  u32 words[kBlocks][kWidth / kWords][kWords];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
#pragma unroll
    for (int i = 0; i < kWidth / kWords; ++i)
      load_from_block(words[block][i], address_in_block(shared_address(staged + i * kWords), block));
  Vec<T, kWidth> sums;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    sums[i] = bit_cast<T>(words[0][i / kWords][i % kWords]);
#pragma unroll
    for (int block = 1; block < kBlocks; ++block)
      sums[i] += bit_cast<T>(words[block][i / kWords][i % kWords]);
  }
  return sums;
}
