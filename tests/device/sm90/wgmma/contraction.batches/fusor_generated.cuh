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
  enum : bool { walks_a = true };
  enum : bool { walks_b = true };
  enum : int { result_axes = 2 };
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
  enum : int { reduced = 0 };
  enum : bool { unrolled = true };
  enum : bool { y_along_columns = true };
  enum : bool { clamped = true };
  enum : int { vector = 2 };
  enum : int { op = 0 };
  enum : int { spatial = 0 };
  enum : int { batch = 2 };
  enum : bool { channels_fastest = true };
  enum : bool { unit_stride = true };
  enum : int { channel_block = 0 };
};
#include "codegen/device/base/pointwise.cuh"

struct Y {
  enum : int { kRank = 4 };
  using Fn = Short;
  struct Args {
  };
  using Stored = bf16;
  using Value = Carrier<Stored>;
  enum : int { kVectorAxis = 3 };
  enum : unsigned { kWalked = 0 };  // axes that the value depends on, a bit each
  struct Loads {};  // what all lanes share
  static __device__ __forceinline__ Loads loads(const Args& args, const Index (&at)[kRank], int count) {
    return {};
  }
  template <int N, class Anchor0, class Anchor1>
  static __device__ __forceinline__ Vec<Value, N> apply(const Args& args, const Index (&at)[kRank], int count,
                                                        const Loads& loads,
                                                        const Vec<Anchor0, N>& anchor0,
                                                        const Vec<Anchor1, N>& anchor1) {
    Vec<Value, N> value;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v0 = narrow<float>(anchor0[i]);
      const float v1 = narrow<float>(anchor1[i]);
      const float v2 = v0 + v1;
      value[i] = i < count ? v2 : Value(0);
    }
    return value;
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
  alignas(8) Y::Args y;
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
static_assert(FUSOR_PLACE(Params, schedule.order) == 800, "");
static_assert(FUSOR_PLACE(Params, schedule.order.items) == 800, "");
static_assert(FUSOR_PLACE(Params, schedule.order.entries) == 808, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows) == 816, "");
static_assert(FUSOR_PLACE(Params, schedule.order.columns) == 824, "");
static_assert(FUSOR_PLACE(Params, schedule.order.band) == 832, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_part) == 840, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_entry) == 864, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_band) == 888, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_band) == 912, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_last_band) == 936, "");
static_assert(FUSOR_PLACE(Params, schedule.steps) == 960, "");
static_assert(FUSOR_PLACE(Params, schedule.steps_of_part) == 968, "");
static_assert(FUSOR_PLACE(Params, schedule.entries) == 976, "");
static_assert(FUSOR_PLACE(Params, schedule.entries.extent) == 976, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a) == 1024, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a.shared) == 1024, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a.extent) == 1096, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b) == 1168, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b.shared) == 1168, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b.extent) == 1240, "");
static_assert(FUSOR_PLACE(Params, operands.channel_blocks) == 1312, "");
static_assert(FUSOR_PLACE(Params, operands.first_channels) == 1336, "");
static_assert(FUSOR_PLACE(Params, operands.second_channels) == 1344, "");
static_assert(FUSOR_PLACE(Params, operands.walk) == 1352, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].pixels) == 1352, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].window) == 1376, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].stride) == 1400, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].lower) == 1408, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].slope) == 1416, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].origin) == 1424, "");
static_assert(FUSOR_PLACE(Params, operands.part) == 1432, "");

