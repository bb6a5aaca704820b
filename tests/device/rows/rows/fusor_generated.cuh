#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
  enum : int { threads = 128 };
  enum : int { group = 128 };
  enum : int { cluster = 1 };
  enum : int { held = 0 };
  enum : int { batch = 1 };
  enum : int { units = 2 };
  enum : int { unroll = 2 };
  enum : bool { spread = false };
  enum : bool { whole = true };
  enum : bool { row_tails = false };
  enum : bool { repacks = false };
  enum : bool { split = false };
  enum : bool { persistent = false };
  enum : bool { columns = false };
  enum : int { blocks = 1 };
};
#include "codegen/device/base/reduction.cuh"

struct Y {
  enum : int { kRank = 2 };
  enum : int { kKept = 1 };  // axes of the rows; those of a row follow
  enum : int { kPhases = 2 };
  enum : int { kTotalsBytes = 4 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
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
    loaded.in0 = load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1]));
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
  enum : int { kStreams = 1 };
  enum : int { kStreamedBytes = 2 };  // of an element, all streams
  static __device__ __forceinline__ const void* stream(const Args& args,
                                                       const Index (&at)[kRank],
                                                       int number) {
    return args.in0 + at[0] * args.in0_stride0;
  }
  static __device__ __forceinline__ constexpr int stream_bytes(int number) {
    return 2;
  }
  template <int N>
  static __device__ __forceinline__ Held<N> held_in(const char* streams,
                                                    int elements,
                                                    int vector) {
    Held<N> loaded;
    loaded.in0 = *reinterpret_cast<const Vec<bf16, N>*>(streams + elements * 0 + vector * (N * 2));
    return loaded;
  }
  enum : int { kCopiedBytes = 2 };  // of an element
  template <int N>
  static __device__ __forceinline__ void copy(const Args& args,
                                              const Index (&at)[kRank],
                                              char* to,
                                              int apart) {
    copy_ahead<N>(to + (N * 0 / 16) * apart, apart, args.in0 + (at[0] * args.in0_stride0 + at[1]));
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
  };
  template <int W>
  static __device__ __forceinline__ void begin(const Args& args,
                                               const Index (&at)[kRank],
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
#pragma unroll
    for (int i = 0; i < N; ++i) {
      totals[0].t0.add(v0[i]);
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
      row.t0[i] = totals[i].t0.result();
    }
  }
  struct Totals1 {
    reduction_add<float> t1;
    __device__ __forceinline__ void init() {
      t1.init();
    }
    __device__ __forceinline__ void combine(const Totals1& other) {
      t1.combine(other.t1);
    }
  };
  static __device__ Totals1 totals(Phase<1>);
  template <int N, int W>
  static __device__ __forceinline__ void add(Phase<1>,
                                             const Args& args,
                                             const Index (&at)[kRank],
                                             int count,
                                             const Held<N>& held,
                                             const Fixed<N>& fixed,
                                             const Row<W>& row,
                                             Totals1 (&totals)[W]) {
    const auto v0 = widen(held.in0);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v1 = v0[i] - row.t0[0];
      const float v2 = Fn::exp(v1);
      totals[0].t1.add(v2);
    }
  }
  template <int W>
  static __device__ __forceinline__ void settle(Phase<1>,
                                                const Args& args,
                                                const Index (&at)[kRank],
                                                const Totals1 (&totals)[W],
                                                Row<W>& row) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      row.t1[i] = totals[i].t1.result();
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
    Vec<ShortDivisor, W> by_t1;
#pragma unroll
    for (int i = 0; i < W; ++i) by_t1[i] = ShortDivisor(row.t1[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v1 = v0[i] - row.t0[0];
      const float v2 = Fn::exp(v1);
      const float v3 = by_t1[0](v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1]), narrow<bf16>(r0));
  }
  template <int W>
  static __device__ __forceinline__ void finish_row(const Args& args,
                                                    const Index (&at)[kRank],
                                                    const Row<W>& row) {
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
  alignas(8) Index row_step;
  alignas(8) Index vectors;
  alignas(8) Index units;
  alignas(8) Index row_extent;
  FastDivisor extents[2];
  Y::Args y;
};

