// Owns forward attention on the tensor cores of sm_80 and later: o = softmax(scores(q k^T)) v, without a
// score ever in memory; operands of any layout, and with ops in front (Dao, "FlashAttention-2").
//
//   a block        kWarps warps of kRowBlocks x 16 queries each; their keys, from the last block on
//   block of keys  copies of k[j] have landed; barrier; copies of v[j] begin
//                  S = q k[j]^T --> scores pass S, bounds, exp2; O *= shrink, P = S in 16 bits
//                  copies of v[j] have landed; barrier; copies of k[j-1] begin
//                  O += P v[j]
//   finish         O / sum --> Y;  largest score and sum of a row --> L
//   no softmax     o = scores(q k^T) v: P = S in 16 bits, and nothing shrinks or is divided
//   shared         q [queries][head]   k [keys][head]   v [keys][value], or transposed, in swizzled lines
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/attention/warp_rows.cuh"

enum : int {
  kWarps = Config::warps,
  kRowBlocks = Config::row_blocks,
  kThreads = 32 * kWarps,
  kWarpRows = 16 * kRowBlocks,
  kTileQ = kWarpRows * kWarps,
  kTileK = Config::tile_k,
};

using LoadQ = Load<Q, kTileQ, kHead, Config::q_along_head, Config::q_width, Config::q_plain, false>;
using LoadK = Load<K, kTileK, kHead, Config::k_along_head, Config::k_width, Config::k_plain, false>;
using LoadV = Load<V, kTileK, kValue, Config::v_along_head, Config::v_width, Config::v_plain, true>;
using Rows = WarpRows<kRowBlocks, kWarpRows, kTileK, LoadQ, LoadK, LoadV>;

struct Shared {
  alignas(128) u8 q[LoadQ::kSize];
  alignas(128) u8 k[LoadK::kSize];
  alignas(128) u8 v[LoadV::kSize];
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

/// A tile of queries and its blocks of keys.
struct Tile {
  int row, last;                              // first and last query that exists
  int first, end;                             // blocks of keys that any of them sees
  KeyRange all;                               // keys that all of them see
  Index at[kRank], of_k[kRank], of_v[kRank];  // the entry's place in the batch of scores, keys and values

  __device__ Tile(const Params& p, int number) {
    const TileQueue::Item item = p.queue.item(number);
    const int keys = static_cast<int>(p.keys);
    row = item.tile * kTileQ;
    last = min(row + kTileQ, static_cast<int>(p.queries)) - 1;
    coordinates<0, kBatch>(Index(item.entry), p.extents, at);
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) {
      of_k[axis] = p.sharing_k[axis].divide(at[axis]);
      of_v[axis] = p.sharing_v[axis].divide(at[axis]);
    }
    const KeyRange any = p.visible.of_any(row, last, keys);
    all = p.visible.of_all(row, last, keys);
    first = any.first / kTileK;
    end = any.end > any.first ? (any.end + kTileK - 1) / kTileK : first;
  }
  __device__ bool is_whole(int block) const {
    return block * kTileK >= all.first && (block + 1) * kTileK <= all.end;
  }
  /// Puts the place of a row of the tile into `place`, and returns the query; past the last, that of the
  /// last.
  __device__ int find(int of_tile, Index (&place)[kRank]) const {
    const int query = min(row + of_tile, last);
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) place[axis] = at[axis];
    place[kBatch] = query;
    return query;
  }
  __device__ bool has(int of_tile) const { return row + of_tile <= last; }
  __device__ KeyRange keys_of(const Params& p, int query) const {
    return p.visible.of_row(query, static_cast<int>(p.keys));
  }
};

FUSOR_DEVICE void finish(const Params& p, const Tile& tile, Rows& rows) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r) {
    rows.softmax[r].end();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Rows::row_of(r, half);
      const bool exists = tile.has(row);
      const float sum = rows.softmax[r].sum[half];
      const float inverse = Config::guarded && sum == 0 ? 0 : Config::softens ? 1 / sum : 1;
      Index at[kRank];
      tile.find(row, at);
      store_row<Y, kValue>(p.y, at, half, inverse, rows.sums[r], static_cast<int>(p.values), exists);
      if constexpr (Config::saves_rows) {
        at[kBatch + 1] = 0;
        const float highest = rows.softmax[r].largest[half];
        const float largest = kPlainScores ? highest * p.scale : highest;
        if (exists && threadIdx.x % 4 == 0)
          L::template apply<1>(p.l, at, 1, Vec<float, 1>{largest}, Vec<float, 1>{sum});
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks_per_sm)
    attention_mma(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  enter_launch(p);
  const Tile tile(p, static_cast<int>(block_number()));
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
  const int head = static_cast<int>(p.head), values = static_cast<int>(p.values);
  Rows rows;
  rows.begin(p, tile);
  if constexpr (Config::has_sink) rows.begin_with_sinks<I>(p);
  if (tile.end > tile.first) {
    LoadQ::template copy<kBatch + 1, kThreads>(p.q, shared.q, tile.at, tile.row, queries, head);
    LoadK::template copy<kBatch, kThreads>(p.k, shared.k, tile.of_k, (tile.end - 1) * kTileK, keys, head);
    commit_copies();
  }
#pragma unroll 1
  for (int block = tile.end - 1; block >= tile.first; --block) {
    Rows::Scores scores;
    Rows::Probabilities probabilities;
    wait_for_copies<0>();
    __syncthreads();
    LoadV::template copy<kBatch + 1, kThreads>(p.v, shared.v, tile.of_v, block * kTileK, keys, values);
    commit_copies();
    rows.multiply_keys(shared_address(shared.q), shared_address(shared.k), scores);
    rows.soften(p, tile.is_whole(block), block * kTileK, scores, probabilities);
    wait_for_copies<0>();
    __syncthreads();
    if (block > tile.first) {
      LoadK::template copy<kBatch, kThreads>(p.k, shared.k, tile.of_k, (block - 1) * kTileK, keys, head);
      commit_copies();
    }
    rows.multiply_values(shared_address(shared.v), probabilities);
  }
  // Found anew: the loop over blocks has no registers left for the tile's place.
  int number = static_cast<int>(block_number());
  asm volatile("" : "+r"(number));
  finish(p, Tile(p, number), rows);
  leave_launch(p);
}
