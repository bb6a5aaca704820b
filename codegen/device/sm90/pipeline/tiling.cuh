// Owns the tiles of the tensor-core contraction of sm_90a, their schedule, and the ring of stages in shared
// memory. Rows and columns are those of the product that the tensor cores compute: the engine may have
// exchanged m and n.
#pragma once

#include "codegen/device/contraction/product.cuh"
#include "codegen/device/contraction/residue_classes.cuh"
#include "codegen/device/sm90/pipeline/map_entry.cuh"
#include "codegen/device/sm90/pipeline/roles.cuh"
#include "codegen/device/sm90/pipeline/tile_order.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"
#include "codegen/device/sm90/ptx/wgmma.cuh"
#include "codegen/device/sm90/wgmma/experts.cuh"

using ElementA = Config::ElementA;
using ElementB = Config::ElementB;
using Sum = WgmmaElement<ElementA>::Sum;
enum : int { kElementBytes = sizeof(ElementA) };
enum : bool { kTf32 = kElementBytes == 4 };
// fp32 numbers lie as three parts along k: a step has one part of both operands' numbers, three steps all of
// the same 64 numbers.
enum : bool { kInParts = Config::in_parts };
enum : int { kPartsOfNumber = 3 };
// The tensor cores' sums are short, and are added up in fp32.
enum : bool { kShortSums = kInParts || WgmmaElement<ElementA>::kShort };

enum : int { kOp = Config::op, kSpatial = Config::spatial, kBatch = Config::batch };
enum : bool { kSwapped = Config::swapped };
// Classes of a strided dgrad; 0 where the op is one product.
enum : int { kClasses = Config::classes };
// Rows belong to experts, each with a right operand of its own; see sm90/wgmma/experts.cuh.
enum : bool { kExperts = Config::experts };
// Products of one left operand with so many right ones (a gated pair): each has its share of a tile's
// columns.
enum : int {
  kSiblings = Config::siblings,
  kTileM = Config::tile_m,
  kTileN = Config::tile_n,
  kStages = Config::stages,
  kColumns = kTileN / kSiblings,  // of the result, in a tile
};
// Operands that threads load because TMA cannot (sm90/load/threads.cuh): their start and all distances in
// them are multiples of this many bytes. 0 for operands that TMA loads.
enum : int { kGrainA = Config::grain_a, kGrainB = Config::grain_b };
// Operands with a prologue, which loading threads apply (sm90/load/prologue.cuh).
enum : bool {
  kPrologueA = Config::prologue_a,
  kPrologueB = Config::prologue_b,
  kPrologue = kPrologueA || kPrologueB,
};
// Producer warpgroups: two may share a prologue.
enum : int { kLoaders = Config::loaders };
enum : bool { kThreadsLoad = kPrologue || kGrainA > 0 || kGrainB > 0 };
// Blocks of a cluster lie kClusterM below each other and kClusterN side by side: those of one column share
// the columns' operand, those of one row the rows'.
enum : int { kClusterM = Config::cluster, kClusterN = Config::cluster_n };
enum : bool { kShares = kClusterM * kClusterN > 1 };
// Blocks of a cluster that have a part of the steps of one tile each, and add up their sums
// (sm90/epilogue/gathered.cuh). One tile a block then, and no operand is shared.
enum : int { kGathered = Config::gathered };
static_assert(kGathered == 1 || !kShares);
enum : int {
  kClusterBlocks = kClusterM * kClusterN * kGathered,
  kConsumers = Config::consumers,
};
// The warpgroups of a block: those that load, then the consumers.
enum : int { kLoading = kLoaders * kWarpgroup };
// Ping-pong: each consumer has a tile of its own and finishes it while the other multiplies. Otherwise both
// work on the rows of one tile.
enum : bool { kPingPong = Config::ping_pong };
enum : int { kReaders = kPingPong ? 1 : kConsumers };  // of a stage
// A consumer's rows, in parts of 64: the height of one wgmma.
enum : int {
  kParts = kTileM / 64 / kReaders,
  kSums = kTileN / 2,  // of a thread, in one part, of all siblings
};
// A line of the swizzled tiles, and its elements: the steps of k in a tile.
enum : int { kLineBytes = 128, kLine = kLineBytes / kElementBytes, kTileK = kLine };
// wgrad of planes with windows: columns are blocks of channels, one tap each (sm90/load/planes.cuh). A step
// may be several rows of outputs, which share the rows of inputs.
enum : bool { kWindowPlanes = Config::channel_block > 0 };
enum : int { kChannelBlock = kWindowPlanes ? Config::channel_block : 1, kRows = Config::plane_rows };
// Columns that are neighbours come in boxes of 64, the last of which may have more than the tile.
enum : bool { kRowsAdjacentA = Config::a_rows_adjacent, kColumnsAdjacentB = Config::b_columns_adjacent };
enum : int {
  kBoxedN = kColumnsAdjacentB ? (kTileN + 63) / 64 * 64 : kTileN,
  kLinesB = kBoxedN + (kRows - 1) * kChannelBlock,  // of all rows
  kTileBytesA = kRows * kTileM * kLineBytes,
  kTileBytesB = kLinesB * kLineBytes,
};
// wgmma transposes 16 bits only. TF32 that lies across k reaches the tensor cores from registers, if it is a.
enum : bool { kFromRegisters = kRowsAdjacentA && kTf32 };
static_assert(kElementBytes == 2 || !((kRowsAdjacentA && !kFromRegisters) || kColumnsAdjacentB));

using Problem = Contraction<kOp, kSpatial, kBatch, true, Config::unit_stride, Index, i64, FastDivisor,
                            Config::channel_block>;
using Key = Problem::Key;

// A tile of the result, or one part of its steps.
struct Tile {
  int part;                  // or class
  int entry, row, column;    // of this block's first element
  int begin, end;            // steps
  int expert = 0, last = 0;  // where rows belong to experts: whose they are, and behind the last of them
};

// This block's place in its cluster.
FUSOR_DEVICE int cluster_row() { return kClusterM > 1 ? static_cast<int>(cluster_rank()) % kClusterM : 0; }
FUSOR_DEVICE int cluster_column() { return kClusterN > 1 ? static_cast<int>(cluster_rank()) / kClusterM : 0; }

// Blocks that share an operand fetch a share each, for all of them: how many they are, which this one is, and
// a bit for each in the cluster.
template <bool kRowsOperand>
struct Sharing {
  enum : int { kBlocks = kRowsOperand ? kClusterN : kClusterM };
  FUSOR_DEVICE int rank() { return kRowsOperand ? cluster_column() : cluster_row(); }
  FUSOR_DEVICE u16 blocks() {
    u32 bits = 0;
    for (int i = 0; i < kBlocks; ++i) bits |= 1u << (kRowsOperand ? i * kClusterM : i);
    return static_cast<u16>(bits << (kRowsOperand ? cluster_row() : cluster_column() * kClusterM));
  }
};

// All tiles, those of a cluster as one, and the steps of each. Rows are those of the product, or of a class,
// which is counted as parts are.
template <int kClasses>
struct TileSchedule {
  TileOrder<Index, i64, FastDivisor> order;
  i64 steps, steps_of_part;
  ResidueClasses<kSpatial, kClasses, Index, i64, FastDivisor> classes;

  __device__ i64 rows(const Problem&) const { return classes.rows; }
  template <bool kClamped>
  __device__ Key row(const Problem& problem, const Tile& tile, Index index) const {
    return classes.template row<kClamped>(problem, tile.part, index);
  }
  __device__ int begin(int) const { return 0; }
  __device__ int end(int part) const { return static_cast<int>(classes.classes[part].steps); }
  // The taps of a step, taken apart; returns the tap's number in the filter.
  template <class Axes>
  __device__ int split_tap(const Axes&, const Tile& tile, int tap,
                           int (&at)[kSpatial > 0 ? kSpatial : 1]) const {
    return classes.split_tap(tile.part, tap, at);
  }
  // The origin of the offsets along an axis.
  template <class Axes>
  __device__ int origin(const Axes&, const Tile& tile, int i) const {
    return static_cast<int>(classes.classes[tile.part].axis[i].origin);
  }
};
template <>
struct TileSchedule<0> {
  TileOrder<Index, i64, FastDivisor> order;
  i64 steps, steps_of_part;

  __device__ i64 rows(const Problem& problem) const { return problem.m; }
  template <bool kClamped>
  __device__ Key row(const Problem& problem, const Tile& tile, Index index) const {
    Key key = problem.row(index);
    if constexpr (kExperts && !kClamped)
      if (index >= tile.last) key.lead = -1;
    return key;
  }
  __device__ int begin(int part) const { return part * static_cast<int>(steps_of_part); }
  __device__ int end(int part) const {
    const int all = static_cast<int>(steps), end = begin(part) + static_cast<int>(steps_of_part);
    return end < all ? end : all;
  }
  template <class Axes>
  __device__ int split_tap(const Axes& walk, const Tile&, int tap,
                           int (&at)[kSpatial > 0 ? kSpatial : 1]) const {
    Index rest = tap;
#pragma unroll
    for (int i = kSpatial - 1; i >= 0; --i) at[i] = static_cast<int>(walk[i].window.split(rest));
    return tap;
  }
  template <class Axes>
  __device__ int origin(const Axes& walk, const Tile&, int i) const {
    return static_cast<int>(walk[i].origin);
  }
};

// Which tile an item is. S: the schedule below.
template <bool kOfExperts>
struct Items {
  template <class S>
  __device__ int count_items(const S& schedule) const {
    return static_cast<int>(schedule.order.items);
  }
  template <class S>
  __device__ Tile find_tile(const S& schedule, int item) const {
    const TilePlace place = schedule.order.place(item);
    const int row = place.row * kClusterM + cluster_row(),
              column = place.column * kClusterN + cluster_column();
    const int part = kGathered > 1 ? static_cast<int>(cluster_rank()) : place.part;
    return {part, place.entry, row * kTileM, column * kColumns, schedule.begin(part), schedule.end(part)};
  }
};
// A launch in front lists the tiles of experts; they are walked in bands, as tiles of rows are. Rows that
// belong to no expert take no step, and their sums are zero.
template <>
struct Items<true> {
  const ExpertTile* listed;  // their count, then the tiles

  template <class S>
  __device__ int count_items(const S& schedule) const {
    return listed[0].row * static_cast<int>(schedule.order.columns);
  }
  template <class S>
  __device__ Tile find_tile(const S& schedule, int item) const {
    const auto& order = schedule.order;
    Index band = item;
    Index rest = order.tiles_of_band.split(band);
    const int rows = static_cast<int>(order.band), first = static_cast<int>(band) * rows;
    const int left = listed[0].row - first;
    int row, column;
    if (left >= rows) {
      row = static_cast<int>(order.rows_of_band.split(rest));
      column = static_cast<int>(rest);
    } else {
      row = static_cast<int>(rest) % left;
      column = static_cast<int>(rest) / left;
    }
    const ExpertTile of = listed[1 + first + row];
    const int end = of.expert < 0 ? 0 : schedule.end(0);
    return {0, 0, of.row, column * kColumns, 0, end, max(of.expert, 0), of.last};
  }
};

// Where a tile's entry of the batch lies in the maps of results and of what lies as they do, which have so
// many axes of a batch that no one stride walks.
using BatchWalk = EntryWalk<Index, FastDivisor>;
template <int kAxes>
struct ResultEntries {
  OwnEntryWalk<kAxes, Index, FastDivisor> entries;
  __device__ MapEntry<kAxes> outer(const Tile& tile) const { return entries.place(tile.entry); }
};
template <>
struct ResultEntries<0> {
  __device__ int outer(const Tile& tile) const { return kOp == kMatmul ? tile.entry : 0; }
};

struct Schedule : TileSchedule<kClasses>, Items<kExperts>, ResultEntries<Config::result_axes> {
  __device__ int first_line(const Problem&, const Tile&) const { return 0; }

  __device__ int items() const { return count_items(*this); }
  __device__ Tile tile(int item) const { return find_tile(*this, item); }
};

// Clusters are numbered over the grid; each starts at its number and steps by their count.
FUSOR_DEVICE int first_item() { return static_cast<int>(blockIdx.x) / kClusterBlocks; }
FUSOR_DEVICE int item_step() { return static_cast<int>(gridDim.x) / kClusterBlocks; }

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
struct MainloopOrder {
  Barrier may_begin[kConsumers];

  __device__ void init() {
    for (Barrier& barrier : may_begin) barrier.init(kWarpgroup / 32);
  }
  // The first consumer's first mainloop waits for nobody.
  __device__ void wait(int consumer, u32 round) { may_begin[consumer].wait(round & 1 ^ (consumer == 0)); }
  FUSOR_DEVICE int next(int consumer) {
    if constexpr (kConsumers == 2) return consumer ^ 1;
    return consumer + 1 == kConsumers ? 0 : consumer + 1;
  }
  __device__ void pass_on(int consumer) {
    if (threadIdx.x % 32 == 0) may_begin[next(consumer)].arrive();
  }
};

// Boxes of a consumer, filled one after another. More than two where staged operands are loaded far ahead, or
// where tiles of few steps finish faster than TMA reads two boxes.
enum : int { kBoxesOfConsumer = Config::boxes };
static_assert(kBoxesOfConsumer >= 2, "one is filled while another leaves");
// Staged operands of the epilogue: TMA loads them, and Y has them as values beside the sums.
enum : int { kStaged = Config::staged };

// Barriers of the boxes of one consumer: staged operands are loaded; results are complete.
struct BoxBarriers {
  Barrier loaded[kBoxesOfConsumer], done[kBoxesOfConsumer];

  __device__ void init() {
    for (int box = 0; box < kBoxesOfConsumer; ++box) {
      loaded[box].init(1);
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

// The barriers of all consumers, where there are staged operands.
template <bool kExist>
struct AllBoxBarriers {
  BoxBarriers of_consumer[kConsumers];
  __device__ void init() {
    for (BoxBarriers& barriers : of_consumer) barriers.init();
  }
  __device__ BoxBarriers* of(int consumer) { return &of_consumer[consumer]; }
};
template <>
struct AllBoxBarriers<false> {
  __device__ void init() {}
  __device__ BoxBarriers* of(int) { return nullptr; }
};

// Stages: operand tiles in lines of 128 bytes, with the 128-byte swizzle, and all barriers.
//   full[s]    producer --> consumers: arrivals of loading threads, and bytes of TMA
//   empty[s]   consumers --> producer: a warp has read the stage (in a cluster: at every block)
struct Stages {
  alignas(1024) u8 a[kStages][kTileBytesA];
  alignas(1024) u8 b[kStages][kTileBytesB];
  Barrier full[kStages], empty[kStages];
  MainloopOrder order;
  AllBoxBarriers<(kStaged > 0)> boxes;

  __device__ void init() {
    order.init();
    boxes.init();
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(kThreadsLoad ? kLoading : 1);
      empty[stage].init(kReaders * kWarpgroup / 32 * (kClusterM + kClusterN - 1));
    }
  }
  // Called by every warp that has read the stage; arrives at all blocks of the cluster's row and column: each
  // fills tiles of the others.
  __device__ void release(int stage) {
    const u32 lane = threadIdx.x % 32;
    if constexpr (!kShares) {
      if (lane == 0) empty[stage].arrive();
    } else if constexpr (kClusterN == 1) {
      if (lane < kClusterM) empty[stage].arrive_at(lane);
    } else {
      const u32 rank = cluster_rank();
      const bool meets = lane % kClusterM == rank % kClusterM || lane / kClusterM == rank / kClusterM;
      if (lane < kClusterM * kClusterN && meets) empty[stage].arrive_at(lane);
    }
  }
};

// Descriptor of a tile's part, and how far it moves for the next 32 bytes of k (in units of 16 bytes).
template <bool kAcrossAdjacent>
struct Part {
  enum : int { kStep = (kAcrossAdjacent ? 16 * kLineBytes : 32) >> 4 };
  FUSOR_DEVICE u64 descriptor(const u8* part) {
    return wgmma_descriptor(shared_address(part), kAcrossAdjacent ? kTileK * kLineBytes : 16, 1024);
  }
};

// The row, within a part of 64, of a thread's sums. A thread has two rows, `half` 0 and 1: 8 apart where the
// left operand is in shared memory; neighbours where it is in registers, so that one load reads both, in an
// order in which no two lanes of a half-warp meet in a bank.
FUSOR_DEVICE int row_in_part(int warp, int lane, int half) {
  const int group = lane / 4;
  if constexpr (kFromRegisters)
    return warp / 2 * 32 + group / 2 % 2 * 16 + warp % 2 * 8 + group / 4 * 4 + group % 2 * 2 + half;
  else
    return warp * 16 + group + 8 * half;
}
