#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  using ElementA = bf16;
  using ElementB = bf16;
  enum : int { tile_m = 128 };
  enum : int { tile_n = 128 };
  enum : int { stages = 5 };
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
  enum : bool { b_columns_adjacent = false };
  enum : bool { walks_a = false };
  enum : bool { walks_b = false };
  enum : int { result_axes = 0 };
  enum : int { grain_a = 0 };
  enum : int { grain_b = 0 };
  enum : int { loaders = 2 };
  enum : bool { prologue_a = false };
  enum : bool { prologue_b = true };
  using StoredA = bf16;
  using StoredB = i8;
  enum : int { ahead = 6 };
  enum : int { plane_rows = 1 };
  enum : bool { flat_planes = false };
  enum : int { store = 2 };
  using Out = float;
  enum : bool { has_second = false };
  using SecondOut = float;
  enum : int { staged = 0 };
  using Staged0 = float;
  using Staged1 = float;
  enum : int { boxes = 2 };
  enum : int { box_columns = 32 };
  enum : int { joined_rows = 1 };
  enum : int { unit = 1 };
  enum : int { reduced = 0 };
  enum : bool { unrolled = false };
  enum : bool { y_along_columns = true };
  enum : bool { clamped = false };
  enum : int { vector = 2 };
  enum : int { op = 0 };
  enum : int { spatial = 0 };
  enum : int { batch = 0 };
  enum : bool { channels_fastest = true };
  enum : bool { unit_stride = true };
  enum : int { channel_block = 0 };
};
#include "codegen/device/base/pointwise.cuh"

struct B {
  enum : int { kRank = 2 };
  using Fn = Short;
  struct Args {
    alignas(8) const float* in0;
    alignas(8) Index in0_stride1;
  };
  using Stored = bf16;
  using Value = Carrier<Stored>;
  enum : int { kVectorAxis = 0 };
  enum : unsigned { kWalked = 2 };  // axes that the value depends on, a bit each
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
      const float v2 = narrow<float>(v0) * v1;
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
  alignas(8) u32 turn;
  TensorMap a;
  TensorMap b[1];
  Problem problem;
  Schedule schedule;
  Operands operands;
  B::Args prologue_b;
  Sum* partials;
};
static_assert(FUSOR_PLACE(Params, b[0]) == 192, "");
static_assert(FUSOR_PLACE(Params, problem.m) == 320, "");
static_assert(FUSOR_PLACE(Params, problem.n) == 328, "");
static_assert(FUSOR_PLACE(Params, problem.k) == 336, "");
static_assert(FUSOR_PLACE(Params, problem.channels) == 344, "");
static_assert(FUSOR_PLACE(Params, problem.input_channels) == 368, "");
static_assert(FUSOR_PLACE(Params, problem.output_channels) == 376, "");
static_assert(FUSOR_PLACE(Params, problem.axis) == 384, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].input) == 384, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].output) == 408, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].window) == 432, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].stride) == 456, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].step) == 480, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].start) == 488, "");
static_assert(FUSOR_PLACE(Params, problem.batch) == 496, "");
static_assert(FUSOR_PLACE(Params, schedule.order) == 520, "");
static_assert(FUSOR_PLACE(Params, schedule.order.items) == 520, "");
static_assert(FUSOR_PLACE(Params, schedule.order.entries) == 528, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows) == 536, "");
static_assert(FUSOR_PLACE(Params, schedule.order.columns) == 544, "");
static_assert(FUSOR_PLACE(Params, schedule.order.band) == 552, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_part) == 560, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_entry) == 584, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_band) == 608, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_band) == 632, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_last_band) == 656, "");
static_assert(FUSOR_PLACE(Params, schedule.steps) == 680, "");
static_assert(FUSOR_PLACE(Params, schedule.steps_of_part) == 688, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a) == 696, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b) == 704, "");
static_assert(FUSOR_PLACE(Params, operands.channel_blocks) == 712, "");
static_assert(FUSOR_PLACE(Params, operands.first_channels) == 736, "");
static_assert(FUSOR_PLACE(Params, operands.second_channels) == 744, "");
static_assert(FUSOR_PLACE(Params, operands.walk) == 752, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].pixels) == 752, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].window) == 776, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].stride) == 800, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].lower) == 808, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].slope) == 816, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].origin) == 824, "");
static_assert(FUSOR_PLACE(Params, operands.part) == 832, "");

