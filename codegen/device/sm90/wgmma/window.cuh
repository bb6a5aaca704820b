// Owns the convolution of sm_90a whose windows stay in shared memory: fprop and dgrad of stride 1, up to 64
// channels a group. Windows of three axes come in layers, each a stage of the ring.
//
//   warpgroup 0, thread 0                          warpgroups 1, 2: consumers, a tile each in ping-pong
//   filters: once --- filters_full ------------->  for every layer, and every tap of it:
//   window[s]     --- full[s] ------------------->   wgmma(filters[tap], window[s] + lines[tap])
//    (im2col TMA) <-- empty[s] ------------------  epilogue; positions that are no pixels are not stored
//
//   tile: 64 output channels x kTileN positions of the padded grid; or, of few output channels, kTileM
//   positions x kTileN channels (the product is not exchanged): the epilogue then has no rows to throw away.
//   A window has as many more positions as taps reach.
//   shared: boxes | barriers | filters[layers][taps][lines of 128 B] | ring of windows, whose lines have 32,
//   64 or 128 bytes, as many as hold all channels, swizzled
#include "fusor_generated.cuh"

#include "codegen/device/sm90/epilogue/finish.cuh"
#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/pipeline/roles.cuh"
#include "codegen/device/sm90/wgmma/windows.cuh"

struct Shared {
  alignas(1024) u8 boxes[kBoxes > 0 ? kBoxes : 1][kBoxes > 0 ? kBoxBytes : 1];
  Barrier full[kMaxWindows], empty[kMaxWindows], filters_full;
  MainloopOrder order;
  alignas(1024) u8 tiles[1];  // the filters, tap by tap, then the ring

  __device__ u8* filters() { return tiles; }
  __device__ u8* window(const Windows& windows, int stage) {
    return tiles + windows.filters * windows.filter_bytes() +
           stage * windows.lines_of_stage * windows.line_bytes();
  }
  __device__ void init(const Windows& windows) {
    filters_full.init(1);
    order.init();
    for (int stage = 0; stage < static_cast<int>(windows.stages.divisor); ++stage) {
      full[stage].init(1);
      empty[stage].init(kWarpgroup / 32);
    }
  }
};

// The window of the ring for the block's `count`th layer, and the parity of its barriers.
struct Place {
  int stage;
  u32 parity;
  __device__ Place(const Windows& windows, int count) {
    Index round = count;
    stage = static_cast<int>(windows.stages.split(round));
    parity = round & 1;
  }
};

// Whether lines of the filters' tiles lie across k.
enum : bool { kFiltersAcross = kSwapped ? kRowsAdjacentA : kColumnsAdjacentB };

// Rows of a tap beyond the copied lines are the next one's, or a window's: they make sums of channels that do
// not exist.
FUSOR_DEVICE void load_filters(const Params& p, Shared& shared, const Tile& tile) {
  const int filters = static_cast<int>(p.windows.filters);
  shared.filters_full.arrive_and_expect(static_cast<u32>(filters * p.windows.filter_bytes()));
  const int outputs = tile.entry * static_cast<int>(p.operands.second_channels),
            first = kSwapped ? tile.row : tile.column;
  for (int filter = 0; filter < filters; ++filter) {
    u8* const to = shared.filters() + filter * p.windows.filter_bytes();
    const int line = p.windows.joined != 0 ? filter * 64 : 0, tap = p.windows.joined != 0 ? 0 : filter;
    if constexpr (kFiltersAcross)
      load_lines<true, 64, Alone, true>(to, p.filters, shared.filters_full, first + line, outputs, tap);
    else
      load_lines<false, 64, Alone, true>(to, p.filters, shared.filters_full, first + outputs, line, tap);
  }
}

FUSOR_DEVICE void load_windows(const Params& p, Shared& shared) {
  const Windows& windows = p.windows;
  load_filters(p, shared, windows.tile(0));
  int count = 0;
  for (int number = windows.first_tile(); number < static_cast<int>(windows.tiles);
       number += windows.tile_step()) {
    const Tile tile = windows.tile(number);
    const PixelStart start(p.operands, kSwapped ? tile.column : tile.row);
    for (int layer = 0; layer < static_cast<int>(windows.layers); ++layer, ++count) {
      const Place place(windows, count);
      u16 offset[kWindowAxes] = {};
      if (windows.layers > 1)
        offset[0] = static_cast<u16>(layer * p.operands.walk[0].slope + p.operands.walk[0].origin);
      shared.empty[place.stage].wait(place.parity ^ 1);
      shared.full[place.stage].arrive_and_expect(
          static_cast<u32>(windows.lines_of_window * windows.line_bytes()));
      copy_pixels(shared.window(windows, place.stage), p.pixels, shared.full[place.stage],
                  tile.entry * static_cast<int>(p.operands.first_channels), start.at, start.image, offset);
    }
  }
}

// One slice of a tap's filters by the lines of all positions of a tile. kBytes: of such a line.
template <int kBytes, int kPart = 0>
FUSOR_DEVICE void issue_slice(u64 filters, u64 lines, bool adds) {
  if constexpr (kSwapped) {
    Wgmma<kTileN, ElementA, ElementB, kFiltersAcross, 0>::issue<0>(filters, lines, adds);
  } else {
    Wgmma<kTileN, ElementA, ElementB, 0, kFiltersAcross>::issue<kPart>(lines + kPart * (64 * kBytes >> 4),
                                                                       filters, adds);
    if constexpr (kPart + 1 < kParts) issue_slice<kBytes, kPart + 1>(filters, lines, adds);
  }
}

// Every tap of a layer multiplies so many slices of its lines.
template <int kSlices>
FUSOR_DEVICE void multiply_slices(const Windows& windows, u64 filters, const u8* stage, int layer) {
  constexpr int kBytes = Windows::line_bytes_of(kSlices);
  const u64 window = line_descriptor<kBytes>(shared_address(stage));
#pragma unroll 1
  for (int tap = 0; tap < static_cast<int>(windows.taps); ++tap) {
    const u64 filter = filters + (windows.filter(layer * static_cast<int>(windows.taps) + tap) >> 4);
    const u64 lines = window + windows.lines[tap] * (kBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice)
      issue_slice<kBytes>(filter + slice * Part<kFiltersAcross>::kStep, lines + slice * Part<false>::kStep,
                          layer + tap + slice != 0);
    wgmma_commit();
    wgmma_wait<1>();
  }
}

FUSOR_DEVICE void multiply(const Windows& windows, Shared& shared, int stage, int layer) {
  const u64 filters = Part<kFiltersAcross>::descriptor(shared.filters());
  const u8* const window = shared.window(windows, stage);
  switch (static_cast<int>(windows.slices)) {
    case 1:
      return multiply_slices<1>(windows, filters, window, layer);
    case 2:
      return multiply_slices<2>(windows, filters, window, layer);
    case 3:
      return multiply_slices<3>(windows, filters, window, layer);
    default:
      return multiply_slices<4>(windows, filters, window, layer);
  }
}

FUSOR_DEVICE void consume_tiles(const Params& p, Shared& shared, int consumer) {
  const Windows& windows = p.windows;
  const int warp = threadIdx.x % kWarpgroup / 32;
  u8* const boxes = kBoxed ? shared.boxes[kBoxesOfConsumer * consumer] : nullptr;
  auto finisher = make_finisher<Y>(p, windows.grid, boxes, nullptr, warp);
  shared.filters_full.wait(0);
  int count = 0;
  for (int number = windows.first_tile(); number < static_cast<int>(windows.tiles);
       number += windows.tile_step(), ++count) {
    if (count % kConsumers != consumer) continue;
    const Tile tile = windows.tile(number);
    const int layers = static_cast<int>(windows.layers);
    shared.order.wait(consumer, count / kConsumers);
    for (int layer = 0; layer < layers; ++layer) {
      const Place place(windows, count * layers + layer);
      shared.full[place.stage].wait(place.parity);
      multiply(windows, shared, place.stage, layer);
      if (layer + 1 == layers) shared.order.pass_on(consumer);
      wgmma_wait<0>();
      if (threadIdx.x % 32 == 0) shared.empty[place.stage].arrive();
    }
    TileSums sums;
    read_tile(sums);
    finisher.finish(tile, tile.row, sums);
  }
}

struct ResidentWindows {
  using Shared = ::Shared;
  enum : int { kLoaders = 1, kConsumers = ::kConsumers, kLoaderRegisters = 40, kClusterBlocks = 1 };
  enum : bool { kLoadsAhead = false, kMeetsAtEnd = false };
  FUSOR_DEVICE void init(const Params& p, Shared& shared) { shared.init(p.windows); }
  FUSOR_DEVICE void prefetch(const Params& p) {
    prefetch_map(p.filters);
    prefetch_map(p.pixels);
  }
  FUSOR_DEVICE void clear(Shared&) {}
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    if (threadIdx.x == 0) load_windows(p, shared);
  }
  FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
    consume_tiles(p, shared, consumer);
  }
};

extern "C" __global__ void __launch_bounds__(kThreadsOf<ResidentWindows>, 1)
    wgmma_window(const __grid_constant__ Params p) {
  declare_sums<kParts>();
  run_roles<ResidentWindows>(p);
}
