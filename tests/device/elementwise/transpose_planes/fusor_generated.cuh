#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { threads = 256 };
  enum : int { channels = 64 };
  enum : bool { run_loads = true };
};
#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/base/formulas.cuh"

struct X0 {
  enum : int { kRank = 3 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride2;
  };
  using Stored = bf16;
  using Value = Carrier<Stored>;
  template <int N>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1] + at[2] * args.in0_stride2), count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = v0[i];
    }
    return value;
  }
  static __device__ __forceinline__ const Stored* address(const Args& args, const Index (&at)[kRank]) {
    return args.in0 + (at[0] * args.in0_stride0 + at[1] + at[2] * args.in0_stride2);
  }
};

struct Y {
  enum : int { kRank = 3 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride1;
  };
  template <int N, bool kSpread = false, class Anchor0>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               const Vec<Anchor0, N>& anchor0) {
    const Vec<float, N> v1 = widen(load_whole<N>(args.in0 + at[2], count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = round_to<bf16>(anchor0[i]);
      const float v2 = v0 + v1[i];
      const float v3 = op_relu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] * args.out0_stride1 + at[2]), narrow<bf16>(r0), count);
  }
};

struct Params {
  alignas(8) u32 turn;
  alignas(8) Index channels;
  FastDivisor plane;
  FastDivisor extents[3];
  X0::Args x0;
  Y::Args y;
};

