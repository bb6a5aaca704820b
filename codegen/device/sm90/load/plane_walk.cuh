// Owns the walk of a wgrad over planes of positions: which outputs make a step of k, and where the inputs lie
// that they meet at a tap. All strides are 1. Templates over the operands' walks, for a host test.
//
//   along every axis   input = output + tap * slope + lower
//   a step             one block of a run of outputs, in `rows` rows `stride` apart on the first axis
//   whole planes       positions have one coordinate; slope and lower are distances in the plane
#pragma once

/// One step of k. kAxes: coordinates of a position, outermost first.
template <int kAxes>
struct PlaneStep {
  int block;  // of a run
  int at[kAxes];
  int image;

  template <class Operands, class Index>
  __device__ void begin(const Operands& p, Index step) {
    Index rest = step;
    block = static_cast<int>(p.channel_blocks.split(rest));
    for (int i = kAxes - 2; i >= 0; --i) at[i] = static_cast<int>(p.walk[i].pixels.split(rest));
    at[kAxes - 1] = 0;
    image = static_cast<int>(rest);
  }
  template <class Operands>
  __device__ void advance(const Operands& p) {
    if (++block < static_cast<int>(p.channel_blocks.divisor)) return;
    block = 0;
    for (int i = kAxes - 2; i >= 0; --i) {
      if (++at[i] < static_cast<int>(p.walk[i].pixels.divisor)) return;
      at[i] = 0;
    }
    ++image;
  }
  /// The first output in the first of the step's `rows` rows, where blocks have `line` positions.
  template <class Operands>
  __device__ void first_position(const Operands& p, int line, int rows, int (&position)[kAxes]) const {
    for (int i = 0; i < kAxes; ++i) position[i] = at[i];
    position[kAxes - 1] = block * line;
    if (rows > 1) {
      const int apart = static_cast<int>(p.walk[0].stride), group = at[0] / apart;
      position[0] = group * rows * apart + at[0] - group * apart;
    }
  }
};

/// A block of columns: its tap, and which of the blocks of channels, in the order of Contraction::column.
template <int kSpatial>
struct PlaneTap {
  int at[kSpatial];
  int channel_block;

  template <class Operands, class Index>
  __device__ void begin(const Operands& p, Index index) {
    at[0] = static_cast<int>(p.walk[0].window.split(index));
    for (int i = kSpatial - 1; i > 0; --i) at[i] = static_cast<int>(p.walk[i].window.split(index));
    channel_block = static_cast<int>(index);
  }
  template <class Operands>
  __device__ void advance(const Operands& p) {
    if (++at[0] < static_cast<int>(p.walk[0].window.divisor)) return;
    at[0] = 0;
    for (int i = kSpatial - 1; i > 0; --i) {
      if (++at[i] < static_cast<int>(p.walk[i].window.divisor)) return;
      at[i] = 0;
    }
    ++channel_block;
  }
  /// Moves from a position of the outputs to that of the inputs that it meets.
  template <class Operands, int kAxes>
  __device__ void move(const Operands& p, int (&position)[kAxes]) const {
    for (int i = 0; i < kSpatial; ++i)
      position[kAxes == kSpatial ? i : 0] +=
          at[i] * static_cast<int>(p.walk[i].slope) + static_cast<int>(p.walk[i].lower);
  }
};
