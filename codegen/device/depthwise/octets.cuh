// Owns where rows of x and dy lie in shared memory for tensor cores, and what a lane of a warp names to
// ldmatrix there. Integers only, so that a host test runs it.
//
//   octet    8 neighbouring results of one image: half the k of an mma; a warp multiplies two at a time
//   chunk    8 channels (a group) of one pixel, 16 bytes: a line of ldmatrix
//   row      x [octet][group][8 + kTaps - 1 pixels], behind it dy [octet][group][8 pixels]
//
//   a (transposed)   rows: channels at tap k, channels at tap k + 1     k: pixels of both octets
//   b (transposed)   columns: channels of dy                           k: the same pixels
//   a * b            16 x 8 sums, of which those of a channel by itself are gradients
#pragma once

/// Chunks from group to group, so that neither lanes that write chunks of several groups nor lanes that read
/// neighbours meet in a bank.
static constexpr __device__ int octet_pitch(int pixels, int groups) {
  const int apart = 8 / groups;
  while (pixels % (2 * apart) != apart) ++pixels;
  return pixels;
}

/// A row of a block: kGroups groups of channels, two octets for each of kLanes warps a group.
template <int kTaps, int kGroups, int kLanes>
struct OctetRow {
  enum : int {
    kOctets = 2 * kLanes,
    kPixels = 8 + kTaps - 1,
    kPitch = octet_pitch(kPixels, kGroups),
    kResultPitch = octet_pitch(8, kGroups),
    kChunks = kOctets * kGroups * kPixels,
    kResultChunks = kOctets * kGroups * 8,
    kResultsAt = kOctets * kGroups * kPitch * 16,  // byte where dy begins
    kBytes = kResultsAt + kOctets * kGroups * kResultPitch * 16,
  };

  /// Chunk number `chunk` of x or dy, groups next to each other, as they are in memory.
  struct Chunk {
    int octet, pixel, group;
  };
  template <bool kOfResults>
  static __device__ Chunk chunk(int number) {
    constexpr int kPixelsOf = kOfResults ? 8 : int(kPixels);
    return {number / kGroups / kPixelsOf, number / kGroups % kPixelsOf, number % kGroups};
  }
  template <bool kOfResults>
  static __device__ int offset(const Chunk& chunk) {
    if (kOfResults)
      return kResultsAt + ((chunk.octet * kGroups + chunk.group) * kResultPitch + chunk.pixel) * 16;
    return ((chunk.octet * kGroups + chunk.group) * kPitch + chunk.pixel) * 16;
  }

  /// The line that a lane of a warp names for taps 0 and 1: four matrices, tap 0 and tap 1 of the first
  /// octet, then of the second. Those of tap k lie k * 16 bytes further on. Behind an odd number of taps
  /// there is one more, whose lines are any others of the row.
  static __device__ int columns(int warp, int lane) {
    const int matrix = lane / 8;
    return offset<false>({warp / kGroups * 2 + matrix / 2, matrix % 2 + lane % 8, warp % kGroups});
  }
  /// The same for dy: two matrices, which the first 16 lanes name.
  static __device__ int results(int warp, int lane) {
    return offset<true>({warp / kGroups * 2 + lane / 8 % 2, lane % 8, warp % kGroups});
  }

  /// Whether a lane has sums of a channel by itself, and that channel. Sum 0 is the first tap's and sum 2 the
  /// second's; 1 and 3 where the channel is odd.
  static __device__ bool has_gradients(int lane) { return lane % 4 == lane / 8; }
  static __device__ int channel(int lane) { return lane / 4; }
};

/// Two rows of x of a block, one behind the other, where pixels are the rows of an mma and nothing is
/// transposed:
///
///   a (16 x 16)    rows: pixels of both octets     k: channels at one tap, channels at another
///   b (16 x 8)     the filters of both taps, each on a diagonal        a * b: results [pixel][channel]
template <int kTaps, int kGroups, int kLanes>
struct OctetRowPair {
  using Row = OctetRow<kTaps, kGroups, kLanes>;
  enum : int { kRowBytes = Row::kResultsAt, kBytes = 2 * kRowBytes };

  /// The line that a lane of a warp names for taps 0 and 1 of the first row: four matrices, tap 0 of both
  /// octets, then tap 1. Those of tap k lie k * 16 bytes further on.
  static __device__ int across(int warp, int lane) {
    const int matrix = lane / 8;
    return Row::template offset<false>(
        {warp / kGroups * 2 + matrix % 2, matrix / 2 + lane % 8, warp % kGroups});
  }
  /// The same for the last tap in both rows.
  static __device__ int down(int warp, int lane) {
    const int matrix = lane / 8;
    return matrix / 2 * kRowBytes + Row::template offset<false>({warp / kGroups * 2 + matrix % 2,
                                                                 kTaps - 1 + lane % 8, warp % kGroups});
  }

  /// Whether a lane has elements of the diagonals: those of one channel, that of the sums that it would have
  /// in a gradient. They are the upper halves of its words where the channel is odd.
  static __device__ bool has_filters(int lane) { return Row::has_gradients(lane); }
  static __device__ int channel(int lane) { return Row::channel(lane); }
};
