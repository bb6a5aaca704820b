#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  using ElementA = bf16;
  using ElementB = bf16;
  enum : bool { b_plain = true };
  enum : bool { transposed = false };
  enum : int { in = 3 };
  enum : int { out = 3 };
  enum : int { lines = 3 };
  enum : int { taps = 3 };
  enum : int { stride = 1 };
  enum : int { dilation = 1 };
  enum : int { row_phases = 1 };
  enum : int { column_phases = 1 };
  enum : int { groups = 2 };
  enum : int { tiles = 2 };
  enum : int { warps = 4 };
  enum : int { stages = 2 };
  enum : int { blocks = 2 };
};
#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/base/formulas.cuh"

struct A {
  enum : int { kRank = 5 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride3;
    alignas(8) Index in0_stride4;
  };
  using Stored = bf16;
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
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride3;
    alignas(8) Index in0_stride4;
  };
  using Stored = bf16;
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

struct Y {
  enum : int { kRank = 5 };
  using Fn = Short;
  struct Args {
    alignas(8) const float* in0;
    alignas(8) const bf16* in1;
    alignas(8) Index in1_stride0;
    alignas(8) Index in1_stride3;
    alignas(8) Index in1_stride4;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride3;
    alignas(8) Index out0_stride4;
  };
  template <int N, bool kSpread = false, class Anchor0>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               const Vec<Anchor0, N>& anchor0) {
    const Vec<float, N> v1 = widen(load_whole<N>(args.in0 + at[1], count));
    const Vec<float, N> v3 = widen(load_whole<N>(args.in1 + (at[0] * args.in1_stride0 + at[1] + at[3] * args.in1_stride3 + at[4] * args.in1_stride4), count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = narrow<float>(anchor0[i]);
      const float v2 = v0 * v1[i];
      const float v4 = v2 + v3[i];
      const float v5 = op_relu<Fn>(v4);
      r0[i] = v5;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[3] * args.out0_stride3 + at[4] * args.out0_stride4), narrow<bf16>(r0), count);
  }
};

struct Params {
  alignas(8) u32 turn;
  FastDivisor group_tiles;
  FastDivisor tile_columns;
  FastDivisor tile_rows;
  FastDivisor columns;
  FastDivisor rows;
  FastDivisor lines_in;
  i64 width;
  i64 columns_in;
  i64 images_of_tile;
  i64 pixels;
  i64 items;
  i64 tiles;
  i64 tiles_per_block;
  i64 groups;
  i64 images;
  i64 row_stride;
  i64 line_step;
  i64 line_bytes;
  i64 phase_bytes;
  i64 stage_bytes;
  i64 results[2];
  i64 positions[2];
  i64 start[2];
  i64 window[2];
  i64 stored_first[2];
  i64 stored_step[2];
  A::Args a;
  B::Args b;
  Y::Args y;
};

