// Owns the loader of a wgrad of windows whose channels are planes: positions are k, and lines of both
// operands lie along them. All strides are 1.
//
//   operand        loaded as
//   output         lines along a run of outputs                        k = (image, rows, positions)
//   input          the same lines, shifted by the tap: a block of kChannelBlock columns
//
//   run: a row     its last line reaches beyond the end, where outputs, inputs and padding are zeros. TMA
//                  reads from multiples of 16 bytes, so taps along the last axis are such multiples apart
//   run: a plane   (kFlat) rows of both operands lie equally far apart, with zeros between: a tap is one
//                  distance for all positions
//   kRows          rows of outputs in a step, as far apart as two taps along the first axis; all rows of
//                  inputs of one of them but the first are rows of the next one, too
#pragma once

#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/load/plane_walk.cuh"

enum : bool { kFlat = Config::flat_planes };
enum : int { kPlaneAxes = kFlat ? 1 : kSpatial };
using Step = PlaneStep<kPlaneAxes>;
using Tap = PlaneTap<kSpatial>;
static_assert(kRows == 1 || (!kFlat && !kSwapped && kSpatial > 1), "rows of one step lie below each other");

template <int kExtent>
FUSOR_DEVICE void load_outputs(u8* to, const TensorMap& map, const Operands& p, Barrier& full,
                               const Step& step, int channel) {
  int position[kPlaneAxes];
  step.first_position(p, kLine, kRows, position);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    copy_planes(to + row * kExtent * kLineBytes, map, full, position, channel, step.image);
    position[0] += static_cast<int>(p.walk[0].stride);
  }
}

template <int kExtent>
FUSOR_DEVICE void load_inputs(u8* to, const TensorMap& map, const Operands& p, Barrier& full,
                              const Step& step, Tap tap, int first_channel) {
  constexpr int kBlocks = kExtent / kChannelBlock, kBlockBytes = kChannelBlock * kLineBytes;
  static_assert(kExtent % kChannelBlock == 0, "whole blocks");
  int position[kPlaneAxes];
#pragma unroll 1
  for (int i = 0; i < kBlocks + kRows - 1; ++i) {
    if (kRows == 1 || i == 0) {
      step.first_position(p, kLine, kRows, position);
      tap.move(p, position);
    }
    copy_planes(to + i * kBlockBytes, map, full, position, first_channel + tap.channel_block * kChannelBlock,
                step.image);
    if constexpr (kRows == 1)
      tap.advance(p);
    else
      position[0] += static_cast<int>(p.walk[0].stride);
  }
}

// Like load() of sm90/load/boxes.cuh.
FUSOR_DEVICE void load_planes(const TensorMap& a, const TensorMap& b, const Operands& p,
                              const Schedule& schedule, Stages& stages) {
  Ring ring;
  const int items = schedule.items();
  for (int item = first_item(); item < items; item += item_step()) {
    const Tile tile = schedule.tile(item);
    const int output = (kSwapped ? tile.column : tile.row) + tile.entry * static_cast<int>(p.first_channels);
    const int input = tile.entry * static_cast<int>(p.second_channels);
    Tap tap;
    tap.begin(p, Index((kSwapped ? tile.row : tile.column) / kChannelBlock));
    Step at;
    at.begin(p, Index(tile.begin));
#pragma unroll 1
    for (int step = tile.begin; step < tile.end; ++step, ring.advance()) {
      Barrier& full = stages.full[ring.stage];
      u8* const rows = stages.a[ring.stage];
      u8* const columns = stages.b[ring.stage];
      stages.empty[ring.stage].wait(ring.parity ^ 1);
      full.arrive_and_expect(kTileBytesA + kTileBytesB);
      if constexpr (kSwapped) {
        load_inputs<kTileM>(rows, a, p, full, at, tap, input);
        load_outputs<kTileN>(columns, b, p, full, at, output);
      } else {
        load_outputs<kTileM>(rows, a, p, full, at, output);
        load_inputs<kTileN>(columns, b, p, full, at, tap, input);
      }
      at.advance(p);
    }
  }
}
