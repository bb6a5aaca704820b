#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : bool { strided_gradient = false };
  enum : int { vector = 4 };
  enum : int { rows = 1 };
  enum : int { strip = 8 };
  enum : int { taps = 3 };
  enum : int { spread = 1 };
  enum : bool { planes = false };
  enum : int { load = 1 };
  enum : int { lead = 0 };
  enum : int { along = 1 };
  enum : bool { picks_taps = false };
  enum : int { phases = 1 };
  enum : int { phase = 0 };
  enum : int { blocks = 3 };
  enum : int { lines = 3 };
  enum : int { advance = 1 };
  enum : bool { a_plain = true };
  enum : bool { tails = false };
};
#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/base/formulas.cuh"

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
};

struct Y {
  enum : int { kRank = 5 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
    alignas(8) f16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride3;
    alignas(8) Index out0_stride4;
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
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[3] * args.out0_stride3 + at[4] * args.out0_stride4), narrow<f16>(r0), count);
  }
};

#include "codegen/device/depthwise/tiling.cuh"
struct Params {
  alignas(8) u32 turn;
  Window window;
  ChannelTiling channels;
  i64 strips;
  i64 steps;
  i64 rows;
  A::Args a;
  B::Args b;
  Y::Args y;
};
static_assert(FUSOR_PLACE(Params, window.axis) == 8, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].runs) == 8, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].spacing) == 32, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].stride) == 56, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].window) == 80, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].results) == 104, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].positions) == 112, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].taps) == 120, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].dilation) == 128, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].start) == 136, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].lift) == 144, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].column_step) == 152, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].tap_step) == 160, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].advance) == 168, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].stored_first) == 176, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].stored_step) == 184, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].runs) == 192, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].spacing) == 216, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].stride) == 240, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].window) == 264, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].results) == 288, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].positions) == 296, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].taps) == 304, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].dilation) == 312, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].start) == 320, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].lift) == 328, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].column_step) == 336, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].tap_step) == 344, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].advance) == 352, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].stored_first) == 360, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].stored_step) == 368, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].runs) == 376, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].spacing) == 400, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].stride) == 424, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].window) == 448, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].results) == 472, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].positions) == 480, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].taps) == 488, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].dilation) == 496, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].start) == 504, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].lift) == 512, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].column_step) == 520, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].tap_step) == 528, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].advance) == 536, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].stored_first) == 544, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].stored_step) == 552, "");
static_assert(FUSOR_PLACE(Params, channels.vectors) == 560, "");
static_assert(FUSOR_PLACE(Params, channels.width) == 568, "");
static_assert(FUSOR_PLACE(Params, channels.tiles) == 592, "");
static_assert(FUSOR_PLACE(Params, channels.lanes) == 616, "");

