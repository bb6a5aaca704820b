#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 2 };
  enum : int { threads = 256 };
  enum : int { unroll = 4 };
  enum : int { unroll_axis = 0 };
  enum : bool { unroll_tails = true };
  enum : bool { row_tails = false };
};
#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/base/formulas.cuh"

struct Y {
  enum : int { kRank = 2 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) const bf16* in1;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
  };
  template <int N, bool kSpread = false>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1]), count));
    const Vec<float, N> v1 = widen(load_whole<N>(args.in1 + at[1], count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v2 = v0[i] + v1[i];
      const float v3 = op_relu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1]), narrow<bf16>(r0), count);
  }
};

struct Params {
  alignas(8) u32 turn;
  alignas(8) Index vectors;
  alignas(8) Index row_extent;
  alignas(8) Index unroll_extent;
  FastDivisor extents[2];
  Y::Args y;
};

