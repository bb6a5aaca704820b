// Owns where a tile of x and the filters of its groups lie in shared memory for tensor cores, and what a lane
// of a warp names to ldmatrix there. Integers only, so that a host test runs it.
//
//   chunk     8 channels of one pixel, or 8 neighbouring numbers of a filter, 16 bytes: a line of ldmatrix
//   k         of one row of the window: chunks of tap 0, chunks of tap 1, ...; two chunks are a step
//   tile      x [line][column in the order of its phase][chunk of all groups of the block], an odd pitch
//   filters   [group][output][k], or in a gradient [group][k][chunk of outputs]; odd pitches, too
//
// Eight lanes of ldmatrix name chunks that are an odd number of chunks apart: no two of them share a bank.
#pragma once

/// kIn and kOut: chunks of a group in x and in the result; kLines rows of the window of kTaps each. Columns
/// of x that are kStride apart lie side by side.
template <int kIn, int kOut, int kLines, int kTaps, int kStride, int kDilation, int kGroups, bool kTransposed>
struct GroupedLayout {
  enum : int {
    kPixelChunks = kGroups * kIn,
    kPixelBytes = (kPixelChunks | 1) * 16,
    kLineChunks = kTaps * kIn,  // of k, in a row of the window
    kSteps = (kLineChunks + 1) / 2,
    kHasHalfStep = kLineChunks % 2,
    kAllChunks = kLines * kLineChunks,
    kFilterPitch = ((kTransposed ? kOut : kAllChunks) | 1) * 16,
    kFilterRows = (kTransposed ? kAllChunks : kOut) * 8,
    kFilterBytes = kFilterRows * kFilterPitch,  // of a group
    // Behind them: a step of half a fragment reads past the last chunk.
    kFiltersBytes = kGroups * kFilterBytes + (kTransposed ? 8 * kFilterPitch : 16),
  };

  /// A column of the tile in its line; `phase` bytes lie between columns 0 and 1 where the stride is larger
  /// than 1.
  static __device__ int column(int column, int phase) {
    return column % kStride * phase + column / kStride * kPixelBytes;
  }
  /// From result 0 to what chunk `chunk` of k meets.
  static __device__ int met(int chunk, int phase) {
    return column(chunk / kIn * kDilation, phase) + chunk % kIn * 16;
  }
  /// The same for the chunk that a lane names in step `step`: the upper half of a warp names the second one.
  static __device__ int met_by_lane(int step, int lane, int phase) {
    const int second = 2 * step + 1 < kLineChunks ? 2 * step + 1 : 2 * step;
    return lane < 16 ? met(2 * step, phase) : met(second, phase);
  }

  /// Filter chunk: in a gradient 8 outputs at one k, else 8 neighbours of k of one output. `inner` counts the
  /// channels of the operand within one tap, `outer` those of the result.
  static __device__ int filter(int group, int tap, int inner, int outer) {
    const int k = tap * kIn * 8 + inner;
    return group * kFilterBytes +
           (kTransposed ? k * kFilterPitch + outer / 8 * 16 : outer * kFilterPitch + k / 8 * 16);
  }
  /// What a lane names of the first step: matrices in the order (columns 0-7, k 0), (columns 0-7, k 8),
  /// (columns 8-15, k 0), (columns 8-15, k 8).
  static __device__ int filter_of_lane(int lane) {
    const int second_k = lane / 8 % 2, second_columns = lane / 16;
    if (kTransposed) return (second_k * 8 + lane % 8) * kFilterPitch + second_columns * 16;
    return (second_columns * 8 + lane % 8) * kFilterPitch + second_k * 16;
  }
  /// From there to a step, and to a block of 8 columns.
  static __device__ int filter_step(int line, int step) {
    return (line * kLineChunks + 2 * step) * (kTransposed ? 8 * kFilterPitch : 16);
  }
  static __device__ int filter_block(int block) { return block * (kTransposed ? 16 : 8 * kFilterPitch); }
};
