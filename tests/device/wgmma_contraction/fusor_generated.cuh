#define FUSOR_INDEX_BITS 32
#define FUSOR_TYPE 1
#define FUSOR_TILE_N 256
#define FUSOR_STAGES 4
#define FUSOR_BATCH 0
#define FUSOR_VECTOR 8
#define FUSOR_A_ROWS_ADJACENT 0
#define FUSOR_B_COLUMNS_ADJACENT 1
#define FUSOR_Y_ALONG_COLUMNS 1
#define FUSOR_SWAPPED 0
#include "codegen/device/pointwise.cuh"

struct Y {
  static constexpr int kRank = 2;
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
  };
  template <int N, bool kSpread = false, class Anchor0>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count,
                                               const Vec<Anchor0, N>& anchor0) {
    const Vec<float, N> v1 = widen(load_whole<N>(args.in0 + at[1], count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = narrow<float>(anchor0[i]);
      const float v2 = op_add<Fn>(v0, v1[i]);
      const float v3 = op_gelu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1]), narrow<bf16>(r0), count);
  }
};

