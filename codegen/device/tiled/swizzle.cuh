// Owns where an operand tile's elements lie in shared memory, and which of them a lane names to ldmatrix.
// Integers only, so that a host test runs it.
#pragma once

/// A tile of lines, each in chunks of 16 bytes, permuted by the line's number. Neither lanes that write a
/// line nor lanes that read one chunk of 8 lines (with kTurn 2: two chunks of 4 lines) meet in a bank.
template <int kLineBytes, int kTurn = 1>
struct SwizzledLines {
  enum : int {
    kChunks = kLineBytes / 16,
    kPeriod = kChunks < 8 ? kChunks : 8,
    kLinesOfAllBanks = 8 / kPeriod,  // which are 128 bytes wide
  };

  /// The offset of byte `byte` of line `line` in the tile.
  static __device__ int offset(int line, int byte) {
    const int chunk = byte / 16 ^ line / kLinesOfAllBanks * kTurn % kPeriod;
    return line * kLineBytes + chunk * 16 + byte % 16;
  }
};

/// An operand tile of kSteps steps of k by kExtent rows or columns, elements of kBytes bytes. Lines run along
/// k or across it.
template <int kSteps, int kExtent, int kBytes, bool kLinesAlongK>
struct OperandTile {
  // ldmatrix moves pairs of bytes: it cannot transpose elements of four, which are read one by one.
  enum : bool { kByElement = kBytes == 4 && !kLinesAlongK };
  using Lines = SwizzledLines<(kLinesAlongK ? kSteps : kExtent) * kBytes, kByElement ? 2 : 1>;
  enum : int { kSize = kSteps * kExtent * kBytes };

  static __device__ int offset(int across, int step) {
    return kLinesAlongK ? Lines::offset(across, step * kBytes) : Lines::offset(step, across * kBytes);
  }

  /// The line that a lane names to ldmatrix for a fragment of 16 rows or columns by 32 bytes of k: four
  /// matrices of 8 x 8 pairs of bytes. Lines across k are read transposed. Order of the matrices:
  ///   rows (a)      rows 0-7, k 0 | rows 8-15, k 0 | rows 0-7, k 1 | rows 8-15, k 1       k: halves
  ///   columns (b)   columns 0-7, k 0 | columns 0-7, k 1 | columns 8-15, k 0 | columns 8-15, k 1
  template <bool kRows>
  static __device__ int fragment(int lane, int first, int step) {
    const int matrix = lane / 8;
    const int across_half = kRows ? matrix % 2 : matrix / 2, k_half = kRows ? matrix / 2 : matrix % 2;
    if (kLinesAlongK) return Lines::offset(first + 8 * across_half + lane % 8, step * kBytes + 16 * k_half);
    return Lines::offset(step + 8 * k_half + lane % 8, (first + 8 * across_half) * kBytes);
  }

  /// Where lane `lane` finds the element of 4 bytes that is register `number` of that fragment. `step` is a
  /// multiple of 8, so that the exchange of chunks is the lane's own.
  template <bool kRows>
  static __device__ int element(int lane, int number, int first, int step) {
    const int across_half = kRows ? number % 2 : number / 2, k_half = kRows ? number / 2 : number % 2;
    return Lines::offset(lane % 4, (first + 8 * across_half + lane / 4) * kBytes) +
           (step + 4 * k_half) * kExtent * kBytes;
  }
};

/// Row and column of sum i of lane `lane` in a 16 x 8 block of mma.sync.
static __device__ int sum_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
static __device__ int sum_column(int lane, int i) { return lane % 4 * 2 + i % 2; }
