#define FUSOR_INDEX_BITS 32
#define FUSOR_COMPUTE 0
#define FUSOR_TILE_M 128
#define FUSOR_TILE_N 128
#define FUSOR_Y_ALONG_N 1
#define FUSOR_OP 1
#define FUSOR_SPATIAL 2
#define FUSOR_BATCH 0
#define FUSOR_CHANNELS_FASTEST 1
#define FUSOR_UNIT_STRIDE 1
#define FUSOR_A_ALONG_K 1
#define FUSOR_B_ALONG_K 1
#define FUSOR_A_WIDTH 8
#define FUSOR_B_WIDTH 8
#define FUSOR_TILE_K 64
#define FUSOR_STAGES 3
#define FUSOR_A_ELEMENT 0
#define FUSOR_B_ELEMENT 0
#define FUSOR_A_PLAIN 1
#define FUSOR_B_PLAIN 1
#define FUSOR_SHARED_BYTES 104448
#define FUSOR_SPLIT 0
#define FUSOR_VECTOR 8
#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  static constexpr int compute = 0;
  static constexpr int tile_m = 128;
  static constexpr int tile_n = 128;
  static constexpr int y_along_n = 1;
  static constexpr int op = 1;
  static constexpr int spatial = 2;
  static constexpr int batch = 0;
  static constexpr int channels_fastest = 1;
  static constexpr int unit_stride = 1;
  static constexpr int a_along_k = 1;
  static constexpr int b_along_k = 1;
  static constexpr int a_width = 8;
  static constexpr int b_width = 8;
  static constexpr int tile_k = 64;
  static constexpr int stages = 3;
  static constexpr int a_element = 0;
  static constexpr int b_element = 0;
  static constexpr int a_plain = 1;
  static constexpr int b_plain = 1;
  static constexpr int shared_bytes = 104448;
  static constexpr int split = 0;
  static constexpr int vector = 8;
};
#include "codegen/device/base/pointwise.cuh"

struct A {
  static constexpr int kRank = 4;
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
  static constexpr int kRank = 4;
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
  static constexpr int kRank = 4;
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
      const float v2 = op_add<Fn>(v0, v1[i]);
      const float v3 = op_relu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[2] * args.out0_stride2 + at[3] * args.out0_stride3), narrow<f16>(r0), count);
  }
};

