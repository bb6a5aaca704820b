// Owns a warp's rows of queries: their products with a block of keys, the online softmax of these, and the
// products with the block's values.
#pragma once

#include "codegen/device/tiled/attention/operands.cuh"
#include "codegen/device/tiled/attention/score_rows.cuh"

/// Sums of a block of 16 x 8 among those of a thread.
template <int kCount>
FUSOR_DEVICE float (&block_of(float (&sums)[kCount], int block))[4] {
  return reinterpret_cast<float(&)[4]>(sums[4 * block]);
}

/// kRowBlocks blocks of 16 rows of a tile, in which the rows of warps are kApart apart; keys come in blocks
/// of kTileK.
template <int kRowBlocks, int kApart, int kTileK, class LoadQ, class LoadK, class LoadV>
struct WarpRows {
  enum : int { kScores = kTileK / 2, kSums = kValue / 2 };  // of a thread and a block of 16 rows
  using Scores = float[kRowBlocks][kScores];
  using Probabilities = u32[kRowBlocks][kScores / 2];  // pairs in 16 bits

  ScoreRows<S, kPlainScores> rows[kRowBlocks];
  SoftmaxOrNone<Config::softens> softmax[kRowBlocks];
  float sums[kRowBlocks][kSums];

  template <class Params, class Tile>
  __device__ void begin(const Params& p, const Tile& tile) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      rows[r].begin(p, tile, row_of(r, 0));
      softmax[r].factor = p.factor;
      softmax[r].begin();
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[r][i] = 0;
    }
  }
  template <class Sink, class Params>
  __device__ void begin_with_sinks(const Params& p) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sink = Sink::template apply<1>(p.i, rows[r].at[half], 1)[0];
        softmax[r].begin_with(half, kPlainScores ? sink / p.scale : sink);
      }
  }

  /// scores = q k^T, of tiles at these addresses.
  __device__ void multiply_keys(u32 q, u32 k, Scores& scores) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
      for (int i = 0; i < kScores; ++i) scores[r][i] = 0;
#pragma unroll
    for (int step = 0; step < kHead; step += 16) {
      u32 a[kRowBlocks][4];
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
        load_fragment<LoadQ::kTransposed>(
            a[r], q + LoadQ::Tile::template fragment<true>(lane, first_row() + 16 * r, step));
#pragma unroll
      for (int key = 0; key < kTileK; key += 16) {
        u32 b[4];
        load_fragment<LoadK::kTransposed>(b, k + LoadK::Tile::template fragment<false>(lane, key, step));
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r) {
          multiply_add(block_of(scores[r], key / 8), a[r], b[0], b[1]);
          multiply_add(block_of(scores[r], key / 8 + 1), a[r], b[2], b[3]);
        }
      }
    }
  }

  /// Scores of the keys from `key` on become exponentials, earlier sums shrink, and `probabilities` are the
  /// exponentials in 16 bits. `whole`: all rows see all keys.
  template <class Params>
  __device__ void soften(const Params& p, bool whole, int key, Scores& scores, Probabilities& probabilities) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      float shrink[2];
      if (whole)
        rows[r].template score<true>(p, key, scores[r]);
      else
        rows[r].template score<false>(p, key, scores[r]);
      softmax[r].add(scores[r], shrink);
      if constexpr (Config::softens) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[r][i] *= shrink[i / 2 % 2];
      }
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i)
        probabilities[r][i] = PairConversion<Element>::narrow(scores[r][2 * i], scores[r][2 * i + 1]);
    }
  }

  /// sums += probabilities v, of a tile at this address.
  __device__ void multiply_values(u32 v, const Probabilities& probabilities) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int key = 0; key < kTileK; key += 16) {
#pragma unroll
      for (int column = 0; column < kValue; column += 16) {
        u32 b[4];
        load_fragment<LoadV::kTransposed>(b, v + LoadV::Tile::template fragment<false>(lane, column, key));
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r) {
          const u32* const words = probabilities[r] + key / 4;
          const u32 a[4] = {words[0], words[1], words[2], words[3]};
          multiply_add(block_of(sums[r], column / 8), a, b[0], b[1]);
          multiply_add(block_of(sums[r], column / 8 + 1), a, b[2], b[3]);
        }
      }
    }
  }

  /// A row of this thread's among those of the tile.
  FUSOR_DEVICE int row_of(int r, int half) {
    return first_row() + 16 * r + 8 * half + static_cast<int>(threadIdx.x) % 32 / 4;
  }

 private:
  FUSOR_DEVICE int first_row() { return static_cast<int>(threadIdx.x) / 32 * kApart; }
};
