#define FUSOR_INDEX_BITS 32
#define FUSOR_STRIDED_GRADIENT 0
#define FUSOR_VECTOR 8
#define FUSOR_ROWS 1
#define FUSOR_STRIP 4
#define FUSOR_TAPS 3
#define FUSOR_SPREAD 1
#define FUSOR_WHOLE_ROWS 1
#define FUSOR_BLOCKS 3
#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  static constexpr int strided_gradient = 0;
  static constexpr int vector = 8;
  static constexpr int rows = 1;
  static constexpr int strip = 4;
  static constexpr int taps = 3;
  static constexpr int spread = 1;
  static constexpr int whole_rows = 1;
  static constexpr int blocks = 3;
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
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1] + at[3] * args.in0_stride3 + at[4] * args.in0_stride4), count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = v0[i];
    }
    return value;
  }
};

