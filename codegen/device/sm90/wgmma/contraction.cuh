// Owns the tensor-core contraction of sm_90a: matmul and the three passes of convolution, persistent.
//
//   warpgroup 0: producer                                        warpgroups 1, 2: consumers
//   thread 0      TMA --> a[s], b[s]  ---- full[s] ------------>  wgmma from shared memory into registers
//   (all threads where they load)     <--- empty[s] -----------   a warp has read stage s
//   threads 32, 64, if operands of the epilogue are staged:
//                 TMA --> box         ---- given[box] --------->  epilogue in registers, results to the box
//                 TMA <-- box         <--- done[box] ----------   a warp has filled its share
//
//   Consumers have half the rows of a tile each; or, kPingPong, tiles of their own and alternate mainloops.
//   shared: a[kStages], b[kStages] (128-byte lines, swizzled) | barriers | raw stages of prologues | boxes
#include "fusor_generated.cuh"

#include "codegen/device/sm90/epilogue/box_copies.cuh"
#include "codegen/device/sm90/epilogue/finish.cuh"
#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/load/planes.cuh"
#ifdef FUSOR_LOADERS
#include "codegen/device/sm90/load/prologue.cuh"
#endif
#include "codegen/device/sm90/epilogue/split.cuh"
#include "codegen/device/sm90/load/threads.cuh"

struct Params {
#ifndef FUSOR_GRAIN_A
  TensorMap a;
#endif
#ifndef FUSOR_GRAIN_B
  TensorMap b[kSiblings];
#endif
#if FUSOR_WAY_OUT == 1
  TensorMap result;
#endif
#ifdef FUSOR_SECOND_OUT
  TensorMap second;
#endif
#ifdef FUSOR_GIVEN
  TensorMap given[kGiven];
#endif
  Problem problem;
  Schedule schedule;
  Operands operands;
#ifdef FUSOR_GRAIN_A
  ThreadOperand thread_a;
#endif
#ifdef FUSOR_GRAIN_B
  ThreadOperand thread_b[kSiblings];
#endif
  // Ops may need no arguments: an empty struct would have a size here, but none in the argument block.
#if defined FUSOR_PROLOGUE_A && FUSOR_PROLOGUE_A_ARGUMENTS
  A::Args arguments_a;
#endif
#if defined FUSOR_PROLOGUE_B && FUSOR_PROLOGUE_B_ARGUMENTS
  B::Args arguments_b;
#endif
#if FUSOR_WAY_OUT == 2
  Sum* partials;
#else
#if FUSOR_WAY_OUT >= 3
  Target target;
#endif
  Y::Args y;
#endif
#ifdef FUSOR_REDUCED
  Partials reduced;
#endif

#ifdef FUSOR_PROLOGUE_A
#if FUSOR_PROLOGUE_A_ARGUMENTS
  __device__ const A::Args& prologue_a() const { return arguments_a; }
#else
  __device__ A::Args prologue_a() const { return {}; }
#endif
#endif
#ifdef FUSOR_PROLOGUE_B
#if FUSOR_PROLOGUE_B_ARGUMENTS
  __device__ const B::Args& prologue_b() const { return arguments_b; }
#else
  __device__ B::Args prologue_b() const { return {}; }
#endif
#endif
};

struct Shared {
  Stages stages;
#ifdef FUSOR_LOADERS
  KeptSteps kept;
#endif
  alignas(1024) u8 boxes[kBoxes > 0 ? kBoxes : 1][kBoxes > 0 ? kBoxBytes : 1];
};

// Parts of 64 rows: one box where rows are adjacent, 64 lines of 128 bytes otherwise; both 8 KiB.
static constexpr int kPartBytes = 64 * kLineBytes;
using Multiplier =
    Wgmma<kRowsAdjacentA, kColumnsAdjacentB, Part<kRowsAdjacentA>::kStep, Part<kColumnsAdjacentB>::kStep>;

#if FUSOR_TYPE >= 5
// Short sums of the tensor cores (fp8): those of one step are added up in fp32, part by part, while the other
// consumer multiplies.
FUSOR_DEVICE void multiply(const Tile& tile, Stages& stages, Ring& ring, int consumer, TileSums& sums) {
  const int first_part = kPingPong ? 0 : consumer * kParts;
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[part][i] = 0;
#pragma unroll 1
  for (int step = tile.begin; step < tile.end; ++step) {
    stages.full[ring.stage].wait(ring.parity);
    const u64 a = Part<false>::descriptor(stages.a[ring.stage] + first_part * kPartBytes);
    const u64 b = Part<false>::descriptor(stages.b[ring.stage]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      wgmma_fence();
      Multiplier::issue<0>(a + part * (kPartBytes >> 4), b, 0);
      wgmma_commit();
      wgmma_wait<0>();
      if (part == kParts - 1) stages.release(ring.stage);
      Sum of_step[kSums];
      read_sums<0, kTileN>(of_step);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[part][i] += of_step[i];
    }
    ring.advance();
  }
  if constexpr (kPingPong) stages.turns.pass(consumer);
}
#else
template <int kPart = 0>
FUSOR_DEVICE void clear_parts() {
  clear_sums<kPart, kTileN>();
  if constexpr (kPart + 1 < kParts) clear_parts<kPart + 1>();
}

template <int kPart = 0>
FUSOR_DEVICE void issue_parts(u64 a, u64 b, int accumulate) {
  Multiplier::issue<kPart>(a + kPart * (kPartBytes >> 4), b, accumulate);
  if constexpr (kPart + 1 < kParts) issue_parts<kPart + 1>(a, b, accumulate);
}

FUSOR_DEVICE void multiply(const Tile& tile, Stages& stages, Ring& ring, int consumer, TileSums& sums) {
  const int first_part = kPingPong ? 0 : consumer * kParts;
  int previous = -1;
  // The first step sets the sums, but some classes have no taps and so no step. Where registers are scarce
  // and sums become values, ptxas allocates better if they are set; elsewhere clearing is wasted time.
  if constexpr (kClasses > 0 || (kParts * kSums > 128 && !kStayNamed)) clear_parts();
#pragma unroll 1
  for (int step = tile.begin; step < tile.end; ++step) {
    stages.full[ring.stage].wait(ring.parity);
    const u64 a = Part<kRowsAdjacentA>::descriptor(stages.a[ring.stage] + first_part * kPartBytes);
    const u64 b = Part<kColumnsAdjacentB>::descriptor(stages.b[ring.stage]);
    wgmma_fence();
#pragma unroll
    for (int row = 0; row < kRows; ++row)
      issue_parts(a + row * (kTileM * kLineBytes >> 4), b + row * (kChannelBlock * kLineBytes >> 4),
                  row > 0 || step != tile.begin);
    wgmma_commit();
    wgmma_wait<1>();
    if (previous >= 0) stages.release(previous);
    previous = ring.stage;
    ring.advance();
  }
  if constexpr (kPingPong) stages.turns.pass(consumer);
  wgmma_wait<0>();
  if (previous >= 0) stages.release(previous);
  read_tile(sums);
}
#endif

#if FUSOR_TYPE == 2
// The place of a row's element of line k in a part whose lines, of 32 rows, run across k.
FUSOR_DEVICE int place_across(int row, int k) {
  return (row / kLine * kTileK + k) * kLineBytes + (row % kLine / 4 ^ k % 8) * 16 + row % 4 * 4;
}

template <int kPart = 0>
FUSOR_DEVICE void issue_parts_of_registers(const u32 (&a)[kParts][8], u64 b, int accumulate) {
  WgmmaOfRegisters::issue<kPart>(a[kPart], b, accumulate);
  if constexpr (kPart + 1 < kParts) issue_parts_of_registers<kPart + 1>(a, b, accumulate);
}

// Loads half a step at a time into registers while the other half is multiplied. A matmul's tile has at least
// one step: as a do-while loop, ptxas keeps the epilogue behind it.
FUSOR_DEVICE void multiply_from_registers(const Tile& tile, Stages& stages, Ring& ring, int consumer,
                                          TileSums& sums) {
  constexpr int kHalf = kTileK / 2;
  const int lane = threadIdx.x % 32, row = row_in_part(threadIdx.x % kWarpgroup / 32, lane, 0);
  const int place[2] = {place_across(row, lane % 4), place_across(row, lane % 4 + 4)};
  const int first_part = kPingPong ? 0 : consumer * kParts;
  u32 a[2][kParts][8];
  int previous = -1, step = tile.begin;
  if constexpr (kParts * kSums > 128) clear_parts();
#pragma unroll 1
  do {
    stages.full[ring.stage].wait(ring.parity);
    const u8* const lines = stages.a[ring.stage] + first_part * kPartBytes;
    const u64 b = Part<false>::descriptor(stages.b[ring.stage]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // wgmma has read the registers of the half before the last.
      wgmma_wait<1>();
      if (half == 1 && previous >= 0) stages.release(previous);
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u8* const from = lines + part * kPartBytes + (half * kHalf + i / 2 * 8) * kLineBytes;
          const auto pair = *reinterpret_cast<const Vec<u32, 2>*>(from + place[i % 2]);
          a[half][part][2 * i] = pair[0];
          a[half][part][2 * i + 1] = pair[1];
        }
      wgmma_fence();
      issue_parts_of_registers(a[half], b + half * 2 * Part<false>::kStep, half != 0 || step != tile.begin);
      wgmma_commit();
    }
    previous = ring.stage;
    ring.advance();
  } while (++step < tile.end);
  if constexpr (kPingPong) stages.turns.pass(consumer);
  wgmma_wait<0>();
  stages.release(previous);
  read_tile(sums);
}
#endif

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  Ring ring;
  Stages& stages = shared.stages;
  const int warp = threadIdx.x % kWarpgroup / 32;
#if FUSOR_WAY_OUT != 2
#if FUSOR_WAY_OUT == 1
  Finisher<Y, Schedule> finisher{p.problem, p.schedule, p.y, p.result, shared.boxes[kTurns * consumer], warp};
#elif FUSOR_WAY_OUT >= 3
  Finisher<Y, Schedule> finisher{p.problem, p.schedule, p.y, p.target, shared.boxes[kTurns * consumer], warp};
#else
  const TensorMap none{};
  Finisher<Y, Schedule> finisher{p.problem, p.schedule, p.y, none, nullptr, warp};
#endif
#endif
#ifdef FUSOR_SECOND_OUT
  finisher.second = &p.second;
#endif
#ifdef FUSOR_GIVEN
  finisher.barriers = &stages.boxes[consumer];
#endif
#ifdef FUSOR_REDUCED
  finisher.reducer.begin(p.reduced);
#endif
  const int items = p.schedule.items();
  int count = 0;  // of tiles
  for (int item = first_item(); item < items; item += item_step(), ++count) {
    const Tile tile = p.schedule.tile(item);
    if constexpr (kPingPong) {
      if (count % kConsumers != consumer) {
        ring.skip(tile.end - tile.begin);
        continue;
      }
      stages.turns.wait(consumer, count / kConsumers);
    }
    TileSums sums;
    if constexpr (kFromRegisters) {
#if FUSOR_TYPE == 2
      multiply_from_registers(tile, stages, ring, consumer, sums);
#endif
    } else {
      multiply(tile, stages, ring, consumer, sums);
    }
    const int row = tile.row + (kPingPong ? 0 : consumer * kParts) * 64;
#if FUSOR_WAY_OUT == 2
    store_parts(p.partials, p.schedule, tile, row, warp, sums);
#else
    finisher.finish(tile, row, sums);
#endif
  }
#ifdef FUSOR_REDUCED
  finisher.reducer.end((static_cast<int>(blockIdx.x) * kConsumers + consumer) * (kWarpgroup / 32) + warp);
#endif
  if constexpr (kWayOut == kCopyEngineStores && kGiven == 0) wait_for_stores<0>();
}

#ifdef FUSOR_GIVEN
FUSOR_DEVICE void move_boxes(const Params& p, Shared& shared, int consumer) {
#ifdef FUSOR_SECOND_OUT
  const BoxMaps maps{p.result, p.second, p.given};
#else
  const BoxMaps maps{p.result, p.result, p.given};
#endif
  const Mover mover{
      p.problem, p.schedule, maps, shared.boxes[kTurns * consumer], shared.stages.boxes[consumer], consumer};
  mover.run();
}
#endif

// Registers a thread, of 504 for three warpgroups or 512 for four. A TMA producer needs 40; 24 beside gated
// pairs, whose pieces are twice as many sums, if it has no store warps. Loading threads need some in flight.
static constexpr int kLoaderRegisters = kLoaders > 1                                    ? 72
                                        : kThreadsLoad                                  ? 104
                                        : kSiblings > 1 && kOp == kMatmul&& kGiven == 0 ? 24
                                                                                        : 40;
static constexpr int kConsumerRegisters =
    ((kLoaders > 1 ? 512 : 504) - kLoaders * kLoaderRegisters) / kConsumers;

extern "C" __global__ void __launch_bounds__(kLoading + kConsumers * kWarpgroup, FUSOR_BLOCKS_PER_SM)
    wgmma_contraction(const __grid_constant__ Params p) {
  declare_sums<kShortSums ? 1 : kParts>();
  extern __shared__ __align__(1024) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  // The compiler must know that all lanes agree: then descriptors stay in uniform registers.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
  if (threadIdx.x == 0) {
    shared.stages.init();
#ifdef FUSOR_LOADERS
    shared.kept.init();
#endif
    fence_barriers();
  }
  if (threadIdx.x == 32) {
#ifndef FUSOR_GRAIN_A
    prefetch_map(p.a);
#endif
#ifndef FUSOR_GRAIN_B
    for (const TensorMap& map : p.b) prefetch_map(map);
#endif
#ifdef FUSOR_GIVEN
    for (const TensorMap& map : p.given) prefetch_map(map);
#endif
  }
  if constexpr (kCluster > 1)
    synchronise_cluster();
  else
    __syncthreads();
  if (warpgroup / kLoaders == 0) {
    if constexpr (FUSOR_BLOCKS_PER_SM == 1) give_registers<kLoaderRegisters>();
#ifdef FUSOR_LOADERS
    load_through_prologues(p, shared.stages, shared.kept);
#elif defined FUSOR_GRAIN_A || defined FUSOR_GRAIN_B
    load_by_threads(p, shared.stages);
#elif defined FUSOR_CHANNEL_BLOCK
    if (threadIdx.x == 0) load_planes(p.a, p.b[0], p.operands, p.schedule, shared.stages);
#else
    if (threadIdx.x == 0) load(p.a, p.b, p.operands, p.schedule, shared.stages);
#endif
#ifdef FUSOR_GIVEN
    const int mover = static_cast<int>(threadIdx.x) - 32;
    if (mover >= 0 && mover % 32 == 0 && mover / 32 < kConsumers) move_boxes(p, shared, mover / 32);
#endif
  } else {
    if constexpr (FUSOR_BLOCKS_PER_SM == 1) take_registers<kConsumerRegisters>();
    consume(p, shared, warpgroup - kLoaders);
  }
  // Other blocks of the cluster may still write to this block's tiles and barriers.
  if constexpr (kCluster > 1) {
    __syncwarp();
    synchronise_cluster();
  }
}
