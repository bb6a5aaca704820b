#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { threads = 256 };
  enum : int { unroll = 4 };
  enum : int { width = 32 };
  enum : int { kept = 1 };
  enum : bool { split = true };
};
#include "codegen/device/base/reduction.cuh"

struct Y {
  enum : int { kRank = 2 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride1;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride1;
    alignas(8) bf16* out1;
    alignas(8) bf16* out2;
    alignas(8) bf16* out3;
  };
  struct Accumulator {
    reduction_add<float> r1;
    reduction_amax<float> r2;
    reduction_norm2<float> r3;
    __device__ __forceinline__ void init() {
      r1.init();
      r2.init();
      r3.init();
    }
    __device__ __forceinline__ void combine(const Accumulator& other) {
      r1.combine(other.r1);
      r2.combine(other.r2);
      r3.combine(other.r3);
    }
  };
  template <int N, bool kSpread = false>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               Accumulator* accumulators) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] + at[1] * args.in0_stride1), count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v1 = round_to<bf16>(v0[i] * v0[i]);
      r0[i] = v1;
      if (i < count) accumulators[kSpread ? i : 0].r1.add(v1);
      if (i < count) accumulators[kSpread ? i : 0].r2.add(v0[i]);
      if (i < count) accumulators[kSpread ? i : 0].r3.add(v0[i]);
    }
    store_whole(args.out0 + (at[0] + at[1] * args.out0_stride1), narrow<bf16>(r0), count);
  }
  static __device__ __forceinline__ void finish(const Args& args, const Index (&at)[kRank], const Accumulator& total) {
    store(args.out1 + at[0], narrow<bf16>(total.r1.result()));
    store(args.out2 + at[0], narrow<bf16>(total.r2.result()));
    store(args.out3 + at[0], narrow<bf16>(total.r3.result()));
  }
};

struct Params {
  alignas(8) u32 turn;
  Y::Accumulator* partials;
  alignas(8) Index vectors;
  alignas(8) Index steps;
  alignas(8) Index chunk;
  FastDivisor extents[2];
  Y::Args y;
};

