#define FUSOR_INDEX_BITS 32
#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
};
#include "codegen/device/base/pointwise.cuh"

struct Y {
  static constexpr int kRank = 5;
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

