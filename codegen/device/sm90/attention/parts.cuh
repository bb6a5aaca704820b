// Owns what attention's kernels have in common: the ring of stages, copies of lines, products of lines, and
// the way of sums to a result.
#pragma once

#include "codegen/device/base/quads.cuh"
#include "codegen/device/sm90/attention/products.cuh"
#include "codegen/device/sm90/pipeline/map_entry.cuh"

enum : int {
  kWarpgroup = 128,
  kLine = 64,  // elements of a swizzled line
  kLineBytes = 128,
};

static constexpr __device__ int lines_of(int elements) { return (elements + kLine - 1) / kLine; }

// A stage of a ring and the parity of its barriers.
template <int kStages>
struct Ring {
  int stage = 0;
  u32 parity = 0;
  __device__ int previous() const { return stage == 0 ? kStages - 1 : stage - 1; }
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The same number, of which the compiler does not know that it has seen it before.
FUSOR_DEVICE int hidden(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

// A warp tells the barrier that it has read what the barrier guards.
FUSOR_DEVICE void release(Barrier& empty) {
  if (threadIdx.x % 32 == 0) empty.arrive();
}

// Copies `lines` boxes of 64 elements: rows from `row` on, of the entry at `at`.
template <int kLines, int kBytes>
FUSOR_DEVICE void copy_lines(u8 (&to)[kLines][kBytes], const TensorMap& map, Barrier& full, int row,
                             const int (&entry)[3]) {
  full.arrive_and_expect(kLines * kBytes);
#pragma unroll
  for (int line = 0; line < kLines; ++line) {
    const int at[3] = {entry[2], row, line * kLine};
    copy_planes(to[line], map, full, at, entry[1], entry[0]);
  }
}

// d = a b: 64 rows of `a` and 2 kCount rows of `b`, kDepth elements of each; lines of kRowsA and kRowsB rows.
// A step is 32 bytes of a line.
template <class Element, int kDepth, int kRowsA, int kRowsB, int kCount>
FUSOR_DEVICE void issue_along(const u8* first, const u8* second, float (&d)[kCount]) {
  const u64 a = line_descriptor(first, 16);
  const u64 b = line_descriptor(second, 16);
  product_fence();
#pragma unroll
  for (int step = 0; step < kDepth * int(sizeof(Element)) / 32; ++step) {
    const int within = step % 4 * 2;  // units of 16 bytes
    const u64 left = a + step / 4 * (kRowsA * kLineBytes >> 4) + within;
    const u64 right = b + step / 4 * (kRowsB * kLineBytes >> 4) + within;
    if (step == 0)
      Product<Element, 2 * kCount>::begin_along_k(d, left, right);
    else
      Product<Element, 2 * kCount>::along_k(d, left, right, 1);
  }
  product_commit();
}

// d += a b: `a` from registers, as sums of the product before lie, 2 kCount columns of `b`; lines of kRows
// rows.
template <class Element, int kRows, int kWords, int kCount>
FUSOR_DEVICE void issue_across(const u32 (&a)[kWords], const u8* second, float (&d)[kCount], int accumulate) {
  const u64 b = line_descriptor(second, kRows * kLineBytes);
  product_fence();
#pragma unroll
  for (int step = 0; step < kWords / 4; ++step) {
    const u32 words[4] = {a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]};
    Product<Element, 2 * kCount>::across_k(d, words, b + step * (16 * kLineBytes >> 4),
                                           accumulate || step > 0);
  }
  product_commit();
}

// Sums that products are in flight for from one block to the next begin as zeros: ptxas must know who defines
// them.
template <int kCount>
FUSOR_DEVICE void clear(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0;
}

template <class Element, int kCount>
FUSOR_DEVICE void pack(const float (&values)[kCount], u32 (&words)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    words[i] = PairConversion<Element>::narrow(values[2 * i], values[2 * i + 1]);
}

// Hands row `half` of the thread's sums, times `factor`, to `store`: a column, how many exist from there on,
// eight values.
template <int kCount, class Store>
FUSOR_DEVICE void for_blocks_of_row(bool exists, int columns, int half, float factor,
                                    const float (&sums)[kCount], const Store& store) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int first = 0; first < kCount / 4; first += 4) {
    float pairs[4][2];
#pragma unroll
    for (int block = 0; block < 4; ++block)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        pairs[block][c] =
            first + block < kCount / 4 ? sums[(first + block) % (kCount / 4) * 4 + 2 * half + c] * factor : 0;
    const Vec<float, 8> values = gather_block(pairs);
    const int column = (first + lane) * 8, left = columns - column;
    if (exists && left > 0) store(column, left < 8 ? left : 8, values);
  }
}

// Such a row to site Result at `at`: its columns from 0 on.
template <class Result, class Args, int kRank, int kCount>
FUSOR_DEVICE void store_row(const Args& args, Index (&at)[kRank], bool exists, int columns, int half,
                            float factor, const float (&sums)[kCount]) {
  for_blocks_of_row(exists, columns, half, factor, sums,
                    [&](int column, int count, const Vec<float, 8>& values) {
                      at[kRank - 1] = column;
                      Result::template apply<8>(args, at, count, values);
                    });
}
