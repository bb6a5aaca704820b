// Owns the boxes of shared memory of the tensor-core contraction of sm_90a, for results on the way to memory
// and for staged operands of the epilogue, which lie as the first result does.
//
//   one slot (kBoxBytes), 64 rows by kBoxColumns:
//   | first result             | second result          | operands whose elements have no result's size |
//   | staged operand of its    | staged operand of its  |
//   |   size, overwritten      |   size, overwritten    |
#pragma once

#include "codegen/device/sm90/epilogue/box_places.cuh"
#include "codegen/device/sm90/pipeline/tiling.cuh"

using Out = Config::Out;
// A second result that TMA stores; else the type of the first.
enum : bool { kHasSecond = Config::has_second };
using SecondOut = Config::SecondOut;
using FirstStaged = Config::Staged0;
using SecondStaged = Config::Staged1;

// How results leave: threads store them from registers; boxes, by TMA; the sums of a part of k as they are,
// to the workspace; boxes, whose lines or planes threads store; the sums of a part of k, by way of the shared
// memory of the cluster whose blocks have the others.
enum class StorePath { threads, boxes, partials, lines, planes, gathered };
FUSOR_DEVICE constexpr StorePath store_path() { return static_cast<StorePath>(Config::store); }
enum : bool {
  kBoxed = store_path() == StorePath::boxes || store_path() == StorePath::lines ||
           store_path() == StorePath::planes,
  kAlongColumns = Config::y_along_columns,
};

// Columns that the epilogue processes at a time: a piece. The text of a long epilogue stands once, in a loop;
// a short one is faster unrolled over all pieces of the sums.
enum : bool { kUnrolled = Config::unrolled };
enum : int { kPiece = kColumns % 32 == 0 ? 32 : 16, kPieces = kColumns / kPiece };
static_assert(kColumns % kPiece == 0 && kSiblings <= 2);

// 64 rows of a warpgroup.
enum : int { kBoxColumns = Config::box_columns };
// Whole rows of a dense result that TMA stores as one line.
enum : int { kJoinedRows = Config::joined_rows };
static_assert(kJoinedRows == 1 || (kAlongColumns && !kSwapped && kBoxColumns == kColumns));
template <class T>
using Box = BoxPlaces<int(sizeof(T)), kAlongColumns, kBoxColumns, kJoinedRows>;

// ---- A slot: boxes of the same rows and columns ----

// A staged operand shares the box of a result of its element size: a thread reads each element before it
// writes the same place.
template <class A, class B>
struct Fits {
  enum : bool { kValue = sizeof(A) == sizeof(B) && sizeof(A) == 2 };
};
template <class A>
struct Fits<A, A> {
  enum : bool { kValue = true };
};
enum : int {
  kSecondAt = Box<Out>::kBoxBytes,
  kResultBytes = kSecondAt + (kHasSecond ? Box<SecondOut>::kBoxBytes : 0),
};
template <class T, int kTaken>
static constexpr int kStagedAt =
    Fits<T, Out>::kValue&& kTaken != 0                              ? 0
    : kHasSecond&& Fits<T, SecondOut>::kValue&& kTaken != kSecondAt ? kSecondAt
                                                                    : kResultBytes;
enum : int { kFirstStagedAt = kStagedAt<FirstStaged, -1> };
enum : bool { kFirstIsOwn = kStaged > 0 && kFirstStagedAt == kResultBytes };
enum : int {
  kSecondStagedAt =
      kStagedAt<SecondStaged, kFirstStagedAt> +
      (kFirstIsOwn && kStagedAt<SecondStaged, kFirstStagedAt> == kResultBytes ? Box<FirstStaged>::kBoxBytes
                                                                              : 0)
};
enum : bool { kSecondIsOwn = kStaged > 1 && kSecondStagedAt >= kResultBytes };
enum : int {
  kBoxBytes = kResultBytes + (kFirstIsOwn ? Box<FirstStaged>::kBoxBytes : 0) +
              (kSecondIsOwn ? Box<SecondStaged>::kBoxBytes : 0),
  kBoxes = kBoxed ? kConsumers * kBoxesOfConsumer : 0,
};

// The slot that is next, and the parity of its barriers.
using BoxRing = RingOf<kBoxesOfConsumer>;

// What a grid says of a tile's entry in the result's map: its number, or its coordinates.
template <class Grid>
using OuterOf = decltype(static_cast<const Grid*>(nullptr)->outer(Tile{}));

// Calls `move` with every block of a box that exists, from `row` and `column` on: with where it is, and where
// it lies in the map of something that lies as the first result does.
template <class T, class Grid, class Move>
FUSOR_DEVICE void for_blocks(const Problem& problem, const Grid& grid, const Tile& tile, int row, int column,
                             u8* box, Move move) {
  const int rows = static_cast<int>(kSwapped ? problem.n : grid.rows(problem)),
            columns = static_cast<int>(kSwapped ? grid.rows(problem) : problem.n);
  const OuterOf<Grid> outer = grid.outer(tile);
  // Columns of a wgrad are a channel and a tap.
  const auto send = [&](u8* from, int inner, int line) {
    if constexpr (kOp == kWgrad) {
      Index tap = inner;
      inner = static_cast<int>(problem.channels.split(tap));
      move(from, inner, line, static_cast<int>(tap));
    } else {
      move(from, inner, line, outer);
    }
  };
  const int channel = kOp == kMatmul ? 0
                                     : tile.entry * static_cast<int>(kOp == kFprop ? problem.output_channels
                                                                                   : problem.input_channels);
#pragma unroll
  for (int block = 0; block < kBoxColumns; block += Box<T>::kBlockColumns) {
    if (column + block >= columns) break;
    u8* const at = box + block / Box<T>::kBlockColumns * Box<T>::kBlockBytes;
    if constexpr (kAlongColumns) {
      if (row < rows)
        send(at, column + block + (kSwapped ? 0 : channel),
             (row + grid.first_line(problem, tile)) / kJoinedRows);
    } else {
#pragma unroll
      for (int above = 0; above < 64; above += Box<T>::kBlockRows)
        if (row + above < rows)
          send(at + above / Box<T>::kBlockRows * Box<T>::kBlockBytes, row + above + (kSwapped ? channel : 0),
               column);
    }
  }
}

// Waits for the threads that fill a box together: a warp (along columns) or the warpgroup.
FUSOR_DEVICE void meet_at_box() {
  if constexpr (kAlongColumns && !kFromRegisters)
    __syncwarp();
  else
    wait_for_threads(1 + (threadIdx.x / kWarpgroup), kWarpgroup);
}

// ---- What a thread has of a box ----

// Pairs of neighbouring columns in a piece: of columns 8 apart, of both rows.
template <class T>
using PiecePairs = Vec<T, 2>[kPiece / 8][2];

// A thread's way into boxes. Pieces begin at the box's column `first`.
struct BoxAccess {
  int warp;  // in the warpgroup

  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }

  // Elements of 16 bits move as whole matrices of 8 x 8, transposed where lines of the box run along rows.
  template <class T>
  __device__ void fill(const PiecePairs<T>& pairs, u8* box, int first) const {
    enter<T>(box, first);
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int j = 0; j < kPiece / 8; j += 2)
        store_matrices<!kAlongColumns>(box + place_of_matrices<T>(first + 8 * j), bit_cast<u32>(pairs[j][0]),
                                       bit_cast<u32>(pairs[j][1]), bit_cast<u32>(pairs[j + 1][0]),
                                       bit_cast<u32>(pairs[j + 1][1]));
    } else if constexpr (kAlongColumns) {
#pragma unroll
      for (int j = 0; j < kPiece / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<Vec<T, 2>*>(box + place_of_pair<T>(first + 8 * j, half)) = pairs[j][half];
    } else {
      fill_lines_of_rows<T>(pairs, box, first);
    }
  }

  // Reads the places that fill() writes, in the same order.
  template <class T>
  __device__ void read(PiecePairs<T>& pairs, u8* box, int first) const {
    static_assert(kAlongColumns || !kFromRegisters, "a thread's two rows are no part of a matrix");
    enter<T>(box, first);
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int j = 0; j < kPiece / 8; j += 2) {
        u32 words[4];
        load_matrices<!kAlongColumns>(words, box + place_of_matrices<T>(first + 8 * j));
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[j + i / 2][i % 2] = bit_cast<Vec<T, 2>>(words[i]);
      }
    } else if constexpr (kAlongColumns) {
#pragma unroll
      for (int j = 0; j < kPiece / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          pairs[j][half] = *reinterpret_cast<const Vec<T, 2>*>(box + place_of_pair<T>(first + 8 * j, half));
    } else {
#pragma unroll
      for (int j = 0; j < kPiece / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          pairs[j][i / 2].lane[i % 2] = *reinterpret_cast<const T*>(
              box + place_across<T>(first + i % 2, i / 2) + j * 8 * Box<T>::kLine);
    }
  }

 private:
  // The block that `first` is in.
  template <class T>
  FUSOR_DEVICE void enter(u8*& box, int& first) {
    box += first / Box<T>::kBlockColumns * Box<T>::kBlockBytes;
    first %= Box<T>::kBlockColumns;
  }

  template <class T>
  __device__ int place_of_matrices(int column) const {
    const int half = Box<T>::matrix_row(lane());
    const int row = kAlongColumns ? row_in_part(warp, lane() % 8 * 4, half) : warp * 16 + half * 8;
    return Box<T>::line_of_matrix(lane(), row, column);
  }
  // Along columns: of a pair; along rows: of one element.
  template <class T>
  __device__ int place_of_pair(int column, int half) const {
    return Box<T>::element(row_in_part(warp, lane(), half), column + lane() % 4 * 2);
  }
  template <class T>
  __device__ int place_across(int column, int half) const {
    const int row = row_in_part(warp, lane(), half);
    return row / Box<T>::kBlockRows * Box<T>::kBlockBytes +
           Box<T>::element(row % Box<T>::kBlockRows, column + lane() % 4 * 2);
  }

  // 32-bit elements, which no instruction transposes: one by one, or in pairs where a thread has both rows.
  template <class T>
  __device__ void fill_lines_of_rows(const PiecePairs<T>& pairs, u8* box, int first) const {
    constexpr int kNext = 8 * Box<T>::kLine;  // 8 lines on, swizzled alike
    static_assert(Box<T>::kLine == 128);
    // The order of the two columns differs between lanes, so that no lanes of a half-warp meet in a bank.
    const bool upper_first = kFromRegisters && lane() % 4 >= 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < (kFromRegisters ? 1 : 2); ++half) {
        u8* const to = box + place_across<T>(first + (upper_first ? 1 - i : i), half);
#pragma unroll
        for (int j = 0; j < kPiece / 8; ++j)
          if constexpr (kFromRegisters) {
            const Vec<T, 2> low{{pairs[j][0][i], pairs[j][1][i]}},
                high{{pairs[j][0][1 - i], pairs[j][1][1 - i]}};
            *reinterpret_cast<Vec<T, 2>*>(to + j * kNext) = upper_first ? high : low;
          } else {
            *reinterpret_cast<T*>(to + j * kNext) = pairs[j][half][i];
          }
      }
    }
  }
};
