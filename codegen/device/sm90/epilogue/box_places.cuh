// Owns where TMA expects the elements of a box of results of sm_90a's tensor-core contraction, and which of
// its lines lanes name to ldmatrix and stmatrix. Index arithmetic only, so that a host test runs it.
#pragma once

/// 64 rows by kColumns of kBytes an element. A box consists of blocks: along columns of up to 128 bytes of
/// every row, along rows of 128 bytes of every column. TMA may see kJoined whole rows, which follow one
/// another in memory, as one line.
template <int kBytes, bool kAlongColumns, int kColumns, int kJoined = 1>
struct BoxPlaces {
  enum : int {
    kLineColumns = 128 / kBytes,
    kBlockColumns = !kAlongColumns || kColumns < kLineColumns ? kColumns : kLineColumns,
    kBlockRows = kAlongColumns || kBytes == 2 ? 64 : 32,
    kLine = (kAlongColumns ? kBlockColumns : kBlockRows) * kBytes,
    kBlockBytes = kBlockRows * kBlockColumns * kBytes,
    kBoxBytes = 64 * kColumns * kBytes,
  };

  /// A byte of a line of a block: units of 16 bytes are swizzled over the length of TMA's line.
  static __device__ int place(int line, int byte) {
    const int at = line * kLine + byte;
    return at ^ (at >> 7 & (kJoined * kLine / 16 - 1)) << 4;
  }
  /// An element of a block.
  static __device__ int element(int row, int column) {
    return kAlongColumns ? place(row, column * kBytes) : place(column, row * kBytes);
  }

  /// The line that a lane names of four matrices of 8 x 8 elements of 16 bits, rows first, which begin at
  /// `column`; `row`: that of its line where lines run along columns, else the first of its matrix.
  static __device__ int line_of_matrix(int lane, int row, int column) {
    return element(row, column + lane / 16 * 8 + (kAlongColumns ? 0 : lane % 8));
  }
  /// The matrix to which that line belongs, rows first.
  static __device__ int matrix_row(int lane) { return lane / 8 % 2; }
};
