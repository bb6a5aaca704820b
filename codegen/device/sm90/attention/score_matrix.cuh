// Owns the matrix that scores are made with, an element for each of them, such as a bias: its way to the
// thread that has the score.
//
//   producer    boxes of 64 keys by the tile's queries:  TMA --> a ring of stages
//   consumers   ldmatrix: a lane has two neighbours of lines lane / 4 and 8 more, as products have their sums
//
// The matrix has one plane for all entries along an axis where its own extent is 1.
#pragma once

#include "codegen/device/sm90/attention/parts.cuh"

enum : int { kMatrixStages = 2 };
using MatrixRing = Ring<kMatrixStages>;

template <bool kExists, class T, int kRows, int kKeys>
struct ScoreMatrix {
  __device__ void init_matrix(int) {}
};

template <class T, int kRows, int kKeys>
struct ScoreMatrix<true, T, kRows, kKeys> {
  enum : int { kMatrixLines = kKeys / kLine };
  static_assert(kKeys % kLine == 0, "a block is whole lines");

  alignas(1024) u8 matrix[kMatrixStages][kMatrixLines][kRows * kLineBytes];
  Barrier matrix_full[kMatrixStages], matrix_empty[kMatrixStages];

  __device__ void init_matrix(int readers) {
    for (int stage = 0; stage < kMatrixStages; ++stage) {
      matrix_full[stage].init(1);
      matrix_empty[stage].init(readers);
    }
  }

  // Copies a box of the entry, which begins at `row` and `key`, into the next stage that is free.
  __device__ void copy_matrix(MatrixRing& ring, const TensorMap& map, int row, int key,
                              const int (&entry)[3]) {
    matrix_empty[ring.stage].wait(ring.parity ^ 1);
    Barrier& full = matrix_full[ring.stage];
    full.arrive_and_expect(kMatrixLines * kRows * kLineBytes);
#pragma unroll
    for (int line = 0; line < kMatrixLines; ++line) {
      const int at[3] = {entry[2], row, key + line * kLine};
      copy_planes(matrix[ring.stage][line], map, full, at, entry[1], entry[0]);
    }
    ring.advance();
  }
};

// A warp's elements of a stage, from line `row` of the tile on.
template <class T>
struct MatrixReader {
  const u8* lines;
  int place;  // of this lane's line and unit, where units of 16 bytes are swizzled

  __device__ MatrixReader(const u8* stage, int row) : lines(stage) {
    const int lane = threadIdx.x % 32, line = row + lane / 8 % 2 * 8 + lane % 8;
    place = line * kLineBytes + (lane % 8 ^ lane / 16) * 16;
  }
  // Reads eight elements of the columns 8 `unit` to 8 `unit` + 15, unit being even: two neighbours in each
  // half of the columns, of the lane's line and of the one 8 further down.
  template <int kRows>
  __device__ void read(int unit, float (&values)[8]) const {
    u32 words[4];
    load_matrices<false>(words, lines + unit / 8 * (kRows * kLineBytes) + (place ^ unit % 8 * 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) PairConversion<T>::widen(words[i], values[2 * i], values[2 * i + 1]);
  }
};
