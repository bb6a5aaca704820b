#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
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
  SlidingWindow<false, 1, 1, Index, i64, FastDivisor> window;
  FastDivisor channels;
  i64 elements;
  i64 parts;
  const float* partials;
  Y::Args y;
};
static_assert(FUSOR_PLACE(Params, window.axis) == 0, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].runs) == 0, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].spacing) == 24, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].stride) == 48, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].window) == 72, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].results) == 96, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].positions) == 104, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].taps) == 112, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].dilation) == 120, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].start) == 128, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].lift) == 136, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].column_step) == 144, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].tap_step) == 152, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].advance) == 160, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].stored_first) == 168, "");
static_assert(FUSOR_PLACE(Params, window.axis[0].stored_step) == 176, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].runs) == 184, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].spacing) == 208, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].stride) == 232, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].window) == 256, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].results) == 280, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].positions) == 288, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].taps) == 296, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].dilation) == 304, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].start) == 312, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].lift) == 320, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].column_step) == 328, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].tap_step) == 336, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].advance) == 344, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].stored_first) == 352, "");
static_assert(FUSOR_PLACE(Params, window.axis[1].stored_step) == 360, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].runs) == 368, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].spacing) == 392, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].stride) == 416, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].window) == 440, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].results) == 464, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].positions) == 472, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].taps) == 480, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].dilation) == 488, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].start) == 496, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].lift) == 504, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].column_step) == 512, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].tap_step) == 520, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].advance) == 528, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].stored_first) == 536, "");
static_assert(FUSOR_PLACE(Params, window.axis[2].stored_step) == 544, "");

