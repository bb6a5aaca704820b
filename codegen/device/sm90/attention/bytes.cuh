// Owns what forward attention on sm_90a does for operands of 8 bits. The tensor cores read these along the
// sum alone, so values are transposed in shared memory; and they sum with 13 bits behind the point, so a
// block's sums are added to the others in fp32.
//
//   transposed      [elements of v][a line: the keys of a block], keys of 16 in the order in which a thread
//                   has their probabilities: 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of thread t of a quad
#pragma once

#include "codegen/device/sm90/attention/parts.cuh"

enum : int {
  kTransposers = 3,  // warps
  kRawStages = 2,
};

// Where values arrive as they lie in memory.
template <bool kExists, int kBytes>
struct RawValues {
  __device__ void init_raw() {}
};
template <int kBytes>
struct RawValues<true, kBytes> {
  alignas(1024) u8 raw[kRawStages][1][kBytes];
  Barrier raw_full[kRawStages], raw_empty[kRawStages];

  __device__ void init_raw() {
    for (int stage = 0; stage < kRawStages; ++stage) {
      raw_full[stage].init(1);
      raw_empty[stage].init(kTransposers);
    }
  }
};

// Copies a block of values to where transposing warps read it.
template <class Shared>
FUSOR_DEVICE void copy_raw(Shared& shared, Ring<kRawStages>& ring, const TensorMap& map, int row,
                           const int (&entry)[3]) {
  shared.raw_empty[ring.stage].wait(ring.parity ^ 1);
  copy_lines(shared.raw[ring.stage], map, shared.raw_full[ring.stage], row, entry);
  ring.advance();
}

FUSOR_DEVICE u32 pick_bytes(u32 a, u32 b, u32 which) {
  u32 picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(a), "r"(b), "r"(which));
  return picked;
}

// A warp's share of a block of kKeys keys and kValues elements: 16 keys and 32 elements at a time, as
// matrices of 8 keys and 8 pairs of elements. Two matrices beside each other hold the same elements.
template <int kKeys, int kValues>
FUSOR_DEVICE void transpose_block(const u8* from, u8* to, u32 transposer) {
  constexpr u32 kPairs = kValues / 32, kEven = 0x6420, kOdd = 0x7531;
  const u32 lane = threadIdx.x % 32, line = lane % 8, next = lane / 8 % 2, upper = lane / 16;
  const u32 key = next * 8 + line, element = upper * 16 + 2 * line + next;
  from += key * kLineBytes;
  to += element * kLineBytes;
#pragma unroll 1
  for (u32 step = transposer; step < kKeys / 16 * kPairs; step += kTransposers) {
    const u32 keys = step / kPairs, pair = step % kPairs;
    u32 words[4];
    load_matrices<true>(words, from + keys * (16 * kLineBytes) + (2 * pair ^ upper ^ line) * 16);
    store_matrices<false>(to + pair * (32 * kLineBytes) + (keys ^ element % 8) * 16,
                          pick_bytes(words[0], words[1], kEven), pick_bytes(words[0], words[1], kOdd),
                          pick_bytes(words[2], words[3], kEven), pick_bytes(words[2], words[3], kOdd));
  }
}

// The blocks of a tile of queries, each from a raw stage to one of v.
template <int kKeys, int kValues, class Shared>
FUSOR_DEVICE void transpose_values(Shared& shared, int transposer, int blocks, Ring<kRawStages>& raw,
                                   Ring<Shared::kValueStages>& ring) {
#pragma unroll 1
  for (int left = blocks; left > 0; --left) {
    shared.raw_full[raw.stage].wait(raw.parity);
    shared.v_empty[ring.stage].wait(ring.parity ^ 1);
    transpose_block<kKeys, kValues>(shared.raw[raw.stage][0], shared.v[ring.stage][0], transposer);
    fence_shared_writes();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      shared.v_full[ring.stage].arrive();
      shared.raw_empty[raw.stage].arrive();
    }
    raw.advance();
    ring.advance();
  }
}

// Four numbers in a word, the first one in its low byte.
#define FUSOR_FOUR_BYTES(type, name)                                                 \
  FUSOR_DEVICE u32 four_bytes(type, float a, float b, float c, float d) {            \
    u32 word;                                                                        \
    asm("{\n.reg .b16 low, high;\ncvt.rn.satfinite." name                            \
        "x2.f32 low, %2, %1;\n"                                                      \
        "cvt.rn.satfinite." name "x2.f32 high, %4, %3;\nmov.b32 %0, {low, high};\n}" \
        : "=r"(word)                                                                 \
        : "f"(a), "f"(b), "f"(c), "f"(d));                                           \
    return word;                                                                     \
  }
FUSOR_FOUR_BYTES(f8_e4m3, "e4m3")
FUSOR_FOUR_BYTES(f8_e5m2, "e5m2")
#undef FUSOR_FOUR_BYTES

// Four neighbours of a row in a word: columns 2 t and 2 t + 1 of two blocks of 8 columns.
template <class Element, int kCount>
FUSOR_DEVICE void pack_bytes(const float (&values)[kCount], u32 (&words)[kCount / 4]) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const int first = i / 2 * 8 + i % 2 * 2;
    words[i] = four_bytes(Element{}, values[first], values[first + 1], values[first + 4], values[first + 5]);
  }
}

// d = a b: `a` from registers, as pack_bytes() leaves it; `b` transposed.
template <class Element, int kWords, int kCount>
FUSOR_DEVICE void issue_transposed(const u32 (&a)[kWords], const u8* second, float (&d)[kCount]) {
  const u64 b = line_descriptor(second, 16);
  product_fence();
#pragma unroll
  for (int step = 0; step < kWords / 4; ++step) {
    const u32 words[4] = {a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]};
    if (step == 0)
      Product<Element, 2 * kCount>::begin_from_registers(d, words, b);
    else
      Product<Element, 2 * kCount>::from_registers(d, words, b + step * 2);
  }
  product_commit();
}

// sums = sums * shrink + parts, by row.
template <int kCount>
FUSOR_DEVICE void add_block(float (&sums)[kCount], const float (&shrink)[2], const float (&parts)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = multiply_add(sums[i], shrink[i / 2 % 2], parts[i]);
}
