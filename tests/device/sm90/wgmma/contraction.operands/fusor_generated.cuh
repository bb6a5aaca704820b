#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  using ElementA = bf16;
  using ElementB = bf16;
  enum : int { tile_m = 128 };
  enum : int { tile_n = 256 };
  enum : int { stages = 4 };
  enum : int { consumers = 2 };
  enum : int { cluster = 1 };
  enum : int { cluster_n = 1 };
  enum : bool { in_parts = false };
  enum : int { gathered = 1 };
  enum : int { given = 0 };
  enum : bool { rehearses = false };
  enum : int { blocks_per_sm = 1 };
  enum : bool { ping_pong = false };
  enum : bool { swapped = false };
  enum : int { siblings = 1 };
  enum : bool { experts = false };
  enum : int { classes = 0 };
  enum : bool { a_rows_adjacent = false };
  enum : bool { b_columns_adjacent = true };
  enum : bool { walks_a = false };
  enum : bool { walks_b = false };
  enum : int { result_axes = 0 };
  enum : int { grain_a = 0 };
  enum : int { grain_b = 0 };
  enum : int { loaders = 1 };
  enum : bool { prologue_a = false };
  enum : bool { prologue_b = false };
  using StoredA = bf16;
  using StoredB = bf16;
  enum : int { ahead = 1 };
  enum : int { plane_rows = 1 };
  enum : bool { flat_planes = false };
  enum : int { store = 1 };
  using Out = bf16;
  enum : bool { has_second = false };
  using SecondOut = bf16;
  enum : int { staged = 1 };
  using Staged0 = bf16;
  using Staged1 = bf16;
  enum : int { boxes = 2 };
  enum : int { box_columns = 64 };
  enum : int { joined_rows = 1 };
  enum : int { unit = 1 };
  enum : int { reduced = 1 };
  enum : bool { unrolled = false };
  enum : bool { y_along_columns = true };
  enum : bool { clamped = true };
  enum : int { vector = 2 };
  enum : int { op = 0 };
  enum : int { spatial = 0 };
  enum : int { batch = 0 };
  enum : bool { channels_fastest = true };
  enum : bool { unit_stride = true };
  enum : int { channel_block = 0 };
};
#include "codegen/device/base/reduction.cuh"

struct Y {
  enum : int { kRank = 2 };
  using Fn = Short;
  struct Args {
    alignas(8) float* out0;
  };
  struct Accumulator {
    reduction_add<float> r0;
    __device__ __forceinline__ void init() {
      r0.init();
    }
    __device__ __forceinline__ void combine(const Accumulator& other) {
      r0.combine(other.r0);
    }
  };
  using Stored = bf16;
  using Value = Carrier<Stored>;
  enum : int { kVectorAxis = 1 };
  enum : unsigned { kWalked = 2 };  // axes that the value depends on, a bit each
  struct Loads {};  // what all lanes share
  static __device__ __forceinline__ Loads loads(const Args& args, const Index (&at)[kRank], int count) {
    return {};
  }
  template <int N, bool kSpread = false, class Anchor0, class Anchor1>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count,
                                                        const Loads& loads,
                                                        const Vec<Anchor0, N>& anchor0,
                                                        const Vec<Anchor1, N>& anchor1,
                                                        Accumulator* accumulators, int added) {
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = narrow<float>(anchor0[i]);
      const float v1 = narrow<float>(anchor1[i]);
      const float v2 = round_to<bf16>(v0 * Fn::multiply_add(Fn::clip(v1, float(64)), Fn::normal_pdf(v1), Fn::normal_cdf(v1)));
      if (i < added) accumulators[kSpread ? i : 0].r0.add(v2);
      value[i] = i < count ? v2 : Value(0);
    }
    return value;
  }
  static __device__ __forceinline__ void finish(const Args& args, const Index (&at)[kRank], const Accumulator& total) {
    store(args.out0 + at[1], narrow<float>(total.r0.result()));
  }
};

#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/epilogue/scatter.cuh"
#include "codegen/device/sm90/epilogue/reduce.cuh"
FUSOR_WGMMA(256, bf16, bf16, "k16.f32.bf16.bf16", ", p, 1, 1, %1, %2", ", p, 1, 1, %2")
struct Params {
  alignas(8) u32 turn;
  TensorMap a;
  TensorMap b[1];
  TensorMap result;
  TensorMap staged[1];
  Problem problem;
  Schedule schedule;
  Operands operands;
  Y::Args y;
  Partials reduced;
};
static_assert(FUSOR_PLACE(Params, b[0]) == 192, "");
static_assert(FUSOR_PLACE(Params, staged[0]) == 448, "");
static_assert(FUSOR_PLACE(Params, problem.m) == 576, "");
static_assert(FUSOR_PLACE(Params, problem.n) == 584, "");
static_assert(FUSOR_PLACE(Params, problem.k) == 592, "");
static_assert(FUSOR_PLACE(Params, problem.channels) == 600, "");
static_assert(FUSOR_PLACE(Params, problem.input_channels) == 624, "");
static_assert(FUSOR_PLACE(Params, problem.output_channels) == 632, "");
static_assert(FUSOR_PLACE(Params, problem.axis) == 640, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].input) == 640, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].output) == 664, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].window) == 688, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].stride) == 712, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].step) == 736, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].start) == 744, "");
static_assert(FUSOR_PLACE(Params, problem.batch) == 752, "");
static_assert(FUSOR_PLACE(Params, schedule.order) == 776, "");
static_assert(FUSOR_PLACE(Params, schedule.order.items) == 776, "");
static_assert(FUSOR_PLACE(Params, schedule.order.entries) == 784, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows) == 792, "");
static_assert(FUSOR_PLACE(Params, schedule.order.columns) == 800, "");
static_assert(FUSOR_PLACE(Params, schedule.order.band) == 808, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_part) == 816, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_entry) == 840, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_band) == 864, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_band) == 888, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_last_band) == 912, "");
static_assert(FUSOR_PLACE(Params, schedule.steps) == 936, "");
static_assert(FUSOR_PLACE(Params, schedule.steps_of_part) == 944, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a) == 952, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b) == 960, "");
static_assert(FUSOR_PLACE(Params, operands.channel_blocks) == 968, "");
static_assert(FUSOR_PLACE(Params, operands.first_channels) == 992, "");
static_assert(FUSOR_PLACE(Params, operands.second_channels) == 1000, "");
static_assert(FUSOR_PLACE(Params, operands.walk) == 1008, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].pixels) == 1008, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].window) == 1032, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].stride) == 1056, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].lower) == 1064, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].slope) == 1072, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].origin) == 1080, "");
static_assert(FUSOR_PLACE(Params, operands.part) == 1088, "");
static_assert(FUSOR_PLACE(Params, reduced.first) == 1104, "");
static_assert(FUSOR_PLACE(Params, reduced.results) == 1112, "");
static_assert(FUSOR_PLACE(Params, reduced.entry_parts) == 1120, "");
static_assert(FUSOR_PLACE(Params, reduced.entry_results) == 1128, "");

