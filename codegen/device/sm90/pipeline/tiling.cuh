// Owns the tiles of the tensor-core contraction of sm_90a, their schedule, and the ring of stages in shared
// memory. Rows and columns are those of the product that the tensor cores compute: the engine may have
// exchanged m and n.
#pragma once

#include "codegen/device/contraction/product.cuh"
#include "codegen/device/contraction/residue_classes.cuh"
#include "codegen/device/sm90/pipeline/tile_order.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"
#include "codegen/device/sm90/ptx/wgmma.cuh"

static constexpr int kOp = FUSOR_OP, kSpatial = FUSOR_SPATIAL, kBatch = FUSOR_BATCH;
static constexpr bool kSwapped = FUSOR_SWAPPED;
// Classes of a strided dgrad; 0 where the op is one product.
static constexpr int kClasses = FUSOR_CLASSES;
// Products of one left operand with so many right ones (a gated pair): each has its share of a tile's
// columns.
#ifdef FUSOR_SIBLINGS
static constexpr int kSiblings = FUSOR_SIBLINGS;
#else
static constexpr int kSiblings = 1;
#endif
static constexpr int kTileM = FUSOR_TILE_M, kTileN = FUSOR_TILE_N, kStages = FUSOR_STAGES;
static constexpr int kColumns = kTileN / kSiblings;  // of the result, in a tile
// Operands that threads load because TMA cannot (sm90/load/threads.cuh): their start and all distances in
// them are multiples of this many bytes. 0 for operands that TMA loads.
#ifdef FUSOR_GRAIN_A
static constexpr int kGrainA = FUSOR_GRAIN_A;
#else
static constexpr int kGrainA = 0;
#endif
#ifdef FUSOR_GRAIN_B
static constexpr int kGrainB = FUSOR_GRAIN_B;
#else
static constexpr int kGrainB = 0;
#endif
// Producer warpgroups: two may share the prologue of an operand (sm90/load/prologue.cuh).
#ifdef FUSOR_LOADERS
static constexpr int kLoaders = FUSOR_LOADERS;
static constexpr bool kThreadsLoad = true;
#else
static constexpr int kLoaders = 1;
static constexpr bool kThreadsLoad = kGrainA > 0 || kGrainB > 0;
#endif
// Blocks of a cluster stand one below the other and share the columns' operand.
static constexpr int kCluster = FUSOR_CLUSTER;
static constexpr int kWarpgroup = 128, kConsumers = 2;
// The warpgroups of a block: those that load, then the consumers.
static constexpr int kLoading = kLoaders * kWarpgroup;
// Ping-pong: each consumer has a tile of its own and finishes it while the other multiplies. Otherwise both
// work on the rows of one tile.
static constexpr bool kPingPong = FUSOR_PING_PONG;
static constexpr int kReaders = kPingPong ? 1 : kConsumers;  // of a stage
// A consumer's rows, in parts of 64: the height of one wgmma.
static constexpr int kParts = kTileM / 64 / kReaders;
static constexpr int kSums = kTileN / 2;  // of a thread, in one part, of all siblings
// A line of the swizzled tiles, and its elements: the steps of k in a tile.
static constexpr int kLineBytes = 128, kLine = kLineBytes / kElementBytes, kTileK = kLine;
// wgrad of planes with windows: columns are blocks of channels, one tap each (sm90/load/planes.cuh). A step
// may be several rows of outputs, which share the rows of inputs.
#ifdef FUSOR_CHANNEL_BLOCK
static constexpr bool kWindowPlanes = true;
static constexpr int kChannelBlock = FUSOR_CHANNEL_BLOCK, kRows = FUSOR_PLANE_ROWS;
#else
static constexpr bool kWindowPlanes = false;
static constexpr int kChannelBlock = 1, kRows = 1;
#endif
static constexpr int kLinesB = kTileN + (kRows - 1) * kChannelBlock;  // of all rows
static constexpr int kTileBytesA = kRows * kTileM * kLineBytes, kTileBytesB = kLinesB * kLineBytes;
static constexpr bool kRowsAdjacentA = FUSOR_A_ROWS_ADJACENT, kColumnsAdjacentB = FUSOR_B_COLUMNS_ADJACENT;
// wgmma transposes 16 bits only. TF32 that lies across k reaches the tensor cores from registers, if it is a.
static constexpr bool kFromRegisters = kRowsAdjacentA && FUSOR_TYPE == 2;
static_assert(kElementBytes == 2 || !((kRowsAdjacentA && !kFromRegisters) || kColumnsAdjacentB));

using Problem =
    Contraction<kOp, kSpatial, kBatch, true, FUSOR_UNIT_STRIDE, Index, i64, FastDivisor, kWindowPlanes>;
using Key = Problem::Key;
#if FUSOR_CLASSES > 0
using Classes = ResidueClasses<kSpatial, kClasses, Index, i64, FastDivisor>;
#endif

// A tile of the result, or one part of its steps.
struct Tile {
  int part;                // or class
  int entry, row, column;  // of this block's first element
  int begin, end;          // steps
};

// All tiles, those of a cluster as one, and the steps of each.
struct Schedule {
  TileOrder<Index, i64, FastDivisor> order;
  i64 steps, steps_of_part;
#if FUSOR_CLASSES > 0
  Classes classes;  // counted as parts are
#endif

#if FUSOR_CLASSES > 0
  __device__ i64 rows(const Problem&) const { return classes.rows; }
  template <bool kClamped>
  __device__ Key row(const Problem& problem, const Tile& tile, Index index) const {
    return classes.row<kClamped>(problem, tile.part, index);
  }
#else
  __device__ i64 rows(const Problem& problem) const { return problem.m; }
  template <bool kClamped>
  __device__ Key row(const Problem& problem, const Tile&, Index index) const {
    return problem.row(index);
  }
#endif

  __device__ int outer(const Tile& tile) const { return kOp == kMatmul ? tile.entry : 0; }
  __device__ int first_line(const Problem&, const Tile&) const { return 0; }

  __device__ int items() const { return static_cast<int>(order.items); }
  __device__ Tile tile(int item) const {
    const TilePlace place = order.place(item);
    int row = place.row * kTileM * kCluster;
    if constexpr (kCluster > 1) row += static_cast<int>(cluster_rank()) * kTileM;
    const int column = place.column * kColumns, part = place.part;
#if FUSOR_CLASSES > 0
    return {part, place.entry, row, column, 0, static_cast<int>(classes.classes[part].steps)};
#else
    const int all = static_cast<int>(steps), of_part = static_cast<int>(steps_of_part);
    const int begin = part * of_part, end = begin + of_part;
    return {part, place.entry, row, column, begin, end < all ? end : all};
#endif
  }
};

// Clusters are numbered over the grid; each starts at its number and steps by their count.
FUSOR_DEVICE int first_item() { return static_cast<int>(blockIdx.x) / kCluster; }
FUSOR_DEVICE int item_step() { return static_cast<int>(gridDim.x) / kCluster; }

// A stage of a ring, and the parity of its barriers.
template <int kLength>
struct RingOf {
  int stage = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++stage == kLength) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ void skip(int steps) {
    stage += steps;
    parity ^= stage / kLength & 1;
    stage %= kLength;
  }
};
using Ring = RingOf<kStages>;

// Ping-pong: which of the two consumers may run its mainloop.
struct Turns {
  Barrier turn[kConsumers];

  __device__ void init() {
    for (Barrier& barrier : turn) barrier.init(kWarpgroup / 32);
  }
  // The first consumer's first mainloop waits for nobody.
  __device__ void wait(int consumer, u32 round) { turn[consumer].wait(round & 1 ^ (consumer == 0)); }
  __device__ void pass(int consumer) {
    if (threadIdx.x % 32 == 0) turn[consumer ^ 1].arrive();
  }
};

// Boxes of a consumer, filled one after another. More than two where staged operands are loaded far ahead, or
// where tiles of few steps finish faster than TMA reads two boxes.
#ifdef FUSOR_TURNS
static constexpr int kTurns = FUSOR_TURNS;
#else
static constexpr int kTurns = 2;
#endif
static_assert(kTurns >= 2, "one is filled while another leaves");

// Barriers of the boxes of one consumer: staged operands are loaded; results are complete.
struct BoxBarriers {
  Barrier given[kTurns], done[kTurns];

  __device__ void init() {
    for (int box = 0; box < kTurns; ++box) {
      given[box].init(1);
      done[box].init(kWarpgroup / 32);
    }
  }
  // Called by every warp that has filled its share.
  __device__ void hand_over(int box) {
    fence_shared_writes();
    __syncwarp();
    if (threadIdx.x % 32 == 0) done[box].arrive();
  }
};

// Stages: operand tiles in lines of 128 bytes, with the 128-byte swizzle, and all barriers.
//   full[s]    producer --> consumers: arrivals of loading threads, and bytes of TMA
//   empty[s]   consumers --> producer: a warp has read the stage (in a cluster: at every block)
struct Stages {
  alignas(1024) u8 a[kStages][kTileBytesA];
  alignas(1024) u8 b[kStages][kTileBytesB];
  Barrier full[kStages], empty[kStages];
  Turns turns;
#ifdef FUSOR_GIVEN
  BoxBarriers boxes[kConsumers];
#endif

  __device__ void init() {
    turns.init();
#ifdef FUSOR_GIVEN
    for (BoxBarriers& barriers : boxes) barriers.init();
#endif
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(kThreadsLoad ? kLoading : 1);
      empty[stage].init(kReaders * kWarpgroup / 32 * kCluster);
    }
  }
  // Called by every warp that has read the stage; arrives at all blocks of the cluster: each fills tiles of
  // the others.
  __device__ void release(int stage) {
    const u32 lane = threadIdx.x % 32;
    if constexpr (kCluster == 1) {
      if (lane == 0) empty[stage].arrive();
    } else {
      if (lane < kCluster) empty[stage].arrive_at(lane);
    }
  }
};

// Descriptor of a tile's part, and how far it moves for the next 32 bytes of k (in units of 16 bytes).
template <bool kAcrossAdjacent>
struct Part {
  static constexpr int kStep = (kAcrossAdjacent ? 16 * kLineBytes : 32) >> 4;
  FUSOR_DEVICE u64 descriptor(const u8* part) {
    return wgmma_descriptor(shared_address(part), kAcrossAdjacent ? kTileK * kLineBytes : 16, 1024);
  }
};

// The row of a part of which a thread has sums; `half`: of its two, which are 8 apart. Those from registers
// are neighbours, which are loaded as one, and chosen so that no lanes of a half-warp meet in a bank.
FUSOR_DEVICE int row_in_part(int warp, int lane, int half) {
  const int group = lane / 4;
  if constexpr (kFromRegisters)
    return warp / 2 * 32 + group / 2 % 2 * 16 + warp % 2 * 8 + group / 4 * 4 + group % 2 * 2 + half;
  else
    return warp * 16 + group + 8 * half;
}
