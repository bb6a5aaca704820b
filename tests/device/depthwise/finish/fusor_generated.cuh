#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { lanes = 32 };
};
#include "codegen/device/base/pointwise.cuh"

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
    store_strided(args.out0 + (at[0] * args.out0_stride0 + at[3] * args.out0_stride3 + at[4] * args.out0_stride4), args.out0_stride0, narrow<f16>(r0), count);
  }
};

#include "codegen/device/depthwise/window.cuh"
struct Params {
  alignas(8) u32 turn;
  SlidingWindow<false, 1, 1, Index, i64, FastDivisor> window;
  FastDivisor channels;
  i64 elements;
  i64 parts;
  const float* partials;
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

