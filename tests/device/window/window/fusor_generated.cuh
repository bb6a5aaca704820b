#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { threads = 128 };
  enum : int { tile_rows = 2 };
  enum : int { tile_columns = 2 };
  enum : bool { tile_tails = false };
  enum : bool { joins = false };
  enum : int { images = 1 };
  enum : int { image_axis = 0 };
  enum : int { run = 1 };
  enum : int { column_base = 0 };
  enum : int { column_live = 0 };
  enum : int { places_0 = 2 };
  enum : int { places_1 = 2 };
  enum : int { places_2 = 1 };
  enum : int { row_axis = 1 };
  enum : int { row_places = 0 };
  enum : int { row_step = 1 };
  enum : int { row_turn = -2 };
  enum : int { row_shift = 3 };
  enum : int { row_divisor = 2 };
  enum : int { row_never = 2 };
  enum : int { column_axis = 2 };
  enum : int { column_places = 1 };
  enum : int { column_step = 1 };
  enum : int { column_turn = -2 };
  enum : int { column_shift = 3 };
  enum : int { column_divisor = 2 };
  enum : int { column_never = 2 };
};
#include "codegen/device/base/reduction.cuh"
#include "codegen/device/base/counted.cuh"

struct Y {
  enum : int { kRank = 6 };
  enum : int { kKept = 4 };  // axes of the rows; those of a row follow
  enum : int { kPhases = 1 };
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
    alignas(8) Index v16_scale;
    alignas(8) Index v16_offset;
    alignas(8) Index v21_scale;
    alignas(8) Index v21_offset;
    alignas(8) Index v24_scale;
    alignas(8) Index v24_offset;
    alignas(8) const f16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) Index in0_index0_stride;
    alignas(8) Index in0_index0_extent;
    alignas(8) Index in0_index1_stride;
    alignas(8) Index in0_index1_extent;
    alignas(8) Index v37_scale;
    alignas(8) Index v37_offset;
    alignas(8) const i8* in1;
    alignas(8) Index in1_stride0;
    alignas(8) Index in1_index0_stride;
    alignas(8) Index in1_index0_extent;
    alignas(8) Index in1_index1_stride;
    alignas(8) Index in1_index1_extent;
    alignas(8) f16* out0;
    alignas(8) Index out0_stride0;
    alignas(8) Index out0_stride1;
    alignas(8) Index out0_stride2;
  };
  template <int N>
  struct Held {
    Vec<f16, N> in0;
    Vec<i8, N> in1;
  };
  template <int N, class At>
  static __device__ __forceinline__ Held<N> load(const Args& args,
                                                 const At& at,
                                                 int count) {
    Held<N> loaded;
    const auto v0 = at.template axis<1>();
    const auto v1 = Number<1>{0};
    const auto v2 = count_add(v0, v1);
    const auto v3 = Number<2>{0};
    const auto v4 = count_div(v2, v3);
    const auto v5 = at.template axis<4>();
    const auto v6 = count_sub(v4, v5);
    const auto v7 = Number<-1>{0};
    const auto v8 = Number<0>{0};
    const auto v9 = count_cmp_ge(v6, v8);
    const auto v10 = Unknown{Index(args.v10_value)};
    const auto v11 = count_cmp_lt(v6, v10);
    const auto v12 = count_logical_and(v9, v11);
    const auto v13 = count_mul(v6, v3);
    const auto v14 = count_sub(v2, v13);
    const auto v15 = count_cmp_ge(v14, v8);
    const auto v16 = Number<3>{0};
    const auto v17 = count_cmp_lt(v14, v16);
    const auto v18 = count_logical_and(v15, v17);
    const auto v19 = count_logical_and(v12, v18);
    const auto v20 = count_binary_select(v6, v7, v19);
    const auto v21 = at.template axis<2>();
    const auto v22 = count_add(v21, v1);
    const auto v23 = count_div(v22, v3);
    const auto v24 = at.template axis<5>();
    const auto v25 = count_sub(v23, v24);
    const auto v26 = count_cmp_ge(v25, v8);
    const auto v27 = count_cmp_lt(v25, v10);
    const auto v28 = count_logical_and(v26, v27);
    const auto v29 = count_mul(v25, v3);
    const auto v30 = count_sub(v22, v29);
    const auto v31 = count_cmp_ge(v30, v8);
    const auto v32 = count_cmp_lt(v30, v16);
    const auto v33 = count_logical_and(v31, v32);
    const auto v34 = count_logical_and(v28, v33);
    const auto v35 = count_binary_select(v25, v7, v34);
    loaded.in0 = load_counted<N>(args.in0 + (at.template axis<0>().value() * args.in0_stride0 + at.template axis<3>().value()) + (Index(v20) * args.in0_index0_stride + Index(v35) * args.in0_index1_stride), count_logical_and(is_within(v20, args.in0_index0_extent), is_within(v35, args.in0_index1_extent)), f16{});
    loaded.in1 = load_counted<N>(args.in1 + (at.template axis<0>().value() * args.in1_stride0 + at.template axis<3>().value()) + (Index(v20) * args.in1_index0_stride + Index(v35) * args.in1_index1_stride), count_logical_and(is_within(v20, args.in1_index0_extent), is_within(v35, args.in1_index1_extent)), i8{});
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
  enum : bool { kSumsIgnoreOutside = true };
  template <int N>
  static __device__ __forceinline__ void outside(const Args& args,
                                                 Held<N>& held) {
    held.in0 = splat<N>(f16{});
    held.in1 = splat<N>(i8{});
  }
  template <int W>
  struct Row {
    Vec<float, W> v37;
    Vec<float, W> t0;
  };
  template <int W, class At>
  static __device__ __forceinline__ void begin(const Args& args,
                                               const At& at,
                                               Row<W>& row) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.v37[i] = narrow<float>(Index(0));
    }
  }
  struct Totals0 {
    reduction_add<float> t0;
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
    const auto v36 = widen(held.in0);
    const auto v38 = widen(held.in1);
    const auto v0 = at.template axis<1>();
    const auto v1 = Number<1>{0};
    const auto v2 = count_add(v0, v1);
    const auto v3 = Number<2>{0};
    const auto v4 = count_div(v2, v3);
    const auto v5 = at.template axis<4>();
    const auto v6 = count_sub(v4, v5);
    const auto v13 = count_mul(v6, v3);
    const auto v14 = count_sub(v2, v13);
    const auto v16 = Number<3>{0};
    const auto v21 = at.template axis<2>();
    const auto v22 = count_add(v21, v1);
    const auto v23 = count_div(v22, v3);
    const auto v24 = at.template axis<5>();
    const auto v25 = count_sub(v23, v24);
    const auto v29 = count_mul(v25, v3);
    const auto v30 = count_sub(v22, v29);
    const auto v39 = count_mul(v14, v16);
    const auto v40 = count_add(v39, v30);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const i32 v41 = v38[i] == i32(v40.value());
      const float v42 = narrow<float>(v41) != float(0) ? v36[i] : row.v37[i];
      if (i < count) totals[i].t0.add_where(v41 != 0, v36[i]);
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
      row.t0[i] = totals[i].t0.result();
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
    store_whole(args.out0 + (at.template axis<0>().value() * args.out0_stride0 + at.template axis<1>().value() * args.out0_stride1 + at.template axis<2>().value() * args.out0_stride2 + at.template axis<3>().value()), narrow<f16>(r0), W);
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
  FastDivisor extents[4];
  Y::Args y;
};

