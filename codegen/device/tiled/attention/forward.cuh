// Owns forward attention on the tensor cores of sm_80 and later: o = softmax(scores(q k^T)) v, without a
// score ever in memory; operands of any layout, and with ops in front (Dao, "FlashAttention-2").
//
//   a block       kWarps warps of kRowBlocks x 16 queries each; all keys that they see, from the last block
//   on block of keys  copies of k[j] have landed; barrier; copies of v[j] begin
//                  S = q k[j]^T --> scores pass S, bounds, exp2; O *= shrink, P = S in 16 bits
//                  copies of v[j] have landed; barrier; copies of k[j-1] begin
//                  O += P v[j]
//   finish         O / sum --> Y;  largest score and sum of a row --> L
//   shared:        q [queries][head]   k [keys][head]   v [keys][value], or their transposes, in swizzled
//   lines
#include "fusor_generated.cuh"

#include "codegen/device/tiled/attention/score_rows.cuh"
#include "codegen/device/tiled/swizzle.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

struct I;  // the sink of a row, if any

using Element = Config::ElementA;
static constexpr int kRank = S::kRank, kBatch = kRank - 2;
static constexpr int kWarps = Config::warps, kRowBlocks = Config::row_blocks, kThreads = 32 * kWarps;
static constexpr int kWarpRows = 16 * kRowBlocks, kTileQ = kWarpRows * kWarps, kTileK = Config::tile_k;
static constexpr int kHead = Config::head, kValue = Config::value;  // multiples of 16
static constexpr bool kPlainScores = Config::plain_scores;
static constexpr int kScores = kTileK / 2, kSums = kValue / 2;  // of a thread and a block of 16 rows

// Elements of a line: chunks of a line are exchanged within powers of two of them.
FUSOR_DEVICE constexpr int line_of(int elements) {
  return elements <= 16 ? 16 : elements <= 32 ? 32 : (elements + 63) / 64 * 64;
}

/// An operand in shared memory: kRows of its rows, kElements of the head. It is a factor of a product along
/// the head (q, k) or along its rows (v). kAlongHead: lines run along the head, else across it.
template <class Site_, int kRows, int kElements, bool kAlongHead, int kWidth, bool kPlain, bool kFactorOfRows>
struct Load {
  using Site = Site_;
  using Tile = OperandTile<kFactorOfRows ? kRows : line_of(kElements),
                           kFactorOfRows ? line_of(kElements) : kRows, 2, kAlongHead != kFactorOfRows>;
  static constexpr bool kTransposed = kAlongHead == kFactorOfRows;
  static constexpr int kSize = Tile::kSize;

  /// Starts the copies of a tile, or passes its elements through the prologue. `kHeadAxis`: where the site
  /// has the head's elements.
  template <int kHeadAxis>
  FUSOR_DEVICE void copy(const typename Site::Args& args, u8* to, const Index (&entry)[kRank], int first,
                         int rows, int elements) {
    constexpr int kOfLine = (kAlongHead ? kElements : kRows) / kWidth;
    constexpr int kVectors = kOfLine * (kAlongHead ? kRows : kElements);
    constexpr bool kAsync = kPlain && kWidth > 1;
    Index at[kRank];
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) at[axis] = entry[axis];
#pragma unroll(kAsync ? 4 : 1)
    for (int i = threadIdx.x; i < kVectors; i += kThreads) {
      const int line = i / kOfLine, along = i % kOfLine * kWidth;
      const int row = kAlongHead ? line : along, element = kAlongHead ? along : line;
      const bool inside = first + row < rows && element < elements;
      at[kHeadAxis] = inside ? element : 0;
      at[2 * kBatch + 1 - kHeadAxis] = inside ? first + row : 0;
      u8* const place = to + (kFactorOfRows ? Tile::offset(element, row) : Tile::offset(row, element));
      if constexpr (kAsync) {
        copy_async<kWidth * 2>(shared_address(place), Site::address(args, at), inside);
      } else {
        Vec<Element, kWidth> vector;
        if constexpr (kPlain)
          vector = load_whole<kWidth>(Site::address(args, at), kWidth);
        else
          vector = narrow<Element>(Site::template apply<kWidth>(args, at, kWidth));
        *reinterpret_cast<Vec<Element, kWidth>*>(place) = inside ? vector : Vec<Element, kWidth>{};
      }
    }
  }
};

using LoadQ = Load<Q, kTileQ, kHead, Config::q_along_head, Config::q_width, Config::q_plain, false>;
using LoadK = Load<K, kTileK, kHead, Config::k_along_head, Config::k_width, Config::k_plain, false>;
using LoadV = Load<V, kTileK, kValue, Config::v_along_head, Config::v_width, Config::v_plain, true>;

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
};

/// Sums of a block of 16 x 8 among those of a thread.
template <int kCount>
FUSOR_DEVICE float (&block_of(float (&sums)[kCount], int block))[4] {
  return reinterpret_cast<float(&)[4]>(sums[4 * block]);
}

/// A warp's queries.
struct Rows {
  ScoreRows<S, kPlainScores> rows[kRowBlocks];
  OnlineSoftmax softmax[kRowBlocks];
  float sums[kRowBlocks][kSums];

  __device__ void begin(const Params& p, const Tile& tile) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      rows[r].begin(p, tile.at, tile.row + first_row() + 16 * r + threadIdx.x % 32 / 4, tile.last);
      softmax[r].factor = p.factor;
      softmax[r].begin();
      if constexpr (Config::has_sink) begin_with_sinks<I>(p, r);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[r][i] = 0;
    }
  }

  /// scores = q k^T
  __device__ void multiply_keys(Shared& shared, float (&scores)[kRowBlocks][kScores]) const {
    const u32 q = shared_address(shared.q), k = shared_address(shared.k);
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

  /// Scores become exponentials, earlier sums shrink, and `p` is the exponentials in 16 bits.
  __device__ void soften(const Params& p, const Tile& tile, int block, float (&scores)[kRowBlocks][kScores],
                         u32 (&probabilities)[kRowBlocks][kScores / 2]) {
    const bool whole = tile.is_whole(block);
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      float shrink[2];
      if (whole)
        rows[r].template score<true>(p, block * kTileK, scores[r]);
      else
        rows[r].template score<false>(p, block * kTileK, scores[r]);
      softmax[r].add(scores[r], shrink);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[r][i] *= shrink[i / 2 % 2];
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i)
        probabilities[r][i] = PairConversion<Element>::narrow(scores[r][2 * i], scores[r][2 * i + 1]);
    }
  }

  /// sums += p v
  __device__ void multiply_values(Shared& shared, const u32 (&probabilities)[kRowBlocks][kScores / 2]) {
    const u32 v = shared_address(shared.v);
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

  __device__ void finish(const Params& p, const Tile& tile) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      softmax[r].end();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool exists = rows[r].row[half] <= tile.last;
        const float sum = softmax[r].sum[half];
        const float inverse = Config::guarded && sum == 0 ? 0 : 1 / sum;
        Index at[kRank];
#pragma unroll
        for (int axis = 0; axis <= kBatch; ++axis) at[axis] = rows[r].at[half][axis];
        store_row<Y, kValue>(p.y, at, half, inverse, sums[r], static_cast<int>(p.values), exists);
        if constexpr (Config::saves_rows) {
          at[kBatch + 1] = 0;
          const float largest = kPlainScores ? softmax[r].largest[half] * p.scale : softmax[r].largest[half];
          if (exists && threadIdx.x % 4 == 0)
            L::template apply<1>(p.l, at, 1, Vec<float, 1>{largest}, Vec<float, 1>{sum});
        }
      }
    }
  }

 private:
  FUSOR_DEVICE int first_row() { return threadIdx.x / 32 * kWarpRows; }

  template <class Sink, class Params>
  __device__ void begin_with_sinks(const Params& p, int r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sink = Sink::template apply<1>(p.i, rows[r].at[half], 1)[0];
      softmax[r].begin_with(half, kPlainScores ? sink / p.scale : sink);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks_per_sm)
    attention_mma(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Tile tile(p, static_cast<int>(block_number()));
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
  const int head = static_cast<int>(p.head), values = static_cast<int>(p.values);
  Rows rows;
  rows.begin(p, tile);
  if (tile.end > tile.first) {
    LoadQ::template copy<kBatch + 1>(p.q, shared.q, tile.at, tile.row, queries, head);
    LoadK::template copy<kBatch>(p.k, shared.k, tile.of_k, (tile.end - 1) * kTileK, keys, head);
    commit_copies();
  }
#pragma unroll 1
  for (int block = tile.end - 1; block >= tile.first; --block) {
    float scores[kRowBlocks][kScores];
    u32 probabilities[kRowBlocks][kScores / 2];
    wait_for_copies<0>();
    __syncthreads();
    LoadV::template copy<kBatch + 1>(p.v, shared.v, tile.of_v, block * kTileK, keys, values);
    commit_copies();
    rows.multiply_keys(shared, scores);
    rows.soften(p, tile, block, scores, probabilities);
    wait_for_copies<0>();
    __syncthreads();
    if (block > tile.first) {
      LoadK::template copy<kBatch>(p.k, shared.k, tile.of_k, (block - 1) * kTileK, keys, head);
      commit_copies();
    }
    rows.multiply_values(shared, probabilities);
  }
  rows.finish(p, tile);
}
