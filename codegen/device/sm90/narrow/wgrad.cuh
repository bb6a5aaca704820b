// Owns the weight gradient of a convolution of few input channels on the tensor cores of sm_90a, persistent.
//
//   warpgroup 0: 4 loading warps                       warpgroups 1, 2: consumers
//   input rows --> X --> slots  -- full[group] ----->  half of the window's rows each, for all strips:
//   dy row, TMA, beside them    <- empty[group] -----  wgmma(dy, slots), k = pixels of a row
//   finish: sums of all strips of the block --> partials[part][block of channels] --> split_finish
//
//   Rows of the product are 64 output channels, columns the slots of a row of the window, read across.
//   shared: gradient[kGroups] (swizzled lines) | ring of kGroups x kStrideH input rows | barriers
#include "fusor_generated.cuh"

#include "codegen/device/sm90/narrow/rows.cuh"
#include "codegen/device/sm90/pipeline/roles.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"
#include "codegen/device/sm90/ptx/wgmma.cuh"

// dy: (channel, column, row of all images), or (column, channel of all images, row); width, channels: of dy;
// blocks: of 64 channels; partials: [strips' part][block of channels][channel][tap and input channel].

enum : int { kConsumers = 2, kThreads = (1 + kConsumers) * kWarpgroup };
// A row of dy: a line of 64 channels for every pixel; or, where columns are adjacent, lines of 64 pixels for
// every channel, in boxes of 64 lines.
enum : bool { kPlanes = Config::gradient_planes };
enum : int {
  kLine = 64 * 2,
  kBoxBytes = 64 * kLine,
  kBoxes = kPlanes ? (kTilePixels + 63) / 64 : 1,
  kGradientBytes = kPlanes ? kBoxes * kBoxBytes : kTilePixels * kLine,
  kColumns = Slots::kSteps * 16,  // slots of a row of the window, filled up
  kColumnsOfResult = kWindowH * kWindowW * kChannels,
};

struct Shared {
  alignas(1024) u8 gradient[kGroups][kGradientBytes];
  InputRows rows;
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

// One step of all rows of the window: the pixels `eight` of each, and the eight behind them.
template <int kRows, int kRow = 0>
FUSOR_DEVICE void multiply_step(u64 gradient, const u32 (&eight)[kRows], const u32 (&next)[kRows]) {
  Wgmma<kColumns, Element, Element, !kPlanes, 1>::template issue<kRow>(
      gradient, plain_descriptor(eight[kRow], next[kRow] - eight[kRow], Slots::kUnitBytes), 1);
  if constexpr (kRow + 1 < kRows) multiply_step<kRows, kRow + 1>(gradient, eight, next);
}

// Adds up one row of the result's pixels in kRows rows of the window, from `first` on. Pixels beyond the
// width are zero in dy, and in the windows: eight at a time, their number is a multiple of that.
template <int kRows>
FUSOR_DEVICE void multiply(const Shared& shared, const GroupRing& ring, int row, int first, int pixels) {
  constexpr int kEight = 8 * Slots::kUnitBytes;
  const u32 zeros = shared_address(shared.rows.zeros);
  u32 inputs[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int below = (first + i) * kDilationH;
    inputs[i] = shared_address(shared.rows.group[ring.place(row + below / kStrideH)][below % kStrideH]);
  }
  const u64 gradient = wgmma_descriptor(shared_address(shared.gradient[ring.place(row + kSpan)]), 16, 1024);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kTilePixels / 16; ++step) {
    const int behind = kPlanes ? step / 4 * kBoxBytes + step % 4 * 32 : step * 16 * kLine;
    const bool exists = 16 * step < pixels, second = 16 * step + 8 < pixels;
    u32 eight[kRows], next[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      eight[i] = exists ? inputs[i] + 2 * step * kEight : zeros;
      next[i] = !exists || second ? eight[i] + kEight : zeros;
    }
    multiply_step(gradient + (behind >> 4), eight, next);
  }
  wgmma_commit();
}

template <int kRows, int kRow = 0>
FUSOR_DEVICE void clear_rows() {
  clear_sums<kRow, kColumns>();
  if constexpr (kRow + 1 < kRows) clear_rows<kRows, kRow + 1>();
}

// The addresses of a thread's sums in the block's part: a pair of slots in every unit of a row, neighbouring
// channels of one column. Units, rows of the window and output channels are constant distances away.
struct SumPlaces {
  enum : int { kTap = (Config::mirrored ? -1 : 1) * (Config::channels_fastest ? kChannels : 1) };
  float* to[2];
  bool exists[2];
  int column;  // in the first unit

  // `first`: of the rows of the window that the warpgroup has.
  __device__ SumPlaces(float* part, int first) {
    const int lane = threadIdx.x % 32, channel = threadIdx.x % kWarpgroup / 32 * 16 + lane / 4;
    const int slot = lane % 4 * 2;
    column = Slots::pixel_of(slot);
    int tap = first * kWindowW + column;
    if (Config::mirrored) tap = kWindowH * kWindowW - 1 - tap;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int input = Slots::channel_of(slot + i);
      exists[i] = input < kChannels;
      to[i] = part + channel * kColumnsOfResult +
              (Config::channels_fastest ? tap * kChannels + input : input * (kWindowH * kWindowW) + tap);
    }
  }
};

template <int kRows, int kRow = 0>
FUSOR_DEVICE void store_rows(const SumPlaces& places) {
  float sums[kColumns / 2];
  read_sums<kRow, kColumns>(sums);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!places.exists[i]) continue;
#pragma unroll
    for (int unit = 0; unit < kColumns / 8; ++unit) {
      const int beyond = unit * Slots::kUnitPixels;
      if (places.column + beyond >= kWindowW) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        places.to[i][half * 8 * kColumnsOfResult + (kRow * kWindowW + beyond) * SumPlaces::kTap] =
            sums[4 * unit + 2 * half + i];
    }
  }
  if constexpr (kRow + 1 < kRows) store_rows<kRows, kRow + 1>(places);
}

template <int kRows>
FUSOR_DEVICE void sum_rows(const Params& p, Shared& shared, int first, int block, int part, int parts) {
  if constexpr (kRows > 0) clear_rows<kRows>();
  GroupRing ring;
#pragma unroll 1
  for (int item = part; item < static_cast<int>(p.strips.count); item += parts) {
    const Strip strip = p.strips.strip(item);
    const int left = static_cast<int>(p.width) - strip.column;
    int seen = 0;  // of the strip's groups
#pragma unroll 1
    for (int row = 0; row < strip.rows; ++row) {
#pragma unroll 1
      for (; seen <= row + kSpan; ++seen) shared.rows.full[ring.place(seen)].wait(ring.parity(seen));
      if constexpr (kRows > 0) {
        multiply<kRows>(shared, ring, row, first, left);
        // The row before is read.
        wgmma_wait<1>();
      }
      if (row > 0) shared.rows.release(ring.place(row - 1));
    }
    wgmma_wait<0>();
#pragma unroll 1
    for (int group = strip.rows - 1; group < strip.groups(); ++group) shared.rows.release(ring.place(group));
    ring.number += strip.groups();
  }
  if constexpr (kRows > 0)
    store_rows<kRows>(SumPlaces(p.partials + (part * p.blocks + block) * (64 * kColumnsOfResult), first));
}

struct NarrowWgrad {
  using Shared = ::Shared;
  enum : int { kLoaders = 1, kConsumers = ::kConsumers, kLoaderRegisters = 88, kClusterBlocks = 1 };
  enum : bool { kLoadsAhead = false, kMeetsAtEnd = false };

  // A block has one block of channels; those with the same share the strips.
  struct Place {
    int block, part, parts;
    __device__ explicit Place(const Params& p) {
      const int blocks = static_cast<int>(p.blocks);
      block = blockIdx.x % blocks;
      part = blockIdx.x / blocks;
      parts = gridDim.x / blocks;
    }
  };
  FUSOR_DEVICE void init(const Params&, Shared& shared) { shared.rows.init(1, kConsumers * kWarpgroup / 32); }
  FUSOR_DEVICE void prefetch(const Params& p) { prefetch_map(p.dy); }
  FUSOR_DEVICE void clear(Shared& shared) {
    shared.rows.clear(threadIdx.x, kThreads);
    fence_shared_writes();
  }
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    const Place place_of_block(p);
    const auto copy_gradient = [&](const Strip& strip, int group, int place) {
      if (threadIdx.x % 32 != 0) return;
      Barrier& full = shared.rows.full[place];
      const int row = group - kSpan;
      if (row < 0) return full.arrive();
      full.arrive_and_expect(kGradientBytes);
      const int image = strip.image, line = strip.row + row;
      if constexpr (kPlanes)
        for (int box = 0; box < kBoxes; ++box)
          copy_box(shared.gradient[place] + box * kBoxBytes, p.dy, full, strip.column + box * 64,
                   image * static_cast<int>(p.channels) + place_of_block.block * 64, line);
      else
        copy_box(shared.gradient[place], p.dy, full, place_of_block.block * 64, strip.column,
                 image * static_cast<int>(p.strips.height) + line);
    };
    load_rows(p.strips, place_of_block.part, place_of_block.parts, p.x, shared.rows, copy_gradient);
  }
  FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
    constexpr int kFirst = (kWindowH + 1) / 2;
    const Place place(p);
    if (consumer == 0)
      sum_rows<kFirst>(p, shared, 0, place.block, place.part, place.parts);
    else
      sum_rows<kWindowH - kFirst>(p, shared, kFirst, place.block, place.part, place.parts);
  }
};

extern "C" __global__ void __launch_bounds__(kThreadsOf<NarrowWgrad>, 1)
    wgmma_narrow_wgrad(const __grid_constant__ Params p) {
  declare_sums<(kWindowH + 1) / 2>();
  run_roles<NarrowWgrad>(p);
}
