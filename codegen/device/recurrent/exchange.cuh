// Owns what the kernels of a recurrence share: a block's slice of the recurrent weights, which stays in
// registers for all steps, the product of a step, and how blocks hand each other what the next step reads.
//
//   block (slice, group): 16 hidden units x 16 * kTiles rows of the batch, 8 warps; all blocks are resident
//   warp w      multiplies its eighth of k, which kProducers blocks make, by the slice's weights
//   step        wait for the producers' flags ─► operand from L2 ─► mma.sync ─► sums of 8 warps, shared
//               ─► a thread per row and unit adds them in order, computes ─► exchange[step % 2] ─► own flag
//   A flag counts the steps that its block has handed over. Two exchanges are enough: who writes one has met
//   the flags of all blocks that read it. A wait has an end: kLongestWait cycles, then the kernel traps.
#pragma once

#include "codegen/device/base/pointwise.cuh"

#define FUSOR_METHOD __device__ __forceinline__

using Element = Config::Element;

enum : int {
  kWarps = 8,
  kThreads = 32 * kWarps,
  kUnits = 16,                     // of a block
  kGates = Config::gates,          // blocks of rows of the weights
  kTiles = Config::tiles,          // of 16 rows of the batch
  kProducers = Config::producers,  // blocks that make a warp's share of k
};
enum : bool {
  kBackward = Config::backward,
  kReverse = Config::reverse,  // the last time comes first
};
enum : int {
  kGiven = kBackward ? kUnits * kGates : kUnits,    // numbers of a row that a block hands over
  kColumns = kBackward ? kUnits : kUnits * kGates,  // of a block's product
  kDepth = kProducers * kGiven,                     // a warp's share of k
  kChunks = kDepth / 32,                            // of two steps of k
  kBatch = kChunks % 8 == 0   ? 8
           : kChunks % 6 == 0 ? 6
                              : kChunks,  // chunks that are loaded together
  kPitch = kColumns + 8,
  kRows = 16 * kTiles,
  kFlagsOfLine = 32,  // the words of 128 bytes
};
enum : i64 { kLongestWait = i64(1) << 32 };
static_assert(kDepth % 32 == 0 && kChunks % kBatch == 0, "a warp's share of k is whole chunks");

enum Cell { kLstm, kGru, kRelu, kTanh };
enum : int { kCell = Config::cell };

FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
FUSOR_DEVICE int warp() { return threadIdx.x / 32; }

template <class T>
FUSOR_DEVICE float element_at(const T* from, i64 at) {
  return widen(load(from + at));
}

/// Waits until the flag has counted that far. Blocks of a cooperative launch are all resident, so that only a
/// broken launch waits for long.
FUSOR_DEVICE void wait_for_flag(const u32* flag, u32 count) {
  const i64 begin = clock64();
  for (;;) {
    u32 seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    if (static_cast<i32>(seen - count) >= 0) return;
    if (clock64() - begin > kLongestWait) __trap();
  }
}

/// Raises the block's flag: whoever sees it sees all that the block stored before.
FUSOR_DEVICE void raise_flag(u32* flag, u32 count) {
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
}

/// 16 bytes that another block may have stored a moment ago, or zeros.
FUSOR_DEVICE void load_handed(const Element* from, bool inside, u32 (&to)[4]) {
  asm volatile(
      "{\n.reg .pred inside;\nsetp.ne.u32 inside, %5, 0;\n"
      "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
      "@inside ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "l"(from), "r"(u32(inside))
      : "memory");
}

/// How PTX names an element.
template <class T>
struct MmaName;
template <>
struct MmaName<f16> {
  static constexpr char kText[] = "f16";
};
template <>
struct MmaName<bf16> {
  static constexpr char kText[] = "bf16";
};

/// sum (16 x 8) += a (16 x 16) * b (16 x 8).
FUSOR_DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.%10.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(MmaName<Element>::kText));
}

/// A warp's share of the block's weights. Lane l holds column l / 4 of each column tile; its four elements of
/// a step of k lie side by side in memory, so that it loads the other operand 16 bytes at a time: the order
/// of k within a chunk is the lanes', on both sides.
struct Weights {
  u32 words[kChunks][2][kColumns / 8][2];

  /// element(k, column): bits of the weight, 0 outside.
  template <class At>
  FUSOR_METHOD void load(const At& element) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int tile = 0; tile < kColumns / 8; ++tile) {
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            const int k = warp() * kDepth + (chunk * 4 + lane() % 4) * 8 + half * 4 + pair * 2;
            const int column = tile * 8 + lane() / 4;
            words[chunk][half][tile][pair] = element(k, column) | element(k + 1, column) << 16;
          }
        }
      }
    }
  }
};

struct Step {
  const Params& p;
  float* sums;  // [kWarps][kRows][kPitch]

  FUSOR_METHOD int slice() const { return blockIdx.x; }
  FUSOR_METHOD int slices() const { return gridDim.x; }
  FUSOR_METHOD int group() const { return blockIdx.y; }
  // The flags that a warp waits for share a line of memory, and no other does.
  FUSOR_METHOD u32* flag_of(int producer) const {
    return p.flags + (group() * kWarps + producer / kProducers) * kFlagsOfLine + producer % kProducers;
  }
  FUSOR_METHOD i64 row_of_exchange() const { return i64(slices()) * kGiven; }
  FUSOR_METHOD Element* exchange(int step) const {
    return p.exchange + (i64(step % 2) * gridDim.y + group()) * kRows * row_of_exchange();
  }

  /// The sums of the product of a step: of what was handed over `count` times by now.
  FUSOR_METHOD void multiply(const Weights& weights, int from, u32 count) const {
    const int producer = warp() * kProducers + lane();
    if (lane() < kProducers && producer < slices()) wait_for_flag(flag_of(producer), count);
    __syncwarp();
    const Element* const operand = exchange(from);
    const int end = slices() * kGiven;
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      float sum[kColumns / 8][4] = {};
#pragma unroll
      for (int first = 0; first < kChunks; first += kBatch) {
        u32 a[kBatch][2][4];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int below = 0; below < 2; ++below) {
            const int k = warp() * kDepth + ((first + i) * 4 + lane() % 4) * 8;
            const int row = tile * 16 + below * 8 + lane() / 4;
            load_handed(operand + row * row_of_exchange() + k, k < end, a[i][below]);
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const u32 fragment[4] = {a[i][0][2 * half], a[i][1][2 * half], a[i][0][2 * half + 1],
                                     a[i][1][2 * half + 1]};
#pragma unroll
            for (int column = 0; column < kColumns / 8; ++column)
              multiply_add(sum[column], fragment, weights.words[first + i][half][column]);
          }
        }
      }
#pragma unroll
      for (int column = 0; column < kColumns / 8; ++column) {
#pragma unroll
        for (int below = 0; below < 2; ++below) {
          float* const place = sums + (warp() * kRows + tile * 16 + below * 8 + lane() / 4) * kPitch +
                               column * 8 + lane() % 4 * 2;
          *reinterpret_cast<float2*>(place) = make_float2(sum[column][2 * below], sum[column][2 * below + 1]);
        }
      }
    }
    __syncthreads();
  }

  /// The sum of all warps.
  FUSOR_METHOD float total(int row, int column) const {
    float total = 0;
#pragma unroll
    for (int each = 0; each < kWarps; ++each) total += sums[(each * kRows + row) * kPitch + column];
    return total;
  }
};

/// The row and unit of a thread's place: threads count units first.
struct Place {
  int row, unit;      // of the block
  int batch, hidden;  // of all
  bool inside;
};
FUSOR_DEVICE Place place_of(const Params& p, int tile) {
  Place place;
  place.row = tile * 16 + threadIdx.x / kUnits;
  place.unit = threadIdx.x % kUnits;
  place.batch = blockIdx.y * kRows + place.row;
  place.hidden = blockIdx.x * kUnits + place.unit;
  place.inside = place.batch < p.batch && place.hidden < p.hidden;
  return place;
}

/// The row of the states at the end of step `time`, and at its beginning.
FUSOR_DEVICE i64 row_after(i64 time) { return kReverse ? time : time + 1; }
FUSOR_DEVICE i64 row_before(i64 time) { return kReverse ? time + 1 : time; }
