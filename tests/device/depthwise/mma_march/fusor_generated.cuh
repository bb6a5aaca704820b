#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  using ElementA = f16;
  using ElementB = f16;
  enum : int { taps = 7 };
  enum : int { lines = 7 };
  enum : bool { mirrored = false };
  enum : bool { mirrored_lines = false };
  enum : int { groups = 4 };
  enum : int { blocks = 3 };
};
#include "codegen/device/base/pointwise.cuh"

struct A {
  enum : int { kRank = 5 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride3;
    alignas(8) Index in0_stride4;
  };
  using Stored = f16;
  using Value = Carrier<Stored>;
  template <int N>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1] + at[3] * args.in0_stride3 + at[4] * args.in0_stride4), count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = v0[i];
    }
    return value;
  }
  static __device__ __forceinline__ const Stored* address(const Args& args, const Index (&at)[kRank]) {
    return args.in0 + (at[0] * args.in0_stride0 + at[1] + at[3] * args.in0_stride3 + at[4] * args.in0_stride4);
  }
};

struct B {
  enum : int { kRank = 5 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride3;
    alignas(8) Index in0_stride4;
  };
  using Stored = f16;
  using Value = Carrier<Stored>;
  template <int N>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_strided<N>(args.in0 + (at[0] * args.in0_stride0 + at[3] * args.in0_stride3 + at[4] * args.in0_stride4), args.in0_stride0, count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = v0[i];
    }
    return value;
  }
  static __device__ __forceinline__ const Stored* address(const Args& args, const Index (&at)[kRank]) {
    return args.in0 + (at[0] * args.in0_stride0 + at[3] * args.in0_stride3 + at[4] * args.in0_stride4);
  }
};

struct Y {
  enum : int { kRank = 5 };
  using Fn = Short;
  struct Args {
    alignas(8) f16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride3;
    alignas(8) Index out0_stride4;
  };
  template <int N, bool kSpread = false, class Anchor0>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               const Vec<Anchor0, N>& anchor0) {
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = round_to<f16>(anchor0[i]);
      r0[i] = v0;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[3] * args.out0_stride3 + at[4] * args.out0_stride4), narrow<f16>(r0), count);
  }
};

struct Params {
  alignas(8) u32 turn;
  FastDivisor octets;
  FastDivisor parts;
  FastDivisor tiles;
  i64 runs;
  i64 runs_per_block;
  i64 steps;
  i64 pairs;
  i64 columns;
  i64 groups;
  i64 results;
  i64 result_rows;
  i64 positions;
  i64 rows;
  i64 start;
  i64 start_row;
  A::Args a;
  B::Args b;
  Y::Args y;
};

