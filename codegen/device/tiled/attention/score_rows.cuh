// Owns the rows that a thread of a 16-row block holds: the way from products to scores, and from sums to the
// result. They are laid out as mma.sync leaves them.
//
//   lane l of a warp    rows l / 4 and l / 4 + 8; of each 8 columns, 2 (l % 4) and the next
//   values[i]           row: i / 2 % 2, columns: 8 (i / 4) + i % 2 from the lane's first on
#pragma once

#include "codegen/device/base/quads.cuh"
#include "codegen/device/sm90/attention/softmax.cuh"
#include "codegen/device/sm90/attention/tiles.cuh"

/// `Site` makes scores of products, unless these are scores times a constant (kPlain).
template <class Site, bool kPlain>
struct ScoreRows {
  enum : int { kRank = Site::kRank, kQuery = kRank - 2, kKey = kRank - 1 };
  Index at[2][kRank];
  KeyRange range[2];
  typename Site::Loads loads[2];

  /// Rows `first` and 8 further on of a tile, which finds the place and the query of each.
  template <class Params, class Tile>
  __device__ void begin(const Params& p, const Tile& tile, int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.find(first + 8 * half, at[half]);
      at[half][kKey] = 0;
      if constexpr (!kPlain) loads[half] = Site::loads(p.s, at[half], 1);
      range[half] = tile.keys_of(p, query);
    }
  }

  /// Products of the keys from `key` on become scores; those of keys that a row does not see, -inf.
  template <bool kWhole, class Params, int kCount>
  __device__ void score(const Params& p, int key, float (&values)[kCount]) {
    const int mine = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const int half = i / 2 % 2, column = mine + i / 4 * 8;
      if constexpr (!kPlain) {
        at[half][kKey] = column;
        const int count = kWhole ? 2 : static_cast<int>(p.keys) - column;
        const auto scored = Site::template apply<2>(p.s, at[half], count, loads[half],
                                                    Vec<float, 2>{values[i], values[i + 1]});
        values[i] = scored[0];
        values[i + 1] = scored[1];
      }
      if constexpr (!kWhole) {
        if (column < range[half].first || column >= range[half].end)
          values[i] = hidden_score<Config::softens>();
        if (column + 1 < range[half].first || column + 1 >= range[half].end)
          values[i + 1] = hidden_score<Config::softens>();
      }
    }
  }
};

/// One row's sums of kColumns columns times `factor` through the epilogue, as far as the row has columns.
/// All lanes of a quad call it; rows that do not exist store nothing.
template <class Site, int kColumns, int kRank, int kSums>
FUSOR_DEVICE void store_row(const typename Site::Args& args, Index (&at)[kRank], int half, float factor,
                            const float (&sums)[kSums], int columns, bool exists) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int first = 0; first < kColumns / 8; first += 4) {
    float pairs[4][2];
#pragma unroll
    for (int block = 0; block < 4; ++block)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        pairs[block][c] = first + block < kColumns / 8
                              ? sums[(first + block) % (kColumns / 8) * 4 + 2 * half + c] * factor
                              : 0;
    const Vec<float, 8> values = gather_block(pairs);
    at[kRank - 1] = (first + lane) * 8;
    const int left = columns - (first + lane) * 8;
    if (exists && left > 0) Site::template apply<8>(args, at, left < 8 ? left : 8, values);
  }
}
