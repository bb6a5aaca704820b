#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 1 };
  enum : int { threads = 128 };
  enum : int { tile_rows = 2 };
  enum : int { tile_columns = 4 };
  enum : bool { tile_tails = false };
  enum : bool { joins = true };
  enum : int { images = 1 };
  enum : int { image_axis = 0 };
  enum : int { run = 8 };
  enum : int { column_base = -1 };
  enum : int { column_live = 511 };
  enum : int { places_0 = 3 };
  enum : int { places_1 = 3 };
  enum : int { places_2 = 1 };
  enum : int { row_axis = 1 };
  enum : int { row_places = 0 };
  enum : int { row_step = 2 };
  enum : int { row_turn = 1 };
  enum : int { row_shift = 0 };
  enum : int { row_divisor = 1 };
  enum : int { row_never = 0 };
  enum : int { column_axis = 2 };
  enum : int { column_places = 1 };
  enum : int { column_step = 2 };
  enum : int { column_turn = 1 };
  enum : int { column_shift = 0 };
  enum : int { column_divisor = 1 };
  enum : int { column_never = 0 };
};
#include "codegen/device/base/reduction.cuh"
#include "codegen/device/base/counted.cuh"

struct Y {
  enum : int { kRank = 5 };
  enum : int { kKept = 3 };  // axes of the rows; those of a row follow
  enum : int { kPhases = 2 };
  enum : int { kTotalsBytes = 4 };
  using Fn = Short;
  struct Args {
    alignas(8) Index v0_scale;
    alignas(8) Index v0_offset;
    alignas(8) Index v1_scale;
    alignas(8) Index v1_offset;
    alignas(8) Index v3_scale;
    alignas(8) Index v3_offset;
    alignas(8) Index v5_scale;
    alignas(8) Index v5_offset;
    alignas(8) Index v7_scale;
    alignas(8) Index v7_offset;
    alignas(8) Index v8_scale;
    alignas(8) Index v8_offset;
    alignas(8) i32 v10_value;
    alignas(8) Index v14_scale;
    alignas(8) Index v14_offset;
    alignas(8) Index v17_scale;
    alignas(8) Index v17_offset;
    alignas(8) const f16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_index0_stride;
    alignas(8) Index in0_index0_extent;
    alignas(8) Index in0_index1_stride;
    alignas(8) Index in0_index1_extent;
    alignas(8) float v24_value;
    alignas(8) Index v27_scale;
    alignas(8) Index v27_offset;
    alignas(8) Index v28_scale;
    alignas(8) Index v28_offset;
    alignas(8) f16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride1;
    alignas(8) i8* out1;
    alignas(8) Index out1_stride0;
    alignas(8) Index out1_stride1;
  };
  template <int N>
  struct Held {
    Vec<f16, 1> in0;
  };
  template <int N, class At>
  static __device__ __forceinline__ Held<N> load(const Args& args,
                                                 const At& at,
                                                 int count) {
    Held<N> loaded;
    const auto v0 = at.template axis<1>();
    const auto v1 = Number<2>{0};
    const auto v2 = count_mul(v0, v1);
    const auto v3 = Number<1>{0};
    const auto v4 = count_sub(v2, v3);
    const auto v5 = at.template axis<3>();
    const auto v6 = count_add(v4, v5);
    const auto v7 = Number<-1>{0};
    const auto v8 = Number<0>{0};
    const auto v9 = count_cmp_ge(v6, v8);
    const auto v10 = Unknown{Index(args.v10_value)};
    const auto v11 = count_cmp_lt(v6, v10);
    const auto v12 = count_logical_and(v9, v11);
    const auto v13 = count_binary_select(v6, v7, v12);
    const auto v14 = at.template axis<2>();
    const auto v15 = count_mul(v14, v1);
    const auto v16 = count_sub(v15, v3);
    const auto v17 = at.template axis<4>();
    const auto v18 = count_add(v16, v17);
    const auto v19 = count_cmp_ge(v18, v8);
    const auto v20 = count_cmp_lt(v18, v10);
    const auto v21 = count_logical_and(v19, v20);
    const auto v22 = count_binary_select(v18, v7, v21);
    loaded.in0 = load_counted_strided<1>(args.in0 + at.template axis<0>().value() * args.in0_stride0 + (Index(v13) * args.in0_index0_stride + Index(v22) * args.in0_index1_stride), 0, count_logical_and(is_within(v13, args.in0_index0_extent), is_within(v22, args.in0_index1_extent)), narrow<f16>(float(args.v24_value)));
    return loaded;
  }
  template <int N>
  struct Fixed {
  };
  template <int N, class At>
  static __device__ __forceinline__ Fixed<N> fixed(const Args& args,
                                                   const At& at,
                                                   int count) {
    Fixed<N> loaded;
    return loaded;
  }
  enum : bool { kSumsIgnoreOutside = false };
  template <int N>
  static __device__ __forceinline__ void outside(const Args& args,
                                                 Held<N>& held) {
    held.in0 = splat<1>(narrow<f16>(float(args.v24_value)));
  }
  template <int N>
  struct Run {
    Vec<f16, N> in0;
  };
  // N neighbours, the first of them kBack in front of the one at a place, all inside or all outside.
  template <int N, int kBack, class At>
  static __device__ __forceinline__ Run<N> load_run(const Args& args,
                                                    const At& at) {
    Run<N> run;
    const auto v0 = at.template axis<1>();
    const auto v1 = Number<2>{0};
    const auto v2 = count_mul(v0, v1);
    const auto v3 = Number<1>{0};
    const auto v4 = count_sub(v2, v3);
    const auto v5 = at.template axis<3>();
    const auto v6 = count_add(v4, v5);
    const auto v7 = Number<-1>{0};
    const auto v8 = Number<0>{0};
    const auto v9 = count_cmp_ge(v6, v8);
    const auto v10 = Unknown{Index(args.v10_value)};
    const auto v11 = count_cmp_lt(v6, v10);
    const auto v12 = count_logical_and(v9, v11);
    const auto v13 = count_binary_select(v6, v7, v12);
    const auto v14 = at.template axis<2>();
    const auto v15 = count_mul(v14, v1);
    const auto v16 = count_sub(v15, v3);
    const auto v17 = at.template axis<4>();
    const auto v18 = count_add(v16, v17);
    const auto v19 = count_cmp_ge(v18, v8);
    const auto v20 = count_cmp_lt(v18, v10);
    const auto v21 = count_logical_and(v19, v20);
    const auto v22 = count_binary_select(v18, v7, v21);
    run.in0 = load_counted<N>(args.in0 + at.template axis<0>().value() * args.in0_stride0 + (Index(v13) * args.in0_index0_stride + Index(v22) * args.in0_index1_stride - kBack), count_logical_and(is_within(v13, args.in0_index0_extent), is_within(v22, args.in0_index1_extent)), narrow<f16>(float(args.v24_value)));
    return run;
  }
  template <int N, int W>
  static __device__ __forceinline__ void take(const Run<N>& run, int i, Held<W>& held) {
    held.in0.lane[0] = run.in0.lane[i];
  }
  template <int W>
  struct Row {
    Vec<float, W> t0;
    Vec<i32, W> t1;
  };
  template <int W>
  static __device__ __forceinline__ void put(const Row<1>& one, int lane, Row<W>& row) {
    row.t0[lane] = one.t0[0];
    row.t1[lane] = one.t1[0];
  }
  template <int W, class At>
  static __device__ __forceinline__ void begin(const Args& args,
                                               const At& at,
                                               Row<W>& row) {
  }
  struct Totals0 {
    reduction_max<float> t0;
    __device__ __forceinline__ void init() {
      t0.init();
    }
    __device__ __forceinline__ void combine(const Totals0& other) {
      t0.combine(other.t0);
    }
  };
  static __device__ Totals0 totals(Phase<0>);
  template <int N, int W, class At>
  static __device__ __forceinline__ void add(Phase<0>,
                                             const Args& args,
                                             const At& at,
                                             int count,
                                             const Held<N>& held,
                                             const Fixed<N>& fixed,
                                             const Row<W>& row,
                                             Totals0 (&totals)[W]) {
    const auto v26 = widen(held.in0);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) totals[i].t0.add(v26[0]);
    }
  }
  template <int W, class At>
  static __device__ __forceinline__ void settle(Phase<0>,
                                                const Args& args,
                                                const At& at,
                                                const Totals0 (&totals)[W],
                                                Row<W>& row) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.t0[i] = round_to<f16>(totals[i].t0.result());
    }
  }
  struct Totals1 {
    reduction_min<i32> t1;
    __device__ __forceinline__ void init() {
      t1.init();
    }
    __device__ __forceinline__ void combine(const Totals1& other) {
      t1.combine(other.t1);
    }
  };
  static __device__ Totals1 totals(Phase<1>);
  template <int N, int W, class At>
  static __device__ __forceinline__ void add(Phase<1>,
                                             const Args& args,
                                             const At& at,
                                             int count,
                                             const Held<N>& held,
                                             const Fixed<N>& fixed,
                                             const Row<W>& row,
                                             Totals1 (&totals)[W]) {
    const auto v26 = widen(held.in0);
    const auto v0 = at.template axis<1>();
    const auto v1 = Number<2>{0};
    const auto v2 = count_mul(v0, v1);
    const auto v3 = Number<1>{0};
    const auto v4 = count_sub(v2, v3);
    const auto v5 = at.template axis<3>();
    const auto v6 = count_add(v4, v5);
    const auto v8 = Number<0>{0};
    const auto v9 = count_cmp_ge(v6, v8);
    const auto v10 = Unknown{Index(args.v10_value)};
    const auto v11 = count_cmp_lt(v6, v10);
    const auto v12 = count_logical_and(v9, v11);
    const auto v14 = at.template axis<2>();
    const auto v15 = count_mul(v14, v1);
    const auto v16 = count_sub(v15, v3);
    const auto v17 = at.template axis<4>();
    const auto v18 = count_add(v16, v17);
    const auto v19 = count_cmp_ge(v18, v8);
    const auto v20 = count_cmp_lt(v18, v10);
    const auto v21 = count_logical_and(v19, v20);
    const auto v27 = Number<9>{0};
    const auto v28 = Number<3>{0};
    const auto v29 = count_mul(v5, v28);
    const auto v30 = count_add(v29, v17);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const i32 v25 = i32(v12) != i32(0) && i32(v21) != i32(0);
      const i32 v31 = v26[0] < row.t0[i];
      const i32 v32 = v31 != i32(0) ? i32(v27.value()) : i32(v30.value());
      const i32 v33 = v25 != i32(0) ? v32 : i32(v27.value());
      if (i < count) totals[i].t1.add(v33);
    }
  }
  template <int W, class At>
  static __device__ __forceinline__ void settle(Phase<1>,
                                                const Args& args,
                                                const At& at,
                                                const Totals1 (&totals)[W],
                                                Row<W>& row) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.t1[i] = totals[i].t1.result();
    }
  }
  enum : bool { kStoresElements = false };
  template <int N, int W, class At>
  static __device__ __forceinline__ void finish(const Args& args,
                                                const At& at,
                                                int count,
                                                const Held<N>& held,
                                                const Fixed<N>& fixed,
                                                const Row<W>& row) {
  }
  template <int W, class At>
  static __device__ __forceinline__ void finish_row(const Args& args,
                                                    const At& at,
                                                    const Row<W>& row) {
    const auto& r0 = row.t0;
    store_whole(args.out0 + (at.template axis<0>().value() * args.out0_stride0 + at.template axis<1>().value() * args.out0_stride1 + at.template axis<2>().value()), narrow<f16>(r0), W);
    const auto& r1 = row.t1;
    store_whole(args.out1 + (at.template axis<0>().value() * args.out1_stride0 + at.template axis<1>().value() * args.out1_stride1 + at.template axis<2>().value()), narrow<i8>(r1), W);
  }
  struct Columns {
    __device__ __forceinline__ void init() {
    }
    __device__ __forceinline__ void combine(const Columns& other) {
    }
  };
  template <int N, int W, class At>
  static __device__ __forceinline__ void add_columns(const Args& args,
                                                     const At& at,
                                                     int count,
                                                     const Held<N>& held,
                                                     const Fixed<N>& fixed,
                                                     const Row<W>& row,
                                                     Columns (&columns)[N]) {
  }
  template <class At>
  static __device__ __forceinline__ void finish_column(const Args& args,
                                                       const At& at,
                                                       const Columns& total) {
  }
};

struct Params {
  alignas(8) u32 turn;
  alignas(8) Index tiles;
  alignas(8) Index row_extent;
  alignas(8) Index column_extent;
  alignas(8) Index image_extent;
  FastDivisor extents[3];
  Y::Args y;
};

