#define FUSOR_INDEX_BITS 32
#define FUSOR_STRIDED_GRADIENT 0
#define FUSOR_VECTOR 4
#define FUSOR_ROWS 1
#define FUSOR_STRIP 8
#define FUSOR_TAPS 3
#define FUSOR_SPREAD 1
#define FUSOR_BLOCKS 3
#define FUSOR_LINES 3
#define FUSOR_ADVANCE 1
#define FUSOR_A_PLAIN 1
#define FUSOR_TAILS 0
#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  static constexpr int strided_gradient = 0;
  static constexpr int vector = 4;
  static constexpr int rows = 1;
  static constexpr int strip = 8;
  static constexpr int taps = 3;
  static constexpr int spread = 1;
  static constexpr int blocks = 3;
  static constexpr int lines = 3;
  static constexpr int advance = 1;
  static constexpr int a_plain = 1;
  static constexpr int tails = 0;
};
#include "codegen/device/base/pointwise.cuh"

struct A {
  static constexpr int kRank = 5;
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
  static constexpr int kRank = 5;
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
  static constexpr int kRank = 5;
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
      const float v2 = op_add<Fn>(v0, v1[i]);
      const float v3 = op_relu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1] + at[3] * args.out0_stride3 + at[4] * args.out0_stride4), narrow<f16>(r0), count);
  }
};

