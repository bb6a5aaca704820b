#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  using ElementA = bf16;
  using ElementB = bf16;
  static constexpr int tile_m = 128;
  static constexpr int tile_n = 128;
  static constexpr int stages = 5;
  static constexpr int consumers = 2;
  static constexpr int cluster = 1;
  static constexpr int cluster_n = 1;
  static constexpr bool in_parts = false;
  static constexpr int gathered = 1;
  static constexpr bool rehearses = false;
  static constexpr int blocks_per_sm = 1;
  static constexpr bool ping_pong = false;
  static constexpr bool swapped = false;
  static constexpr int siblings = 1;
  static constexpr int classes = 0;
  static constexpr bool a_rows_adjacent = false;
  static constexpr bool b_columns_adjacent = false;
  static constexpr int grain_a = 0;
  static constexpr int grain_b = 0;
  static constexpr int loaders = 2;
  static constexpr bool prologue_a = false;
  static constexpr bool prologue_b = true;
  using StoredA = bf16;
  using StoredB = i8;
  static constexpr int ahead = 6;
  static constexpr int plane_rows = 1;
  static constexpr bool flat_planes = false;
  static constexpr int store = 2;
  using Out = float;
  static constexpr bool has_second = false;
  using SecondOut = float;
  static constexpr int staged = 0;
  using Staged0 = float;
  using Staged1 = float;
  static constexpr int boxes = 2;
  static constexpr int box_columns = 32;
  static constexpr int joined_rows = 1;
  static constexpr int unit = 1;
  static constexpr int reduced = 0;
  static constexpr bool unrolled = false;
  static constexpr bool y_along_columns = true;
  static constexpr bool clamped = false;
  static constexpr int vector = 2;
  static constexpr int op = 0;
  static constexpr int spatial = 0;
  static constexpr int batch = 0;
  static constexpr bool channels_fastest = true;
  static constexpr bool unit_stride = true;
  static constexpr int channel_block = 0;
};
#include "codegen/device/base/pointwise.cuh"

struct B {
  static constexpr int kRank = 2;
  using Fn = Short;
  struct Args {
    alignas(8) const float* in0;
    alignas(8) Index in0_stride1;
  };
  using Stored = bf16;
  using Value = Carrier<Stored>;
  static constexpr int kVectorAxis = 0;
  static constexpr unsigned kWalked = 2;  // axes that the value depends on, a bit each
  struct Loads { float v1; };  // what all lanes share
  static __device__ __forceinline__ Loads loads(const Args& args, const Index (&at)[kRank], int count) {
    return {widen(load_broadcast(args.in0 + at[1] * args.in0_stride1, count))};
  }
  template <int N, class Anchor0>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count,
                                                        const Loads& loads,
                                                        const Vec<Anchor0, N>& anchor0) {
    const float v1 = loads.v1;
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const i32 v0 = narrow<i32>(anchor0[i]);
      const float v2 = op_mul<Fn>(narrow<float>(v0), v1);
      value[i] = i < count ? v2 : Value(0);
    }
    return value;
  }
};

#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/epilogue/scatter.cuh"
#include "codegen/device/sm90/epilogue/reduce.cuh"
FUSOR_WGMMA(128, bf16, bf16, "k16.f32.bf16.bf16", ", p, 1, 1, %1, %2", ", p, 1, 1, %2")
struct Params {
  TensorMap a;
  TensorMap b[1];
  Problem problem;
  Schedule schedule;
  Operands operands;
  B::Args prologue_b;
  Sum* partials;
};
static_assert(FUSOR_PLACE(Params, b[0]) == 128, "");
static_assert(FUSOR_PLACE(Params, problem.m) == 256, "");
static_assert(FUSOR_PLACE(Params, problem.n) == 264, "");
static_assert(FUSOR_PLACE(Params, problem.k) == 272, "");
static_assert(FUSOR_PLACE(Params, problem.channels) == 280, "");
static_assert(FUSOR_PLACE(Params, problem.input_channels) == 304, "");
static_assert(FUSOR_PLACE(Params, problem.output_channels) == 312, "");
static_assert(FUSOR_PLACE(Params, problem.axis) == 320, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].input) == 320, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].output) == 344, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].window) == 368, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].stride) == 392, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].step) == 416, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].start) == 424, "");
static_assert(FUSOR_PLACE(Params, problem.batch) == 432, "");
static_assert(FUSOR_PLACE(Params, schedule.order) == 456, "");
static_assert(FUSOR_PLACE(Params, schedule.order.items) == 456, "");
static_assert(FUSOR_PLACE(Params, schedule.order.entries) == 464, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows) == 472, "");
static_assert(FUSOR_PLACE(Params, schedule.order.columns) == 480, "");
static_assert(FUSOR_PLACE(Params, schedule.order.band) == 488, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_part) == 496, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_entry) == 520, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_band) == 544, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_band) == 568, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_last_band) == 592, "");
static_assert(FUSOR_PLACE(Params, schedule.steps) == 616, "");
static_assert(FUSOR_PLACE(Params, schedule.steps_of_part) == 624, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a) == 632, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b) == 640, "");
static_assert(FUSOR_PLACE(Params, operands.channel_blocks) == 648, "");
static_assert(FUSOR_PLACE(Params, operands.first_channels) == 672, "");
static_assert(FUSOR_PLACE(Params, operands.second_channels) == 680, "");
static_assert(FUSOR_PLACE(Params, operands.walk) == 688, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].pixels) == 688, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].window) == 712, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].stride) == 736, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].lower) == 744, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].slope) == 752, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].origin) == 760, "");
static_assert(FUSOR_PLACE(Params, operands.part) == 768, "");

