#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  using Sum = float;
  enum : int { tile_m = 128 };
  enum : int { tile_n = 128 };
  enum : bool { y_along_n = true };
  enum : int { op = 1 };
  enum : int { spatial = 2 };
  enum : int { batch = 0 };
  enum : bool { channels_fastest = true };
  enum : bool { unit_stride = true };
  enum : int { channel_block = 0 };
  enum : bool { a_along_k = true };
  enum : bool { b_along_k = true };
  enum : int { a_width = 8 };
  enum : int { b_width = 8 };
  enum : int { tile_k = 64 };
  enum : int { stages = 3 };
  enum : int { parts = 1 };
  using ElementA = f16;
  using ElementB = f16;
  enum : bool { a_plain = true };
  enum : bool { b_plain = true };
  enum : int { shared_bytes = 104448 };
  enum : bool { guarded = false };
  enum : bool { split = false };
  enum : int { cluster = 1 };
  enum : int { vector = 8 };
};
#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/base/formulas.cuh"

struct A {
  enum : int { kRank = 4 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride2;
    alignas(8) Index in0_stride3;
  };
  using Stored = f16;
  using Value = Carrier<Stored>;
  template <int N>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1] + at[2] * args.in0_stride2 + at[3] * args.in0_stride3), count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = v0[i];
    }
    return value;
  }
  static __device__ __forceinline__ const Stored* address(const Args& args, const Index (&at)[kRank]) {
    return args.in0 + (at[0] * args.in0_stride0 + at[1] + at[2] * args.in0_stride2 + at[3] * args.in0_stride3);
  }
};

struct B {
  enum : int { kRank = 4 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_stride2;
    alignas(8) Index in0_stride3;
  };
  using Stored = f16;
  using Value = Carrier<Stored>;
  template <int N>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1] + at[2] * args.in0_stride2 + at[3] * args.in0_stride3), count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = v0[i];
    }
    return value;
  }
  static __device__ __forceinline__ const Stored* address(const Args& args, const Index (&at)[kRank]) {
    return args.in0 + (at[0] * args.in0_stride0 + at[1] + at[2] * args.in0_stride2 + at[3] * args.in0_stride3);
  }
};

struct Y {
  enum : int { kRank = 4 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
    alignas(8) f16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride2;
    alignas(8) Index out0_stride3;
  };
  template <int N, bool kSpread = false, class Anchor0>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               const Vec<Anchor0, N>& anchor0) {
    const Vec<float, N> v1 = widen(load_whole<N>(args.in0 + at[1], count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = narrow<float>(anchor0[i]);
      const float v2 = v0 + v1[i];
      const float v3 = op_relu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[2] * args.out0_stride2 + at[3] * args.out0_stride3), narrow<f16>(r0), count);
  }
};

#include "codegen/device/tiled/tiling.cuh"
struct Params {
  alignas(8) u32 turn;
  Problem problem;
  Tiling tiling;
  A::Args a;
  B::Args b;
  Y::Args y;
};
static_assert(FUSOR_PLACE(Params, problem.m) == 8, "");
static_assert(FUSOR_PLACE(Params, problem.n) == 16, "");
static_assert(FUSOR_PLACE(Params, problem.k) == 24, "");
static_assert(FUSOR_PLACE(Params, problem.channels) == 32, "");
static_assert(FUSOR_PLACE(Params, problem.input_channels) == 56, "");
static_assert(FUSOR_PLACE(Params, problem.output_channels) == 64, "");
static_assert(FUSOR_PLACE(Params, problem.axis) == 72, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].input) == 72, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].output) == 96, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].window) == 120, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].stride) == 144, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].step) == 168, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].start) == 176, "");
static_assert(FUSOR_PLACE(Params, problem.axis[1].input) == 184, "");
static_assert(FUSOR_PLACE(Params, problem.axis[1].output) == 208, "");
static_assert(FUSOR_PLACE(Params, problem.axis[1].window) == 232, "");
static_assert(FUSOR_PLACE(Params, problem.axis[1].stride) == 256, "");
static_assert(FUSOR_PLACE(Params, problem.axis[1].step) == 280, "");
static_assert(FUSOR_PLACE(Params, problem.axis[1].start) == 288, "");
static_assert(FUSOR_PLACE(Params, problem.batch) == 296, "");
static_assert(FUSOR_PLACE(Params, tiling.tiles) == 320, "");
static_assert(FUSOR_PLACE(Params, tiling.along_n) == 328, "");
static_assert(FUSOR_PLACE(Params, tiling.along_m) == 352, "");

