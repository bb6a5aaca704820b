#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { threads = 320 };
  enum : int { group = 8 };
  enum : int { cluster = 1 };
  enum : int { batch = 1 };
  enum : int { units = 1 };
  enum : int { unroll = 4 };
  enum : bool { spread = true };
  enum : bool { whole = true };
  enum : bool { row_tails = false };
  enum : bool { repacks = false };
  enum : bool { split = true };
  enum : bool { shared_places = true };
  enum : int { blocks = 1 };
  enum : bool { folds = true };
};
#include "codegen/device/base/reduction.cuh"
#include "codegen/device/base/formulas.cuh"

struct Y {
  enum : int { kRank = 5 };
  enum : int { kKept = 3 };  // axes of the rows; those of a row follow
  enum : int { kPhases = 1 };
  enum : int { kTotalsBytes = 16 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride1;
    alignas(8) Index in0_stride4;
    alignas(8) float t0_count;
    alignas(8) float t1_count;
    alignas(8) float v3_value;
    alignas(8) const bf16* in1;
    alignas(8) const bf16* in2;
    alignas(8) float* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride1;
    alignas(8) float* out1;
    alignas(8) Index out1_stride0;
    alignas(8) Index out1_stride1;
    alignas(8) bf16* out2;
    alignas(8) Index out2_stride1;
    alignas(8) Index out2_stride4;
    alignas(8) bf16* out3;
    alignas(8) Index out3_stride1;
    alignas(8) Index out3_stride4;
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
    loaded.in0 = load_whole<N>(args.in0 + (at[1] * args.in0_stride1 + at[2] + at[4] * args.in0_stride4));
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
    copy_ahead<N>(to + (N * 0 / 16) * apart, apart, args.in0 + (at[1] * args.in0_stride1 + at[2] + at[4] * args.in0_stride4));
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
  };
  template <int W>
  static __device__ __forceinline__ void put(const Row<1>& one, int lane, Row<W>& row) {
    row.t0[lane] = one.t0[0];
    row.t1[lane] = one.t1[0];
    row.v4[lane] = one.v4[0];
    row.v5[lane] = one.v5[0];
    row.v7[lane] = one.v7[0];
    row.v9[lane] = one.v9[0];
  }
  enum : bool { kLoadsSharedPlaces = false };
  template <int W>
  static __device__ __forceinline__ void take(const Row<W>& row, int lane, Row<1>& one) {
    one.t0[0] = row.t0[lane];
    one.t1[0] = row.t1[lane];
    one.v4[0] = row.v4[lane];
    one.v5[0] = row.v5[lane];
    one.v7[0] = row.v7[lane];
    one.v9[0] = row.v9[lane];
  }
  template <int W>
  static __device__ __forceinline__ void begin(const Args& args,
                                               const Index (&at)[kRank],
                                               Row<W>& row) {
    const auto loaded_v7 = widen(load_whole<W>(args.in1 + at[2]));
    const auto loaded_v9 = widen(load_whole<W>(args.in2 + at[2]));
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.v7[i] = loaded_v7[i];
      row.v9[i] = loaded_v9[i];
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
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.t0[i] = totals[i].t0.result(args.t0_count);
      row.t1[i] = totals[i].t1.result(args.t1_count);
      row.v4[i] = row.t1[i] + v3;
      row.v5[i] = Exact::rsqrt(row.v4[i]);
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
    Vec<float, N> r2;
    Vec<float, N> r3;
    const auto v0 = widen(held.in0);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v1 = v0[i] - row.t0[i];
      const float v6 = v1 * row.v5[i];
      const float v8 = v6 * row.v7[i];
      const float v10 = round_to<bf16>(v8 + row.v9[i]);
      const float v11 = op_swish<Fn>(v10);
      r2[i] = v10;
      r3[i] = v11;
    }
    store_whole(args.out2 + (at[1] * args.out2_stride1 + at[2] + at[4] * args.out2_stride4), narrow<bf16>(r2));
    store_whole(args.out3 + (at[1] * args.out3_stride1 + at[2] + at[4] * args.out3_stride4), narrow<bf16>(r3));
  }
  template <int W>
  static __device__ __forceinline__ void finish_row(const Args& args,
                                                    const Index (&at)[kRank],
                                                    const Row<W>& row) {
    const auto& r0 = row.t0;
    store_strided(args.out0 + (at[0] * args.out0_stride0 + at[1] * args.out0_stride1), 0, narrow<float>(r0), 1);
    const auto& r1 = row.v5;
    store_strided(args.out1 + (at[0] * args.out1_stride0 + at[1] * args.out1_stride1), 0, narrow<float>(r1), 1);
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
  alignas(8) Index lanes;
  i64 cells;
  char* partials;
  FastDivisor fold[1];
  FastDivisor extents[5];
  Y::Args y;
};

