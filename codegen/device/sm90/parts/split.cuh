// Owns the splitting of two fp32 operands into bf16 parts that wgmma multiplies (tiled/parts_of_floats.cuh).
//
//   x --> prologue --> | high | middle | low |   along an axis of k, each filled up with zeros to whole steps
//
//   Chunks of kThreads vectors, first the first operand's, then the second's; a block has every so many of
//   them. A thread: kVector neighbours of scratch, a store of 16 bytes for each part. Where neighbours of
//   memory are others (planes of channels), a warp has kNear of them, in kBeside vectors: it reads and writes
//   whole sectors of 32 bytes.
//
//   flags[block]: 1 where a number's parts do not add up to it, or products may overflow. Where any block
//   says so, the launch behind the product sums everything anew.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/parts/operand.cuh"
#include "codegen/device/tiled/parts_of_floats.cuh"

enum : int {
  kVector = 8,
  kThreads = Config::threads,
  kNear = 8,
  kBeside = 4,
  kWarp = kNear * kBeside,
};

// A thread's vector, by its number: coordinates, of which those of the vector's own axis count elements.
// False where there is none. kVectorAxis: whose neighbours are so in scratch; those of the last axis are so
// in memory.
template <int kRank, int kStepAxis, int kVectorAxis>
FUSOR_DEVICE bool find_vector(const SplitOperand<kRank>& p, Index number, Index (&at)[kRank]) {
  constexpr int kLast = kRank - 1;
  constexpr bool kApart = kVectorAxis != kLast;
  if (number >= Index(p.vectors)) return false;
  coordinates<0, kRank>(kApart ? number / kWarp : number, p.extents, at);
  if constexpr (kApart) {
    at[kVectorAxis] = at[kVectorAxis] * kBeside + number % kWarp / kNear;
    at[kLast] = at[kLast] * kNear + number % kNear;
  }
  at[kVectorAxis] *= kVector;
  return !kApart ||
         (at[kLast] < Index(p.last) && (kStepAxis == kVectorAxis || at[kVectorAxis] < Index(p.extent)));
}

// kStepAxis: the one along which parts follow each other. Returns whether all numbers have parts.
template <class Site, int kStepAxis, int kVectorAxis>
FUSOR_DEVICE bool split(const SplitOperand<Site::kRank>& p, const typename Site::Args& args, i64 chunk) {
  constexpr int kRank = Site::kRank;
  Index at[kRank];
  if (!find_vector<kRank, kStepAxis, kVectorAxis>(p, chunk * kThreads + Index(threadIdx.x), at)) return true;
  const Index left = Index(p.extent) - at[kVectorAxis];
  const int count = at[kStepAxis] >= Index(p.k) || left <= 0 ? 0 : left < kVector ? int(left) : kVector;
  const auto x = Site::template apply<kVector>(args, at, count);
  Vec<u32, kVector / 2> parts[3];
  u32 rest = 0;
  bool fits = true;
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const PairOfParts pair = parts_of(x[i], x[i + 1]);
    rest |= pair.rest;
    // Two of them multiply to less than 2^104, and 2^23 products add up to less than the largest float.
    fits = fits && fabsf(x[i]) < 0x1p52f && fabsf(x[i + 1]) < 0x1p52f;
#pragma unroll
    for (int part = 0; part < 3; ++part) parts[part][i / 2] = pair.part[part];
  }
  i64 place = 0;
#pragma unroll
  for (int axis = 0; axis < kRank; ++axis) place += at[axis] * p.strides[axis];
#pragma unroll
  for (int part = 0; part < 3; ++part)
    store_words(p.to + place + part * p.part, bit_cast<Words<2 * kVector>>(parts[part]));
  return rest == 0 && fits;
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    split_floats(const __grid_constant__ Params p) {
  enter_launch(p);
  bool fits = true;
#pragma unroll 1
  for (i64 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
    const i64 second = chunk - p.first_chunks;
    fits &= second < 0 ? split<First, Config::first_step_axis, Config::first_vector_axis>(p.first,
                                                                                          p.first_site, chunk)
                       : split<Second, Config::second_step_axis, Config::second_vector_axis>(
                             p.second, p.second_site, second);
  }
  fits = __syncthreads_and(fits);
  if (threadIdx.x == 0) p.flags[blockIdx.x] = fits ? 0 : 1;
  leave_launch(p);
}
