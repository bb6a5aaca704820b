#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { threads = 256 };
  enum : int { group = 32 };
  enum : int { cluster = 1 };
  enum : int { batch = 1 };
  enum : int { units = 1 };
  enum : int { unroll = 4 };
  enum : bool { spread = true };
  enum : bool { whole = false };
  enum : bool { row_tails = false };
  enum : bool { repacks = false };
  enum : bool { split = true };
  enum : bool { shared_places = false };
  enum : int { blocks = 1 };
  enum : int { phase = 0 };
};
#include "codegen/device/base/reduction.cuh"

struct Y {
  enum : int { kRank = 2 };
  enum : int { kKept = 1 };  // axes of the rows; those of a row follow
  enum : int { kPhases = 1 };
  enum : int { kTotalsBytes = 16 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride1;
    alignas(8) float t0_count;
    alignas(8) float t1_count;
    alignas(8) float v3_value;
    alignas(8) const float* in1;
    alignas(8) const float* in2;
    alignas(8) const float* in3;
    alignas(8) float v16_value;
    alignas(8) const float* in4;
    alignas(8) float v21_value;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride1;
    alignas(8) float* out1;
    alignas(8) float* out2;
    alignas(8) float* out3;
    alignas(8) float* out4;
  };
  template <int N>
  struct Held {
    Vec<bf16, N> in0;
  };
  template <int N>
  static __device__ __forceinline__ Held<N> load(const Args& args,
                                                 const Index (&at)[kRank],
                                                 int count) {
    Held<N> loaded;
    loaded.in0 = load_whole<N>(args.in0 + (at[0] + at[1] * args.in0_stride1));
    return loaded;
  }
  template <int N>
  struct Fixed {
  };
  template <int N>
  static __device__ __forceinline__ Fixed<N> fixed(const Args& args,
                                                   const Index (&at)[kRank],
                                                   int count) {
    Fixed<N> loaded;
    return loaded;
  }
  enum : int { kCopiedBytes = 2 };  // of an element
  template <int N>
  static __device__ __forceinline__ void copy(const Args& args,
                                              const Index (&at)[kRank],
                                              char* to,
                                              int apart) {
    copy_ahead<N>(to + (N * 0 / 16) * apart, apart, args.in0 + (at[0] + at[1] * args.in0_stride1));
  }
  template <int N>
  static __device__ __forceinline__ Held<N> copied(const Args& args,
                                                   const Index (&at)[kRank],
                                                   int count,
                                                   const char* from,
                                                   int apart) {
    Held<N> loaded;
    copied_ahead(from + (N * 0 / 16) * apart, apart, loaded.in0);
    return loaded;
  }
  template <int W>
  struct Row {
    Vec<float, W> t0;
    Vec<float, W> t1;
    Vec<float, W> v4;
    Vec<float, W> v5;
    Vec<float, W> v7;
    Vec<float, W> v9;
    Vec<float, W> v12;
    Vec<float, W> v13;
    Vec<float, W> v14;
    Vec<float, W> v15;
    Vec<float, W> v17;
    Vec<float, W> v18;
    Vec<float, W> v19;
    Vec<float, W> v20;
    Vec<float, W> v22;
    Vec<float, W> v23;
    Vec<float, W> v24;
    Vec<float, W> v25;
    Vec<float, W> v26;
  };
  template <int W>
  static __device__ __forceinline__ void begin(const Args& args,
                                               const Index (&at)[kRank],
                                               Row<W>& row) {
    const auto loaded_v7 = widen(load_whole<W>(args.in1 + at[0]));
    const auto loaded_v9 = widen(load_whole<W>(args.in2 + at[0]));
    const auto loaded_v14 = widen(load_whole<W>(args.in3 + at[0]));
    const auto loaded_v20 = widen(load_whole<W>(args.in4 + at[0]));
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.v7[i] = loaded_v7[i];
      row.v9[i] = loaded_v9[i];
      row.v14[i] = loaded_v14[i];
      row.v20[i] = loaded_v20[i];
    }
  }
  struct Totals0 {
    reduction_avg<float> t0;
    reduction_deviation<float> t1;
    __device__ __forceinline__ void init() {
      t0.init();
      t1.init();
    }
    __device__ __forceinline__ void combine(const Totals0& other) {
      t0.combine(other.t0);
      t1.combine(other.t1);
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
    const auto step_t1 = totals[0].t1.next();
    const auto v0 = widen(held.in0);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      totals[i].t0.add(v0[i]);
      totals[i].t1.add(v0[i], step_t1);
    }
  }
  template <int W>
  static __device__ __forceinline__ void settle(Phase<0>,
                                                const Args& args,
                                                const Index (&at)[kRank],
                                                const Totals0 (&totals)[W],
                                                Row<W>& row) {
    const float v3 = args.v3_value;
    const float v16 = args.v16_value;
    const float v21 = args.v21_value;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.t0[i] = totals[i].t0.result(args.t0_count);
      row.t1[i] = totals[i].t1.result(args.t1_count);
      row.v4[i] = row.t1[i] + v3;
      row.v5[i] = Exact::rsqrt(row.v4[i]);
      row.v12[i] = row.t0[i];
      row.v13[i] = row.v5[i];
      row.v15[i] = row.t0[i] - row.v14[i];
      row.v17[i] = row.v15[i] * v16;
      row.v18[i] = row.v14[i] + row.v17[i];
      row.v19[i] = row.v18[i];
      row.v22[i] = row.t1[i] * v21;
      row.v23[i] = row.v22[i] - row.v20[i];
      row.v24[i] = row.v23[i] * v16;
      row.v25[i] = row.v20[i] + row.v24[i];
      row.v26[i] = row.v25[i];
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
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v1 = v0[i] - row.t0[i];
      const float v6 = v1 * row.v5[i];
      const float v8 = v6 * row.v7[i];
      const float v10 = v8 + row.v9[i];
      const float v11 = v10;
      r0[i] = v11;
    }
    store_whole(args.out0 + (at[0] + at[1] * args.out0_stride1), narrow<bf16>(r0));
  }
  template <int W>
  static __device__ __forceinline__ void finish_row(const Args& args,
                                                    const Index (&at)[kRank],
                                                    const Row<W>& row) {
    const auto& r1 = row.v12;
    store_whole(args.out1 + at[0], narrow<float>(r1));
    const auto& r2 = row.v13;
    store_whole(args.out2 + at[0], narrow<float>(r2));
    const auto& r3 = row.v19;
    store_whole(args.out3 + at[0], narrow<float>(r3));
    const auto& r4 = row.v26;
    store_whole(args.out4 + at[0], narrow<float>(r4));
  }
  struct Columns {
    __device__ __forceinline__ void init() {
    }
    __device__ __forceinline__ void combine(const Columns& other) {
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
  }
  static __device__ __forceinline__ void finish_column(const Args& args,
                                                       const Index (&at)[kRank],
                                                       const Columns& total) {
  }
};

struct Params {
  alignas(8) u32 turn;
  alignas(8) Index rows;
  alignas(8) Index vectors;
  alignas(8) Index units;
  alignas(8) Index parts;
  alignas(8) Index row_extent;
  i64 cells;
  char* partials;
  const char* totals;
  FastDivisor extents[2];
  Y::Args y;
};

