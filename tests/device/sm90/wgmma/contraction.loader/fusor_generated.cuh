#define FUSOR_INDEX_BITS 32
#define FUSOR_TYPE 1
#define FUSOR_TILE_M 128
#define FUSOR_TILE_N 256
#define FUSOR_STAGES 4
#define FUSOR_CLUSTER 1
#define FUSOR_BLOCKS_PER_SM 1
#define FUSOR_PING_PONG 0
#define FUSOR_SWAPPED 0
#define FUSOR_CLASSES 0
#define FUSOR_A_ROWS_ADJACENT 0
#define FUSOR_B_COLUMNS_ADJACENT 1
#define FUSOR_WAY_OUT 2
#define FUSOR_OUT 2
#define FUSOR_BOX_COLUMNS 32
#define FUSOR_UNROLLED 0
#define FUSOR_Y_ALONG_COLUMNS 1
#define FUSOR_CLAMPED 0
#define FUSOR_VECTOR 1
#define FUSOR_GRAIN_A 2
#define FUSOR_GRAIN_B 2
#define FUSOR_OP 0
#define FUSOR_SPATIAL 0
#define FUSOR_BATCH 0
#define FUSOR_CHANNELS_FASTEST 1
#define FUSOR_UNIT_STRIDE 1
#include "codegen/device/base/elements.cuh"

struct Config {
  static constexpr int arch = 900;
  static constexpr int index_bits = 32;
  static constexpr int type = 1;
  static constexpr int tile_m = 128;
  static constexpr int tile_n = 256;
  static constexpr int stages = 4;
  static constexpr int cluster = 1;
  static constexpr int blocks_per_sm = 1;
  static constexpr int ping_pong = 0;
  static constexpr int swapped = 0;
  static constexpr int classes = 0;
  static constexpr int a_rows_adjacent = 0;
  static constexpr int b_columns_adjacent = 1;
  static constexpr int way_out = 2;
  static constexpr int out = 2;
  static constexpr int box_columns = 32;
  static constexpr int unrolled = 0;
  static constexpr int y_along_columns = 1;
  static constexpr int clamped = 0;
  static constexpr int vector = 1;
  static constexpr int grain_a = 2;
  static constexpr int grain_b = 2;
  static constexpr int op = 0;
  static constexpr int spatial = 0;
  static constexpr int batch = 0;
  static constexpr int channels_fastest = 1;
  static constexpr int unit_stride = 1;
};
#include "codegen/device/base/pointwise.cuh"

