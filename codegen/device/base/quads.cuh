// Owns how the four lanes of a quad trade what they hold of a row of a tensor core's sums.
//
//   before   lane l: columns 2 l and 2 l + 1 of each block     block 0     block 1     block 2     block 3
//                                                              00112233    00112233    00112233    00112233
//   after    lane l: block l                                   00000000    11111111    22222222    33333333
#pragma once

#include "codegen/device/base/types.cuh"

// The block of the calling lane, from its columns of all four.
FUSOR_DEVICE Vec<float, 8> gather_block(const float (&pairs)[4][2]) {
  float x[4][2];
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    x[block][0] = pairs[block][0];
    x[block][1] = pairs[block][1];
  }
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = threadIdx.x & bit;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      if (block & bit) continue;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float &low = x[block][c], &high = x[block | bit][c];
        const float kept = upper ? high : low;
        const float other = __shfl_xor_sync(0xffffffff, upper ? low : high, bit);
        low = upper ? other : kept;
        high = upper ? kept : other;
      }
    }
  }
  Vec<float, 8> block;
#pragma unroll
  for (int i = 0; i < 8; ++i) block[i] = x[i / 2][i % 2];
  return block;
}
