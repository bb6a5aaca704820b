// Owns the loaders of the tensor-core contraction of sm_90a: which boxes of the operands fill the tiles of a
// step. Matmul and the convolutions differ in nothing else.
//
//            operand       copied as
//   matmul   both          boxes of lines along k, or across it
//   fprop    input         im2col: a column of output pixels, kLine channels, one tap   k = (tap, channels)
//            filter        lines along the input channel
//   dgrad    output        im2col: a column of input pixels, kLine channels, one tap    k = (tap, channels)
//            filter        lines along the input channel, across k; or along the output channel
//   dgrad of a stride     the same for every class of input pixels, with its own taps
//   wgrad    output        lines along the output channel, across k                     k = output pixels
//            input         im2col: 64 pixels of k, 64 channels, one tap: a column block
//   wgrad of planes (pointwise, channels first)
//            both          lines along the positions of an image                 k = (image, positions)
//   wgrad of planes with windows: sm90/load/planes.cuh
#pragma once

#include "codegen/device/sm90/pipeline/tiling.cuh"

// wgrad of one tap, whose images are planes of positions.
enum : bool { kPlanes = kOp == kWgrad && !kRowsAdjacentA };
enum : int { kWindowAxes = kSpatial > 0 ? kSpatial : 1 };

// How pixels of the product lead to positions of the operand that im2col reads: along every spatial axis,
// position = pixel * stride + lower + offset, where offset = tap * slope + origin is 0 or more.
struct WindowWalk {
  FastDivisor pixels;
  FastDivisor window;
  i64 stride, lower;
  i64 slope, origin;
};

// How a matmul's operand lies along the batch: 0 where all entries share it; or, where one stride does not
// walk those, the axes of its map.
template <bool kWalked>
struct BatchOf {
  using type = i64;
};
template <>
struct BatchOf<true> {
  using type = BatchWalk;
};

struct Operands {
  BatchOf<Config::walks_a>::type batched_a;
  BatchOf<Config::walks_b>::type batched_b;
  // Convolution: blocks of kLine channels in a group (planes: of kLine positions in an image, or in a run of
  // outputs), channels of a group in the operands and in the filter.
  FastDivisor channel_blocks;
  i64 first_channels, second_channels;
  WindowWalk walk[kWindowAxes];
  i64 part;  // numbers in parts: elements along k, or channels, from one part of a number to the next
};

// Where a tile's entry lies in the map of an operand: a number, which is found at every step, or coordinates,
// which are found once a tile.
template <bool kOfB>
FUSOR_DEVICE const auto& batch_of(const Operands& p) {
  if constexpr (kOfB)
    return p.batched_b;
  else
    return p.batched_a;
}
template <bool kOfB, bool kWalked = kOfB ? bool(Config::walks_b) : bool(Config::walks_a)>
struct EntryIn {
  __device__ EntryIn(const Operands&, const Tile&) {}
  __device__ int place(const Operands& p, const Tile& tile) const {
    const int entry = kExperts ? tile.expert : tile.entry;
    return batch_of<kOfB>(p) != 0 ? entry : 0;
  }
};
template <bool kOfB>
struct EntryIn<kOfB, true> {
  const MapEntry<3> found;
  __device__ EntryIn(const Operands& p, const Tile& tile) : found(batch_of<kOfB>(p).place(tile.entry)) {}
  __device__ const MapEntry<3>& place(const Operands&, const Tile&) const { return found; }
};

template <bool kOfB>
FUSOR_DEVICE auto entry_in(const Operands& p, const Tile& tile) {
  return EntryIn<kOfB>(p, tile).place(p, tile);
}

enum : bool { kStepsByTap = kOp == kFprop || kOp == kDgrad || kPlanes };

// The counterpart of Sharing for an operand that one block loads alone.
struct Alone {
  enum : int { kBlocks = 1 };
  FUSOR_DEVICE int rank() { return 0; }
};

// Where a step's operands lie along k, or a block of channels among those of a tap. Numbers in parts: low,
// high and middle parts of the same 64 numbers, in the order in which their products want them; high parts
// lie before middle and low ones.
FUSOR_DEVICE int place_along_k(const Operands& p, int step) {
  if constexpr (!kInParts) return step * kTileK;
  return (step + 2) % kPartsOfNumber * static_cast<int>(p.part) + step / kPartsOfNumber * kTileK;
}

// One step of k of a convolution: a tap and a block of channels, the latter varying faster. Of planes: an
// image and a block of positions.
struct TapStep {
  int block, tap;
  int at[kWindowAxes];
  int in_filter;

  __device__ void begin(const Operands& p, const Schedule& schedule, const Tile& tile, int step) {
    Index rest = step;
    block = static_cast<int>(p.channel_blocks.split(rest));
    tap = static_cast<int>(rest);
    split(p, schedule, tile);
  }
  __device__ void advance(const Operands& p, const Schedule& schedule, const Tile& tile) {
    if (++block < static_cast<int>(p.channel_blocks.divisor)) return;
    block = 0;
    ++tap;
    split(p, schedule, tile);
  }
  /// The first channel of the block, of those of a group.
  __device__ int place(const Operands& p) const { return place_along_k(p, block); }
  __device__ void split(const Operands& p, const Schedule& schedule, const Tile& tile) {
    if constexpr (kPlanes)
      in_filter = tap;
    else
      in_filter = schedule.split_tap(p.walk, tile, tap, at);
  }
};

// The first pixel of a column.
struct PixelStart {
  int image;
  int at[kWindowAxes];

  __device__ PixelStart(const Operands& p, int pixel) {
    Index rest = pixel;
#pragma unroll
    for (int i = kSpatial - 1; i >= 0; --i)
      at[i] = static_cast<int>(p.walk[i].pixels.split(rest) * p.walk[i].stride + p.walk[i].lower);
    image = static_cast<int>(rest);
  }
};

template <class Shared>
FUSOR_DEVICE void load_pixels(u8* to, const TensorMap& map, const Operands& p, const Schedule& schedule,
                              const Tile& tile, Barrier& full, const PixelStart& start, const TapStep& step,
                              int channel) {
  u16 offset[kWindowAxes];
#pragma unroll
  for (int i = 0; i < kWindowAxes; ++i)
    offset[i] =
        static_cast<u16>(step.at[i] * static_cast<int>(p.walk[i].slope) + schedule.origin(p.walk, tile, i));
  if constexpr (Shared::kBlocks > 1)
    copy_pixels_to(Shared::blocks(), to, map, full, channel, start.at, start.image, offset);
  else
    copy_pixels(to, map, full, channel, start.at, start.image, offset);
}

// One box for the blocks that share it. `outer`: a coordinate, or where an entry lies in a map of five axes.
template <class Shared, class Outer>
FUSOR_DEVICE void copy_shared(u8* to, const TensorMap& map, Barrier& full, int c0, int c1,
                              const Outer& outer) {
  if constexpr (Shared::kBlocks > 1)
    copy_box_to(Shared::blocks(), to, map, full, c0, c1, outer);
  else
    copy_box(to, map, full, c0, c1, outer);
}

// A tile of lines: boxes of kLine adjacent elements by kTileK, or by all of the tile's extent; or this
// block's share of them: of boxes across k that are too few, some steps of k.
template <bool kAcrossAdjacent, int kExtent, class Shared, bool kOuterIsMiddle = false, class Outer>
FUSOR_DEVICE void load_lines(u8* tile, const TensorMap& map, Barrier& full, int across, int k,
                             const Outer& outer) {
  constexpr int kShare = kExtent / Shared::kBlocks;
  const int first = Shared::rank() * kShare;
  const auto copy = [&](u8* to, int inner, int line) {
    if constexpr (kOuterIsMiddle)
      copy_shared<Shared>(to, map, full, inner, outer, line);
    else
      copy_shared<Shared>(to, map, full, inner, line, outer);
  };
  if constexpr (kAcrossAdjacent && kShare % kLine != 0) {
    constexpr int kShareOfSteps = kTileK / Shared::kBlocks;
    const int step = Shared::rank() * kShareOfSteps;
#pragma unroll
    for (int i = 0; i < kExtent; i += kLine) copy(tile + (i + step) * kLineBytes, across + i, k + step);
  } else if constexpr (kAcrossAdjacent) {
#pragma unroll
    for (int i = 0; i < kShare; i += kLine) copy(tile + (first + i) * kLineBytes, across + first + i, k);
  } else {
    copy(tile + first * kLineBytes, k, across + first);
  }
}

// One side of the product. kSecond: the second operand of the op, wherever the tensor cores have it. Shared:
// Sharing of that side.
template <bool kSecond, bool kAcrossAdjacent, int kExtent, class Shared>
struct OperandLoader {
  enum : bool {
    kIsFilter = kSecond && (kOp == kFprop || kOp == kDgrad),
    kIsPixels = !kSecond && (kOp == kFprop || kOp == kDgrad),
    kIsTaps = kSecond && kOp == kWgrad && !kPlanes,
  };
  enum : int { kTaps = kIsTaps ? kExtent / kLine : 1 };

  // wgrad: the tap and the channels of every 64 columns, the same in all steps.
  TapStep taps[kTaps];
  // matmul: the entry of the batch.
  EntryIn<kSecond != kSwapped> entry;

  __device__ OperandLoader(const Operands& p, const Schedule& schedule, const Tile& tile, int across)
      : entry(p, tile) {
    if constexpr (kIsTaps)
#pragma unroll
      for (int i = 0; i < kTaps; ++i) taps[i].begin(p, schedule, tile, across / kLine + i);
  }

  __device__ void load(u8* to, const TensorMap& map, const Operands& p, const Schedule& schedule,
                       Barrier& full, const Tile& tile, int across, const PixelStart& start,
                       const TapStep& tap, int step) const {
    if constexpr (kOp == kMatmul) {
      load_lines<kAcrossAdjacent, kExtent, Shared>(to, map, full, across, place_along_k(p, step),
                                                   entry.place(p, tile));
    } else if constexpr (kIsPixels) {
      // `start` is that of this block's share.
      load_pixels<Shared>(to + Shared::rank() * (kExtent / Shared::kBlocks) * kLineBytes, map, p, schedule,
                          tile, full, start, tap,
                          tap.place(p) + tile.entry * static_cast<int>(p.first_channels));
    } else if constexpr (kIsFilter) {
      // [output channel][tap][input channel]: the taps lie between lines.
      const int outputs = tile.entry * static_cast<int>(p.second_channels);
      if constexpr (kOp == kFprop)
        load_lines<false, kExtent, Shared, true>(to, map, full, across + outputs, tap.place(p),
                                                 tap.in_filter);
      else
        load_lines<kAcrossAdjacent, kExtent, Shared, true>(to, map, full, across, tap.place(p) + outputs,
                                                           tap.in_filter);
    } else if constexpr (kPlanes) {
      load_lines<false, kExtent, Shared>(to, map, full, across, tap.block * kLine, tap.tap);
    } else if constexpr (!kSecond) {
      load_lines<true, kExtent, Shared>(
          to, map, full, across + tile.entry * static_cast<int>(p.first_channels), place_along_k(p, step), 0);
    } else {
#pragma unroll
      for (int i = 0; i < kTaps; ++i)
        load_pixels<Alone>(to + i * kLine * kLineBytes, map, p, schedule, tile, full, start, taps[i],
                           taps[i].block * kLine + tile.entry * static_cast<int>(p.second_channels));
    }
  }
};

using LoadA = OperandLoader<kSwapped, kRowsAdjacentA, kTileM, Sharing<true>>;
using LoadB = OperandLoader<!kSwapped, kColumnsAdjacentB, kColumns, Sharing<false>>;

// The operand of a matmul that may be loaded before the launch in front has ended: 1: a, 2: b, 0: none.
enum : int { kGiven = Config::given };

// Fills the ring's first round with the operand that is given. One thread, behind the barriers.
FUSOR_DEVICE void load_ahead(const TensorMap& a, const TensorMap (&b)[kSiblings], const Operands& p,
                             const Schedule& schedule, Stages& stages) {
  if (first_item() >= schedule.items()) return;
  const Tile tile = schedule.tile(first_item());
  const PixelStart start(p, 0);
  const TapStep tap{};
#pragma unroll 1
  for (int stage = 0; stage < kStages && tile.begin + stage < tile.end; ++stage) {
    Barrier& full = stages.full[stage];
    full.arrive_and_expect(kTileBytesA + kTileBytesB);
    if constexpr (kGiven == 1) {
      LoadA(p, schedule, tile, tile.row)
          .load(stages.a[stage], a, p, schedule, full, tile, tile.row, start, tap, tile.begin + stage);
    } else {
      const LoadB load_b(p, schedule, tile, tile.column);
#pragma unroll
      for (int i = 0; i < kSiblings; ++i)
        load_b.load(stages.b[stage] + i * kColumns * kLineBytes, b[i], p, schedule, full, tile, tile.column,
                    start, tap, tile.begin + stage);
    }
  }
}

// One thread fills the ring, tile after tile. `b`: of every sibling; `ahead`: after load_ahead().
FUSOR_DEVICE void load(const TensorMap& a, const TensorMap (&b)[kSiblings], const Operands& p,
                       const Schedule& schedule, Stages& stages, bool ahead = false) {
  // Boxes of pixels, which are rows unless the product is exchanged.
  using Pixels = Sharing<!kSwapped>;
  constexpr int kShareOfPixels = (kSwapped ? kColumns : kTileM) / Pixels::kBlocks;
  Ring ring;
  const int items = schedule.items();
  int given = ahead ? kStages : 0;  // steps of the first tile whose given operand is on its way
  for (int item = first_item(); item < items; item += item_step()) {
    const Tile tile = schedule.tile(item);
    const LoadA load_a(p, schedule, tile, tile.row);
    const LoadB load_b(p, schedule, tile, tile.column);
    TapStep tap{};
    if constexpr (kStepsByTap) tap.begin(p, schedule, tile, tile.begin);
    PixelStart start(p, (kSwapped ? tile.column : tile.row) + Pixels::rank() * kShareOfPixels);
#pragma unroll 1
    for (int step = tile.begin; step < tile.end; ++step, ring.advance()) {
      if constexpr (kOp == kWgrad && !kPlanes) start = PixelStart(p, place_along_k(p, step));
      Barrier& full = stages.full[ring.stage];
      stages.empty[ring.stage].wait(ring.parity ^ 1);
      const bool is_given = kGiven != 0 && given > 0;
      if (!is_given) full.arrive_and_expect(kTileBytesA + kTileBytesB);
      if (kGiven != 1 || !is_given)
        load_a.load(stages.a[ring.stage], a, p, schedule, full, tile, tile.row, start, tap, step);
      if (kGiven != 2 || !is_given) {
#pragma unroll
        for (int i = 0; i < kSiblings; ++i)
          load_b.load(stages.b[ring.stage] + i * kColumns * kLineBytes, b[i], p, schedule, full, tile,
                      tile.column, start, tap, step);
      }
      if constexpr (kGiven != 0) --given;
      if constexpr (kStepsByTap) tap.advance(p, schedule, tile);
    }
    given = 0;
  }
  // A block whose stages others fill and release may not end before they have.
  if constexpr (kShares)
    for (int stage = 0; stage < kStages; ++stage, ring.advance())
      stages.empty[ring.stage].wait(ring.parity ^ 1);
}
