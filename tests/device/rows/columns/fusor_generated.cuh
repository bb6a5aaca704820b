#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { width = 8 };
};
#include "codegen/device/base/reduction.cuh"

struct Y {
  enum : int { kRank = 2 };
  enum : int { kKept = 1 };  // axes of the rows; those of a row follow
  enum : int { kPhases = 1 };
  enum : int { kTotalsBytes = 4 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) const bf16* in1;
    alignas(8) const bf16* in2;
    alignas(8) Index in2_stride0;
    alignas(8) const float* in3;
    alignas(8) Index in3_stride0;
    alignas(8) float t0_count;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) float* out1;
  };
  template <int N>
  struct Held {
    Vec<bf16, N> in0;
    Vec<bf16, N> in2;
  };
  template <int N>
  static __device__ __forceinline__ Held<N> load(const Args& args,
                                                 const Index (&at)[kRank],
                                                 int count) {
    Held<N> loaded;
    loaded.in0 = load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1]));
    loaded.in2 = load_whole<N>(args.in2 + (at[0] * args.in2_stride0 + at[1]));
    return loaded;
  }
  template <int N>
  struct Fixed {
    Vec<bf16, N> in1;
  };
  template <int N>
  static __device__ __forceinline__ Fixed<N> fixed(const Args& args,
                                                   const Index (&at)[kRank],
                                                   int count) {
    Fixed<N> loaded;
    loaded.in1 = load_whole<N>(args.in1 + at[1]);
    return loaded;
  }
  enum : int { kStreams = 2 };
  enum : int { kStreamedBytes = 4 };  // of an element, all streams
  static __device__ __forceinline__ const void* stream(const Args& args,
                                                       const Index (&at)[kRank],
                                                       int number) {
    if (number == 0) return args.in0 + at[0] * args.in0_stride0;
    return args.in2 + at[0] * args.in2_stride0;
  }
  static __device__ __forceinline__ constexpr int stream_bytes(int number) {
    if (number == 0) return 2;
    return 2;
  }
  template <int N>
  static __device__ __forceinline__ Held<N> held_in(const char* streams,
                                                    int elements,
                                                    int vector) {
    Held<N> loaded;
    loaded.in0 = *reinterpret_cast<const Vec<bf16, N>*>(streams + elements * 0 + vector * (N * 2));
    loaded.in2 = *reinterpret_cast<const Vec<bf16, N>*>(streams + elements * 2 + vector * (N * 2));
    return loaded;
  }
  enum : int { kCopiedBytes = 4 };  // of an element
  template <int N>
  static __device__ __forceinline__ void copy(const Args& args,
                                              const Index (&at)[kRank],
                                              char* to,
                                              int apart) {
    copy_ahead<N>(to + (N * 0 / 16) * apart, apart, args.in0 + (at[0] * args.in0_stride0 + at[1]));
    copy_ahead<N>(to + (N * 2 / 16) * apart, apart, args.in2 + (at[0] * args.in2_stride0 + at[1]));
  }
  template <int N>
  static __device__ __forceinline__ Held<N> copied(const Args& args,
                                                   const Index (&at)[kRank],
                                                   int count,
                                                   const char* from,
                                                   int apart) {
    Held<N> loaded;
    copied_ahead(from + (N * 0 / 16) * apart, apart, loaded.in0);
    copied_ahead(from + (N * 2 / 16) * apart, apart, loaded.in2);
    return loaded;
  }
  template <int W>
  struct Row {
    Vec<float, W> v4;
    Vec<float, W> t0;
  };
  template <int W>
  static __device__ __forceinline__ void begin(const Args& args,
                                               const Index (&at)[kRank],
                                               Row<W>& row) {
    const auto loaded_v4 = widen(load_strided<1>(args.in3 + at[0] * args.in3_stride0, 0));
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.v4[i] = loaded_v4[0];
    }
  }
  struct Totals0 {
    reduction_avg<float> t0;
    __device__ __forceinline__ void init() {
      t0.init();
    }
    __device__ __forceinline__ void combine(const Totals0& other) {
      t0.combine(other.t0);
    }
  };
  static __device__ Totals0 totals(Phase<0>);
  template <int N, int W>
  static __device__ __forceinline__ void add(Phase<0>,
                                             const Args& args,
                                             const Index (&at)[kRank],
                                             int count,
                                             const Held<N>& held,
                                             const Fixed<N>& fixed,
                                             const Row<W>& row,
                                             Totals0 (&totals)[W]) {
    const auto v0 = widen(held.in0);
    const auto v1 = widen(fixed.in1);
    const auto v3 = widen(held.in2);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v2 = v0[i] * v1[i];
      const float v5 = v3[i] * row.v4[0];
      const float v6 = v2 * v5;
      totals[0].t0.add(v6);
    }
  }
  template <int W>
  static __device__ __forceinline__ void settle(Phase<0>,
                                                const Args& args,
                                                const Index (&at)[kRank],
                                                const Totals0 (&totals)[W],
                                                Row<W>& row) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.t0[i] = totals[i].t0.result(args.t0_count);
    }
  }
  enum : bool { kStoresElements = true };
  template <int N, int W>
  static __device__ __forceinline__ void finish(const Args& args,
                                                const Index (&at)[kRank],
                                                int count,
                                                const Held<N>& held,
                                                const Fixed<N>& fixed,
                                                const Row<W>& row) {
    Vec<float, N> r0;
    const auto v0 = widen(held.in0);
    const auto v1 = widen(fixed.in1);
    const auto v3 = widen(held.in2);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v2 = v0[i] * v1[i];
      const float v5 = v3[i] * row.v4[0];
      const float v7 = v5 * row.t0[0];
      const float v8 = v2 - v7;
      const float v9 = v8 * row.v4[0];
      r0[i] = v9;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1]), narrow<bf16>(r0));
  }
  template <int W>
  static __device__ __forceinline__ void finish_row(const Args& args,
                                                    const Index (&at)[kRank],
                                                    const Row<W>& row) {
  }
  struct Columns {
    reduction_add<float> t1;
    __device__ __forceinline__ void init() {
      t1.init();
    }
    __device__ __forceinline__ void combine(const Columns& other) {
      t1.combine(other.t1);
    }
  };
  template <int N, int W>
  static __device__ __forceinline__ void add_columns(const Args& args,
                                                     const Index (&at)[kRank],
                                                     int count,
                                                     const Held<N>& held,
                                                     const Fixed<N>& fixed,
                                                     const Row<W>& row,
                                                     Columns (&columns)[N]) {
    const auto v0 = widen(held.in0);
    const auto v3 = widen(held.in2);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v5 = v3[i] * row.v4[0];
      const float v10 = v0[i] * v5;
      columns[i].t1.add(v10);
    }
  }
  static __device__ __forceinline__ void finish_column(const Args& args,
                                                       const Index (&at)[kRank],
                                                       const Columns& total) {
    store(args.out1 + at[1], narrow<float>(total.t1.result()));
  }
};

struct Params {
  alignas(8) u32 turn;
  const Y::Columns* partials;
  alignas(8) Index columns;
  alignas(8) Index vectors;
  alignas(8) Index parts;
  alignas(8) Index row_extent;
  FastDivisor extents[2];
  Y::Args y;
};

