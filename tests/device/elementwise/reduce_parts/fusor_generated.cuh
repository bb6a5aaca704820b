#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { width = 32 };
  enum : int { rows = 32 };
  enum : int { kept = 1 };
  enum : bool { of_groups = false };
};
#include "codegen/device/base/reduction.cuh"

struct Y {
  enum : int { kRank = 2 };
  using Fn = Exact;
  struct Args {
    alignas(8) float* out0;
  };
  struct Accumulator {
    reduction_add<float> r0;
    __device__ __forceinline__ void init() {
      r0.init();
    }
    __device__ __forceinline__ void combine(const Accumulator& other) {
      r0.combine(other.r0);
    }
  };
  template <int N, bool kSpread = false, class Anchor0>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               const Vec<Anchor0, N>& anchor0,
                                               Accumulator* accumulators) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = round_to<bf16>(anchor0[i]);
      if (i < count) accumulators[kSpread ? i : 0].r0.add(v0);
    }
  }
  static __device__ __forceinline__ void finish(const Args& args, const Index (&at)[kRank], const Accumulator& total) {
    store(args.out0 + at[0], narrow<float>(total.r0.result()));
  }
};

struct Params {
  alignas(8) u32 turn;
  const Y::Accumulator* partials;
  Y::Accumulator* totals;
  i64 results;
  i64 parts;
  i64 group_parts;
  FastDivisor extents[2];
  Y::Args y;
};

