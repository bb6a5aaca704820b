// Owns the tensor-core contraction of sm_90a but for its loader: matmul and the three passes of convolution,
// persistent. A root file declares the loader, and includes this.
//
//   warpgroup 0: producer                                        warpgroups 1, 2: consumers
//   thread 0      TMA --> a[s], b[s]  ---- full[s] ------------>  wgmma from shared memory into registers
//   (all threads where they load)     <--- empty[s] -----------   a warp has read stage s
//   threads 32, 64, if operands of the epilogue are staged:
//                 TMA --> box         ---- loaded[box] --------->  epilogue in registers, results to the box
//                 TMA <-- box         <--- done[box] ----------   a warp has filled its share
//
//   Consumers have half the rows of a tile each; or, kPingPong, tiles of their own and alternate mainloops.
//   shared: a[kStages], b[kStages] (128-byte lines, swizzled) | barriers | raw stages of prologues | boxes
#pragma once

#include "codegen/device/sm90/epilogue/finish.cuh"
#include "codegen/device/sm90/epilogue/gathered.cuh"
#include "codegen/device/sm90/epilogue/store_warp.cuh"
#include "codegen/device/sm90/pipeline/roles.cuh"

// Consumers run the epilogue once for nothing while the first copies are on their way: then its instructions
// and what it loads are there when the sums are.
enum : bool { kRehearses = Config::rehearses };

// Raw: what the loader keeps in shared memory beside the ring.
template <class Raw, bool kExists = Loader::kHasRaw>
struct SharedOf {
  Stages stages;
  Raw raw;
  alignas(1024) u8 boxes[kBoxes > 0 ? kBoxes : 1][kBoxes > 0 ? kBoxBytes : 1];

  __device__ void init() {
    stages.init();
    raw.init();
  }
};
template <class Raw>
struct SharedOf<Raw, false> {
  Stages stages;
  alignas(1024) u8 boxes[kBoxes > 0 ? kBoxes : 1][kBoxes > 0 ? kBoxBytes : 1];

  __device__ void init() { stages.init(); }
};
using Shared = SharedOf<Loader::Raw>;

// Parts of 64 rows: one box where rows are adjacent, 64 lines of 128 bytes otherwise; both 8 KiB.
enum : int { kPartBytes = 64 * kLineBytes };
using Multiplier = Wgmma<kTileN, ElementA, ElementB, kRowsAdjacentA && !kFromRegisters, kColumnsAdjacentB>;
template <int kPart>
FUSOR_DEVICE void issue_line(u64 a, u64 b, int accumulate) {
  Multiplier::issue_line<kPart, Part<kRowsAdjacentA>::kStep, Part<kColumnsAdjacentB>::kStep>(a, b,
                                                                                             accumulate);
}

// Short sums of the tensor cores, which cut off low bits of what they add to a sum: those of one step are
// added up in fp32, part by part, while the other consumer multiplies.
template <class Sums>
FUSOR_DEVICE void multiply_short_sums(const Tile& tile, Stages& stages, Ring& ring, int consumer,
                                      Sums& sums) {
  const int first_part = kPingPong ? 0 : consumer * kParts;
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[part][i] = 0;
#pragma unroll 1
  for (int step = tile.begin; step < tile.end; ++step) {
    stages.full[ring.stage].wait(ring.parity);
    const u64 a = Part<kRowsAdjacentA>::descriptor(stages.a[ring.stage] + first_part * kPartBytes);
    const u64 b = Part<kColumnsAdjacentB>::descriptor(stages.b[ring.stage]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      wgmma_fence();
      issue_line<0>(a + part * (kPartBytes >> 4), b, 0);
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
  if constexpr (kPingPong) stages.order.pass_on(consumer);
}

// Numbers in parts: the tensor cores cut off low bits of what they add to a sum, so that one of all steps
// would err more than a chain of fp32. Those of the products of the same 64 numbers are added up in fp32.
//
//   stages     low           high            middle
//   products   low * high, high * low        middle * middle, middle * high, high * middle     high * high
//              small ones first, three stages in use; the other products of parts do not count
template <class Sums>
FUSOR_DEVICE void multiply_in_parts(const Tile& tile, Stages& stages, Ring& ring, int consumer, Sums& sums) {
  static_assert(kParts == 1 && kStages >= kPartsOfNumber);
  const int first_part = kPingPong ? 0 : consumer;
  struct Operands {
    int stage;
    u64 a, b;
  };
  const auto next = [&] {
    stages.full[ring.stage].wait(ring.parity);
    const Operands operands{ring.stage,
                            Part<kRowsAdjacentA>::descriptor(stages.a[ring.stage] + first_part * kPartBytes),
                            Part<kColumnsAdjacentB>::descriptor(stages.b[ring.stage])};
    ring.advance();
    return operands;
  };
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[0][i] = 0;
#pragma unroll 1
  for (int step = tile.begin; step < tile.end; step += kPartsOfNumber) {
    const Operands low = next(), high = next();
    wgmma_fence();
    issue_line<0>(low.a, high.b, 0);
    issue_line<0>(high.a, low.b, 1);
    wgmma_commit();
    const Operands middle = next();
    issue_line<0>(middle.a, middle.b, 1);
    issue_line<0>(middle.a, high.b, 1);
    issue_line<0>(high.a, middle.b, 1);
    wgmma_commit();
    wgmma_wait<1>();
    stages.release(low.stage);
    issue_line<0>(high.a, high.b, 1);
    wgmma_commit();
    wgmma_wait<1>();
    stages.release(middle.stage);
    wgmma_wait<0>();
    stages.release(high.stage);
    Sum of_step[kSums];
    read_sums<0, kTileN>(of_step);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[0][i] += of_step[i];
  }
  if constexpr (kPingPong) stages.order.pass_on(consumer);
}

template <int kPart = 0>
FUSOR_DEVICE void clear_parts() {
  clear_sums<kPart, kTileN>();
  if constexpr (kPart + 1 < kParts) clear_parts<kPart + 1>();
}

template <int kPart = 0>
FUSOR_DEVICE void issue_parts(u64 a, u64 b, int accumulate) {
  issue_line<kPart>(a + kPart * (kPartBytes >> 4), b, accumulate);
  if constexpr (kPart + 1 < kParts) issue_parts<kPart + 1>(a, b, accumulate);
}

template <class Sums>
FUSOR_DEVICE void multiply_lines(const Tile& tile, Stages& stages, Ring& ring, int consumer, Sums& sums) {
  const int first_part = kPingPong ? 0 : consumer * kParts;
  int previous = -1;
  // The first step sets the sums, but some classes have no taps and so no step. Where registers are scarce
  // and sums become values, ptxas allocates better if they are set; elsewhere clearing is wasted time.
  if constexpr (kExperts || kClasses > 0 || (kParts * kSums > 128 && !kStayNamed)) clear_parts();
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
  if constexpr (kPingPong)
    if (!kRehearses || tile.begin < tile.end) stages.order.pass_on(consumer);
  wgmma_wait<0>();
  if (previous >= 0) stages.release(previous);
  read_tile(sums);
}

template <int kPart = 0>
FUSOR_DEVICE void issue_parts_of_registers(const u32 (&a)[kParts][8], u64 b, int accumulate) {
  Multiplier::issue<kPart>(a[kPart], b, accumulate);
  if constexpr (kPart + 1 < kParts) issue_parts_of_registers<kPart + 1>(a, b, accumulate);
}

// Loads half a step at a time into registers while the other half is multiplied. A matmul's tile has at least
// one step: as a do-while loop, ptxas keeps the epilogue behind it.
template <class Sums>
FUSOR_DEVICE void multiply_from_registers(const Tile& tile, Stages& stages, Ring& ring, int consumer,
                                          Sums& sums) {
  constexpr int kHalf = kTileK / 2;
  const int lane = threadIdx.x % 32, row = row_in_part(threadIdx.x % kWarpgroup / 32, lane, 0);
  // The place of the row's element of line k in a part whose lines, of 32 rows, run across k.
  const auto place_across = [&](int k) {
    return (row / kLine * kTileK + k) * kLineBytes + (row % kLine / 4 ^ k % 8) * 16 + row % 4 * 4;
  };
  const int place[2] = {place_across(lane % 4), place_across(lane % 4 + 4)};
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
  if constexpr (kPingPong) stages.order.pass_on(consumer);
  wgmma_wait<0>();
  stages.release(previous);
  read_tile(sums);
}

FUSOR_DEVICE void multiply(const Tile& tile, Stages& stages, Ring& ring, int consumer, TileSums& sums) {
  if constexpr (kFromRegisters)
    multiply_from_registers(tile, stages, ring, consumer, sums);
  else if constexpr (kInParts)
    multiply_in_parts(tile, stages, ring, consumer, sums);
  else if constexpr (kShortSums)
    multiply_short_sums(tile, stages, ring, consumer, sums);
  else
    multiply_lines(tile, stages, ring, consumer, sums);
}

template <class Epilogue, class Params>
FUSOR_DEVICE void consume_tiles(const Params& p, Shared& shared, int consumer) {
  Ring ring;
  Stages& stages = shared.stages;
  const int warp = threadIdx.x % kWarpgroup / 32;
  u8* const boxes = kBoxed ? shared.boxes[kBoxesOfConsumer * consumer] : nullptr;
  auto finisher = make_finisher<Epilogue>(p, p.schedule, boxes, stages.boxes.of(consumer), warp);
  if constexpr (kReduces) finisher.reducer.begin(p.reduced);
  const int items = p.schedule.items();
  int count = 0;  // of tiles
  bool rehearses = kRehearses;
  for (int item = first_item(); item < items; item += item_step(), ++count) {
    Tile tile = p.schedule.tile(item);
    if (rehearses) {
      tile.end = tile.begin;
    } else if constexpr (kPingPong) {
      if (count % kConsumers != consumer) {
        ring.skip(tile.end - tile.begin);
        continue;
      }
      stages.order.wait(consumer, count / kConsumers);
    }
    const int row = tile.row + (kPingPong ? 0 : consumer * kParts) * 64;
    const auto ahead = finisher.loads_ahead(tile, row);
    TileSums sums;
    multiply(tile, stages, ring, consumer, sums);
    if constexpr (kRehearses) finisher.rehearses = rehearses;
    finisher.finish(tile, row, sums, ahead);
    if (rehearses) {
      rehearses = false;
      item -= item_step(), --count;
    }
  }
  if constexpr (kReduces)
    finisher.reducer.end((static_cast<int>(blockIdx.x) * kConsumers + consumer) * (kWarpgroup / 32) + warp);
  if constexpr (store_path() == StorePath::boxes && kStaged == 0) wait_for_stores<0>();
}

// Where the blocks of a cluster share the steps of one tile: its sums pass the stages' memory, which nobody
// needs once all consumers have multiplied.
template <class Epilogue, class Params>
FUSOR_DEVICE void consume_gathered(const Params& p, Shared& shared, int consumer) {
  using Tiles = GatheredTile<Epilogue>;
  static_assert(Tiles::kBytes <= sizeof(shared.stages.a) + sizeof(shared.stages.b));
  Sum* const staged = reinterpret_cast<Sum*>(shared.stages.a);
  const Tile tile = p.schedule.tile(first_item());
  if (!kPingPong || consumer == 0) {
    Ring ring;
    TileSums sums;
    multiply(tile, shared.stages, ring, consumer, sums);
    // Nobody writes where another warp's product may still read.
    constexpr int kMultiplying = 1;
    wait_for_threads(kMultiplying, (kPingPong ? 1 : kConsumers) * kWarpgroup);
    Tiles::put(staged, kPingPong ? 0 : consumer * kParts * 64, threadIdx.x % kWarpgroup / 32, sums);
  }
  __syncwarp();
  synchronise_cluster();
  Tiles::finish(p.problem, tile, p.y, staged, static_cast<int>(threadIdx.x) - kLoading);
}

template <class Epilogue, class Params>
FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  if constexpr (kGathered > 1)
    consume_gathered<Epilogue>(p, shared, consumer);
  else
    consume_tiles<Epilogue>(p, shared, consumer);
}

// One thread for each consumer brings and sends its boxes, where operands are staged.
template <class Params>
FUSOR_DEVICE const TensorMap& second_map(const Params& p) {
  if constexpr (kHasSecond)
    return p.second;
  else
    return p.result;
}
template <class Params>
FUSOR_DEVICE void run_store_warp(const Params& p, Shared& shared, int consumer) {
  const BoxMaps<kStaged> maps{p.result, second_map(p), p.staged};
  const StoreWarp<kStaged> warp{p.problem,
                                p.schedule,
                                maps,
                                shared.boxes[kBoxesOfConsumer * consumer],
                                *shared.stages.boxes.of(consumer),
                                consumer};
  warp.run();
}

template <class Params>
FUSOR_DEVICE void prefetch_maps(const Params& p) {
  if constexpr (kGrainA == 0) prefetch_map(p.a);
  if constexpr (kGrainB == 0)
    for (const TensorMap& map : p.b) prefetch_map(map);
  if constexpr (kStaged > 0)
    for (const TensorMap& map : p.staged) prefetch_map(map);
}

template <class Params>
FUSOR_DEVICE void load_tiles(const Params& p, Shared& shared) {
  Loader::load(p, shared);
  if constexpr (kStaged > 0) {
    const int consumer = static_cast<int>(threadIdx.x) - 32;
    if (consumer >= 0 && consumer % 32 == 0 && consumer / 32 < kConsumers)
      run_store_warp(p, shared, consumer / 32);
  }
}

struct Y;  // absent with a split of k

struct Product {
  using Shared = ::Shared;
  enum : int { kLoaders = ::kLoaders, kConsumers = ::kConsumers, kClusterBlocks = ::kClusterBlocks };
  // Blocks that share operands end when all that others write to them is there (see load() of
  // sm90/load/boxes.cuh).
  enum : bool { kLoadsAhead = Config::given != 0, kMeetsAtEnd = kGathered > 1 };
  // A TMA producer needs 40; 24 beside gated pairs, whose pieces are twice as many sums, if it has no store
  // warps. Loading threads need some in flight.
  enum : int {
    kLoaderRegisters = Config::blocks_per_sm > 1                        ? 0
                       : kLoaders > 1                                   ? 72
                       : kThreadsLoad                                   ? 104
                       : kSiblings > 1 && kOp == kMatmul&& kStaged == 0 ? 24
                                                                        : 40
  };
  FUSOR_DEVICE void init(const Params&, Shared& shared) { shared.init(); }
  FUSOR_DEVICE void prefetch(const Params& p) { prefetch_maps(p); }
  FUSOR_DEVICE void clear(Shared&) {}
  template <class Given>
  FUSOR_DEVICE void load_ahead(const Given& p, Shared& shared) {
    Loader::load_ahead(p, shared);
  }
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    load_tiles(p, shared);
    // All threads of a cluster meet where its sums lie in shared memory.
    if constexpr (kGathered > 1) {
      __syncwarp();
      synchronise_cluster();
    }
  }
  FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
    ::consume<Y>(p, shared, consumer);
  }
};

extern "C" __global__ void __launch_bounds__(kThreadsOf<Product>, Config::blocks_per_sm)
    wgmma_contraction(const __grid_constant__ Params p) {
  declare_sums<kShortSums ? 1 : kParts>();
  run_roles<Product>(p);
}
