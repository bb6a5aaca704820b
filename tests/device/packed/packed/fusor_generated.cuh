#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 16 };
  enum : int { threads = 256 };
  enum : bool { whole_rows = true };
  enum : bool { adjacent = false };
  enum : int { outer = 0 };
  enum : bool { whole_stores = true };
};
#include "codegen/device/base/pointwise.cuh"

struct Y {
  enum : int { kRank = 1 };
  using Fn = Short;
  struct Args {
    alignas(8) const f16* in0;
  };
  using Stored = f4_e2m1;
  using Value = Carrier<Stored>;
  template <int N>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + at[0], count));
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v1 = v0[i] + v0[i];
      value[i] = i < count ? v1 : Value(0);
    }
    return value;
  }
};

struct Params {
  alignas(8) u32 turn;
  u8* bytes;
  alignas(8) Index threads;
  alignas(8) Index row_extent;
  alignas(8) Index first;
  alignas(8) Index end;
  FastDivisor pieces;
  FastDivisor extents[1];
  FastDivisor strides[1];
  Y::Args y;
};

