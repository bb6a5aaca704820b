#define FUSOR_INDEX_BITS 32
#define FUSOR_COMPUTE 0
#define FUSOR_TILE_M 64
#define FUSOR_TILE_N 64
#define FUSOR_Y_ALONG_N 1
#define FUSOR_OP 3
#define FUSOR_SPATIAL 2
#define FUSOR_BATCH 0
#define FUSOR_CHANNELS_FASTEST 1
#define FUSOR_UNIT_STRIDE 1
#define FUSOR_VECTOR 4
#define FUSOR_LANES 8
#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  static constexpr int compute = 0;
  static constexpr int tile_m = 64;
  static constexpr int tile_n = 64;
  static constexpr int y_along_n = 1;
  static constexpr int op = 3;
  static constexpr int spatial = 2;
  static constexpr int batch = 0;
  static constexpr int channels_fastest = 1;
  static constexpr int unit_stride = 1;
  static constexpr int vector = 4;
  static constexpr int lanes = 8;
};
#include "codegen/device/base/pointwise.cuh"

struct Y {
  static constexpr int kRank = 4;
  using Fn = Short;
  struct Args {
    alignas(8) f16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride2;
    alignas(8) Index out0_stride3;
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
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[2] * args.out0_stride2 + at[3] * args.out0_stride3), narrow<f16>(r0), count);
  }
};

