// Owns the forward convolution of few input channels on the tensor cores of sm_90a, persistent.
//
//   warpgroup 0: 4 loading warps                        warpgroups 1, 2: consumers in ping-pong
//   input rows --> X --> slots   -- full[group] ----->  (row of the result, block of 64 output channels):
//   (narrow/rows.cuh)            <- empty[group] -----  wgmma(filter[block], windows of the row) --> epilogue
//
//   Rows of the product are output channels, columns the pixels of a row of the result, k the window.
//   shared: boxes | filter[kBlocks][steps], packed once | ring of kGroups x kStrideH input rows | barriers
#include "fusor_generated.cuh"

#include "codegen/device/sm90/epilogue/finish.cuh"
#include "codegen/device/sm90/narrow/rows.cuh"
#include "codegen/device/sm90/pipeline/roles.cuh"

enum : int {
  kBlocks = Config::blocks,  // of 64 output channels
  kStepBytes = 64 * 16 * 2,
  kFilterSteps = kWindowH * Slots::kSteps,
  kThreads = (1 + kConsumers) * kWarpgroup,
};

struct Shared {
  alignas(1024) u8 boxes[kBoxes > 0 ? kBoxes : 1][kBoxes > 0 ? kBoxBytes : 1];
  alignas(128) u8 filter[kBlocks][kFilterSteps][kStepBytes];
  InputRows rows;
  MainloopOrder order;
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

// The filters as core matrices of 8 output channels by 8 steps of k, two of these along k side by side. What
// of a unit is no channel or no tap is zero.
FUSOR_DEVICE void pack_filters(const Params& p, Shared& shared, int thread, int threads) {
  constexpr int kDepth = kFilterSteps * 16;
#pragma unroll 1
  for (int k = thread; k < kDepth; k += threads) {
    const int step = k / 16, row = step / Slots::kSteps, in_row = k % (Slots::kSteps * 16);
    const int column = Slots::pixel_of(in_row), channel = Slots::channel_of(in_row);
    const bool exists = column < kWindowW && channel < kChannels;
    Index at[W::kRank];
    at[1] = channel;
    if constexpr (W::kRank == 4) at[2] = Config::mirrored ? kWindowH - 1 - row : row;
    at[W::kRank - 1] = Config::mirrored ? kWindowW - 1 - column : column;
    u8* const to = shared.filter[0][step] + k / 8 % 2 * 128 + k % 8 * 2;
#pragma unroll 16
    for (int output = 0; output < kBlocks * 64; ++output) {
      at[0] = output;
      const bool inside = exists && output < static_cast<int>(p.problem.n);
      const Vec<Element, 1> value = narrow<Element>(W::apply<1>(p.w, at, inside ? 1 : 0));
      *reinterpret_cast<Element*>(to + output / 64 * (kFilterSteps * kStepBytes) + output % 64 / 8 * 256 +
                                  output % 8 * 16) = value[0];
    }
  }
}

// The pixels of one row of the result, as the finisher asks for them. Boxes lie in the map of the result as
// (channel, column, row of all images), or as (column, channel of all images, row) where columns are
// adjacent.
struct RowOfPixels {
  int height;  // of an image
  int image = 0, line = 0;

  __device__ Index rows(const Problem& problem) const { return problem.axis[kSpatial - 1].output.divisor; }
  template <bool kClamped>
  __device__ Key row(const Problem& problem, const Tile&, Index column) const {
    const Index lead = kClamped || column < rows(problem) ? image : -1;
    if constexpr (kSpatial == 1) return {lead, {column, 0, 0}};
    return {lead, {line, column, 0}};
  }
  __device__ int outer(const Tile&) const { return kAlongColumns ? line : image * height + line; }
  __device__ int first_line(const Problem& problem, const Tile&) const {
    return kAlongColumns ? image * static_cast<int>(problem.n) : 0;
  }
};

FUSOR_DEVICE void multiply(const Shared& shared, const GroupRing& ring, int row, int block) {
  u64 a = plain_descriptor(shared_address(shared.filter[block]), 128, 256);
  const int first = ring.place(row);
  wgmma_fence();
#pragma unroll
  for (int r = 0; r < kWindowH; ++r) {
    const int below = r * kDilationH;
    int place = first + below / kStrideH;
    if (place >= kGroups) place -= kGroups;
    const u8* const input = shared.rows.group[place][below % kStrideH];
#pragma unroll
    for (int step = 0; step < Slots::kSteps; ++step) {
      const u32 unit = shared.rows.unit(input, 2 * step), next = shared.rows.unit(input, 2 * step + 1);
      const u64 b = plain_descriptor(unit, next - unit, 128);
      Wgmma<kTileN, Element, Element, 0, 0>::issue<0>(a, b, r + step != 0);
      a += kStepBytes >> 4;
    }
  }
  wgmma_commit();
}

FUSOR_DEVICE void consume_rows(const Params& p, Shared& shared, int consumer) {
  constexpr int kConsuming = kConsumers * kWarpgroup, kPacked = kConsumers + 2;  // threads; their barrier
  pack_filters(p, shared, threadIdx.x - kWarpgroup, kConsuming);
  fence_shared_writes();
  wait_for_threads(kPacked, kConsuming);

  const int warp = threadIdx.x % kWarpgroup / 32;
  RowOfPixels pixels{static_cast<int>(p.strips.height)};
  u8* const boxes = kBoxed ? shared.boxes[kBoxesOfConsumer * consumer] : nullptr;
  auto finisher = make_finisher<Y>(p, pixels, boxes, nullptr, warp);
  GroupRing ring;
  int multiplied = 0;  // rows of blocks, of both consumers
#pragma unroll 1
  for (int item = blockIdx.x; item < static_cast<int>(p.strips.count); item += gridDim.x) {
    const Strip strip = p.strips.strip(item);
    int seen = 0;  // of the strip's groups
    pixels.image = strip.image;
#pragma unroll 1
    for (int row = 0; row < strip.rows; ++row) {
#pragma unroll 1
      for (; seen <= row + kSpan; ++seen) shared.rows.full[ring.place(seen)].wait(ring.parity(seen));
      pixels.line = strip.row + row;
      bool released = false;
#pragma unroll 1
      for (int block = 0; block < kBlocks; ++block, ++multiplied) {
        if (multiplied % kConsumers != consumer) continue;
        shared.order.wait(consumer, multiplied / kConsumers);
        multiply(shared, ring, row, block);
        shared.order.pass_on(consumer);
        wgmma_wait<0>();
        TileSums sums;
        read_tile(sums);
        released = block + kConsumers >= kBlocks;
        if (released) shared.rows.release(ring.place(row));
        finisher.finish({0, 0, block * 64, strip.column, 0, 0}, block * 64, sums);
      }
      if (!released) shared.rows.release(ring.place(row));
    }
#pragma unroll 1
    for (int group = strip.rows; group < strip.groups(); ++group) shared.rows.release(ring.place(group));
    ring.number += strip.groups();
  }
  if constexpr (store_path() == StorePath::boxes) wait_for_stores<0>();
}

struct NarrowFprop {
  using Shared = ::Shared;
  enum : int { kLoaders = 1, kConsumers = ::kConsumers, kLoaderRegisters = 88, kClusterBlocks = 1 };
  enum : bool { kLoadsAhead = false, kMeetsAtEnd = false };
  FUSOR_DEVICE void init(const Params&, Shared& shared) {
    shared.rows.init(0, kConsumers * kWarpgroup / 32);
    shared.order.init();
  }
  FUSOR_DEVICE void prefetch(const Params&) {}
  FUSOR_DEVICE void clear(Shared& shared) {
    shared.rows.clear(threadIdx.x, kThreads);
    fence_shared_writes();
  }
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    load_rows(p.strips, blockIdx.x, gridDim.x, p.x, shared.rows, [](const Strip&, int, int) {});
  }
  FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
    consume_rows(p, shared, consumer);
  }
};

extern "C" __global__ void __launch_bounds__(kThreadsOf<NarrowFprop>, 1)
    wgmma_narrow(const __grid_constant__ Params p) {
  declare_sums<1>();
  run_roles<NarrowFprop>(p);
}
