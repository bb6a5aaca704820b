#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  using ElementA = bf16;
  using ElementB = bf16;
  static constexpr int tile_m = 128;
  static constexpr int tile_n = 256;
  static constexpr int stages = 4;
  static constexpr int cluster = 1;
  static constexpr int cluster_n = 1;
  static constexpr int gathered = 1;
  static constexpr bool rehearses = false;
  static constexpr int blocks_per_sm = 1;
  static constexpr bool ping_pong = false;
  static constexpr bool swapped = false;
  static constexpr int siblings = 1;
  static constexpr int classes = 0;
  static constexpr bool a_rows_adjacent = false;
  static constexpr bool b_columns_adjacent = true;
  static constexpr int grain_a = 2;
  static constexpr int grain_b = 2;
  static constexpr int loaders = 1;
  static constexpr bool prologue_a = false;
  static constexpr bool prologue_b = false;
  using StoredA = bf16;
  using StoredB = bf16;
  static constexpr int ahead = 1;
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
  static constexpr int unit = 1;
  static constexpr int reduced = 0;
  static constexpr bool unrolled = false;
  static constexpr bool y_along_columns = true;
  static constexpr bool clamped = false;
  static constexpr int vector = 1;
  static constexpr int op = 0;
  static constexpr int spatial = 0;
  static constexpr int batch = 0;
  static constexpr bool channels_fastest = true;
  static constexpr bool unit_stride = true;
  static constexpr int channel_block = 0;
};
#include "codegen/device/base/pointwise.cuh"

#include "codegen/device/sm90/load/threads.cuh"
#include "codegen/device/sm90/epilogue/scatter.cuh"
#include "codegen/device/sm90/epilogue/reduce.cuh"
FUSOR_WGMMA(256, bf16, bf16, "k16.f32.bf16.bf16", ", p, 1, 1, %1, %2", ", p, 1, 1, %2")
struct Params {
  Problem problem;
  Schedule schedule;
  Operands operands;
  ThreadOperand thread_a;
  ThreadOperand thread_b[1];
  Sum* partials;
};
static_assert(FUSOR_PLACE(Params, problem.m) == 0, "");
static_assert(FUSOR_PLACE(Params, problem.n) == 8, "");
static_assert(FUSOR_PLACE(Params, problem.k) == 16, "");
static_assert(FUSOR_PLACE(Params, problem.channels) == 24, "");
static_assert(FUSOR_PLACE(Params, problem.input_channels) == 48, "");
static_assert(FUSOR_PLACE(Params, problem.output_channels) == 56, "");
static_assert(FUSOR_PLACE(Params, problem.axis) == 64, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].input) == 64, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].output) == 88, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].window) == 112, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].stride) == 136, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].step) == 160, "");
static_assert(FUSOR_PLACE(Params, problem.axis[0].start) == 168, "");
static_assert(FUSOR_PLACE(Params, problem.batch) == 176, "");
static_assert(FUSOR_PLACE(Params, schedule.order) == 200, "");
static_assert(FUSOR_PLACE(Params, schedule.order.items) == 200, "");
static_assert(FUSOR_PLACE(Params, schedule.order.entries) == 208, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows) == 216, "");
static_assert(FUSOR_PLACE(Params, schedule.order.columns) == 224, "");
static_assert(FUSOR_PLACE(Params, schedule.order.band) == 232, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_part) == 240, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_entry) == 264, "");
static_assert(FUSOR_PLACE(Params, schedule.order.tiles_of_band) == 288, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_band) == 312, "");
static_assert(FUSOR_PLACE(Params, schedule.order.rows_of_last_band) == 336, "");
static_assert(FUSOR_PLACE(Params, schedule.steps) == 360, "");
static_assert(FUSOR_PLACE(Params, schedule.steps_of_part) == 368, "");
static_assert(FUSOR_PLACE(Params, operands.batched_a) == 376, "");
static_assert(FUSOR_PLACE(Params, operands.batched_b) == 384, "");
static_assert(FUSOR_PLACE(Params, operands.channel_blocks) == 392, "");
static_assert(FUSOR_PLACE(Params, operands.first_channels) == 416, "");
static_assert(FUSOR_PLACE(Params, operands.second_channels) == 424, "");
static_assert(FUSOR_PLACE(Params, operands.walk) == 432, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].pixels) == 432, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].window) == 456, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].stride) == 480, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].lower) == 488, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].slope) == 496, "");
static_assert(FUSOR_PLACE(Params, operands.walk[0].origin) == 504, "");
static_assert(FUSOR_PLACE(Params, thread_a.first) == 512, "");
static_assert(FUSOR_PLACE(Params, thread_a.line) == 520, "");
static_assert(FUSOR_PLACE(Params, thread_a.entry) == 528, "");
static_assert(FUSOR_PLACE(Params, thread_a.line_bytes) == 536, "");
static_assert(FUSOR_PLACE(Params, thread_a.lines) == 544, "");
static_assert(FUSOR_PLACE(Params, thread_a.bytes) == 552, "");
static_assert(FUSOR_PLACE(Params, thread_b[0].first) == 560, "");
static_assert(FUSOR_PLACE(Params, thread_b[0].line) == 568, "");
static_assert(FUSOR_PLACE(Params, thread_b[0].entry) == 576, "");
static_assert(FUSOR_PLACE(Params, thread_b[0].line_bytes) == 584, "");
static_assert(FUSOR_PLACE(Params, thread_b[0].lines) == 592, "");
static_assert(FUSOR_PLACE(Params, thread_b[0].bytes) == 600, "");

