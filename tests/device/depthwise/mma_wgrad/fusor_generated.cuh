#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  using ElementA = f16;
  using ElementB = f16;
  enum : int { taps = 7 };
  enum : int { lines = 7 };
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

struct Params {
  alignas(8) u32 turn;
  FastDivisor octets;
  FastDivisor height;
  FastDivisor tiles;
  i64 rows;
  i64 rows_per_block;
  i64 columns;
  i64 groups;
  i64 results;
  i64 result_rows;
  i64 positions;
  i64 start;
  i64 start_row;
  float* partials;
  A::Args a;
  B::Args b;
};

