// Owns forward attention on sm_90a: o = softmax(scores(q k^T)) v, without a score ever in memory.
//
//   a tile          64 queries for each consumer warpgroup, all keys that they see, the last block first
//   producer warp   q, then a block of keys and one of values in turn:  TMA --> rings of stages
//   consumers       S' = q k[j+1]^T  ||  O += P v[j]      two products in flight
//                   softmax of S'    ||  O += P v[j]      scores pass S (scale, bias, ...), bounds, exp2
//                   O *= shrink, P = S' in 16 bits
//   finish          O / sum --> Y;  largest score and sum of a row --> L
//
//   no softmax      o = scores(q k^T) v: P = S', scores outside of the bounds are 0, and nothing shrinks or
//   is
//                   divided
//
//   dropout         which of a block's probabilities stay is found from their coordinates, beside products in
//                   flight; a row's sum is that of all
//
//   8 bits          values arrive in `raw`; three more producer warps leave them transposed in v. Products of
//                   a block and its values begin at zero, and are added to O in fp32
//
//   ragged          q, k and v whose entries begin where the device knows: a map for each entry,
//                   which a kernel in front made (ragged.cuh)
//
//   score matrix    an element for each score, such as a bias: boxes beside those of keys (score_matrix.cuh)
//
//   live blocks     where a mask compares numbers of queries and keys, another producer warp finds the blocks
//                   whose keys may be seen, a tile or more ahead (live_blocks.cuh)
//
//   shared:  q [q stages][lines of 64][queries]   k, v [stages][lines of 64][keys]
//            with two stages of q the next tile's queries arrive while this one's are read
//   full     producer --> consumers: bytes have arrived     empty   consumers --> producer: a warp has read
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/attention/bytes.cuh"
#include "codegen/device/sm90/attention/dropout.cuh"
#include "codegen/device/sm90/attention/live_blocks.cuh"
#include "codegen/device/sm90/attention/ragged.cuh"
#include "codegen/device/sm90/attention/score_matrix.cuh"
#include "codegen/device/sm90/attention/softmax.cuh"

struct I;  // the sink of a row, if any
struct M;  // whether dropout keeps a probability
struct O;  // where an entry of a ragged result begins and ends
struct R;  // the number of a query that a mask compares
struct C;  // the number of a key
struct N;  // how many keys and queries of an entry exist, where only the device knows

using Element = Config::Element;
enum : int {
  kRank = S::kRank,
  kBatch = kRank - 2,
  kConsumers = Config::consumers,
  kTileQ = 64 * kConsumers,
  kTileK = Config::tile_k,
  kStages = Config::stages,
  kQueryStages = Config::query_stages,
  kHead = Config::head,    // a multiple of 16, of 8 bits 32
  kValue = Config::value,  // the same
  kWords = Config::words,  // of bits of live blocks; 0: all are
};
enum : bool {
  kPlainScores = Config::plain_scores,
  kPingPong = Config::ping_pong,
  kBytes = sizeof(Element) == 1,  // whose heads are one line at most
};
enum : int {
  kHeadLines = kBytes ? 1 : lines_of(kHead),
  kValueLines = kBytes ? 1 : lines_of(kValue),
  kKeyBytes = kTileK * kLineBytes,
  kValueBytes = kBytes ? kValue * kLineBytes : kKeyBytes,
  kScores = kTileK / 2,                          // of a thread
  kSums = kValue / 2,                            // of a thread
  kPacked = kScores * int(sizeof(Element)) / 4,  // of a thread's probabilities
};
// Probabilities of 8 bits use most of their range.
enum : int { kMostProbability = kBytes ? 8 : 0 };
using Softmax = SoftmaxOrNone<Config::softens, kMostProbability>;

// q, k, v: maps of (element, row, batch axes from the last to the first); extents: of the batch axes;
// shares_q,
// ..._k, ..._v: entries that share one of each, by axis; factor: exponents are of 2; scale: of plain scores;
// weight: of probabilities, where they have 8 bits or are dropped.

// Readers of tiles that another warp hands over, and where none does the warps that find their own.
enum : bool { kHanded = Config::ordered || kWords > 0 };

using Matrix = ScoreMatrix<Config::has_matrix, Config::Matrix, kTileQ, kTileK>;

struct Shared : RawValues<kBytes, kKeyBytes>, Matrix {
  enum : int { kValueStages = kStages };

  alignas(1024) u8 q[kQueryStages][kHeadLines][kTileQ * kLineBytes];
  alignas(1024) u8 k[kStages][kHeadLines][kKeyBytes];
  alignas(1024) u8 v[kStages][kValueLines][kValueBytes];
  Barrier q_full[kQueryStages], q_empty[kQueryStages];
  Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  BlockSlots<kWords, Config::ordered> slots;

  __device__ void init() {
    slots.init(kConsumers * kWarpgroup / 32 + (kWords > 0 ? 1 : 0));
    for (int stage = 0; stage < kQueryStages; ++stage) {
      q_full[stage].init(1);
      q_empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      k_full[stage].init(1);
      v_full[stage].init(kBytes ? kTransposers : 1);
      k_empty[stage].init(kConsumers * kWarpgroup / 32);
      v_empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    init_raw();
    init_matrix(kConsumers * kWarpgroup / 32);
    fence_barriers();
  }
};

static_assert(sizeof(Shared) <= Config::shared_bytes, "the launch has room for all of it");

using Tile = QueryTile<kTileQ, kTileK, kRank, Config::first_axis_fastest>;

// A warp hands tiles and their live blocks over to all others.
template <class P, class Memory>
FUSOR_DEVICE void find_blocks(const P& p, Memory& shared) {
  hand_over<Config::ordered>(p, shared.slots, [&](TileQueue::Item item, u32* words) {
    const Tile tile = tile_within<Tile, N>(p, item);
    find_live<false, kWords>(p.ranges, tile.at, item.tile, tile.first, tile.end, words);
  });
}

// The matrix has planes of its own along axes that `planes` says.
template <class P>
FUSOR_DEVICE void find_entry_of_matrix(const P& p, const Tile& tile, MapEntry<kBatch>& entry) {
  if constexpr (Config::has_matrix) {
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) entry.set(axis, p.planes >> axis & 1 ? tile.at[axis] : 0);
  }
}
template <class P, class Memory>
FUSOR_DEVICE void copy_elements(const P& p, Memory& shared, MatrixRing& ring, const Tile& tile, int block,
                                const MapEntry<kBatch>& entry) {
  if constexpr (Config::has_matrix) shared.copy_matrix(ring, p.matrix, tile.row, block * kTileK, entry.at);
}

template <class Memory>
FUSOR_DEVICE void produce(const Params& p, Memory& shared) {
  Ring<kStages> ring;
  Ring<kRawStages> raw;
  Ring<kQueryStages> queries;
  MatrixRing matrix;
  for (CopyTurns<kWords, Config::ordered> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    auto walk = blocks_of<kWords, Config::masks>(tile, shared.slots, turns);
    if (walk.is_empty()) continue;
    MapEntry<kBatch> of_q, of_k, of_v, of_matrix;
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) {
      of_q.set(axis, p.shares_q[axis].divide(tile.at[axis]));
      of_k.set(axis, p.shares_k[axis].divide(tile.at[axis]));
      of_v.set(axis, p.shares_v[axis].divide(tile.at[axis]));
    }
    find_entry_of_matrix(p, tile, of_matrix);
    const auto& q = rows_at(p.q, of_q);
    const auto& k = rows_at(p.k, of_k);
    const auto& v = rows_at(p.v, of_v);
    shared.q_empty[queries.stage].wait(queries.parity ^ 1);
    copy_rows(shared.q[queries.stage], q, shared.q_full[queries.stage], tile.row, of_q.at);
    queries.advance();
#pragma unroll 1
    for (int block = walk.last(); walk.has(block); block = walk.next(block)) {
      shared.k_empty[ring.stage].wait(ring.parity ^ 1);
      copy_rows(shared.k[ring.stage], k, shared.k_full[ring.stage], block * kTileK, of_k.at);
      copy_elements(p, shared, matrix, tile, block, of_matrix);
      if constexpr (kBytes) {
        copy_raw(shared, raw, v, block * kTileK, of_v.at);
      } else {
        shared.v_empty[ring.stage].wait(ring.parity ^ 1);
        copy_rows(shared.v[ring.stage], v, shared.v_full[ring.stage], block * kTileK, of_v.at);
      }
      ring.advance();
    }
  }
}

// Three warps of the producers.
template <class Memory>
FUSOR_DEVICE void transpose(const Params& p, Memory& shared, int transposer) {
  Ring<kRawStages> raw;
  Ring<kStages> ring;
  for (Turns<false> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    transpose_values<kTileK, kValue>(shared, transposer, tile.end - tile.first, raw, ring);
  }
}

// The numbers of two rows, which a mask compares with those of keys.
template <bool kMasks, class OfQuery, class OfKey>
struct RowNumbers {
  template <class Params, int kRank>
  __device__ void begin(const Params&, const Index (&)[2][kRank]) {}
  template <class Params, int kRank>
  __device__ void hide(const Params&, const Index (&)[kRank], int, float*) const {}
};
template <class OfQuery, class OfKey>
struct RowNumbers<true, OfQuery, OfKey> {
  i64 numbers[2];

  template <class Params, int kRank>
  __device__ void begin(const Params& p, const Index (&at)[2][kRank]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) numbers[half] = OfQuery::template apply<1>(p.r, at[half], 1)[0];
  }
  // Hides the scores of two keys, the one at `at` and the next, in both rows.
  template <class Params, int kRank>
  __device__ void hide(const Params& p, const Index (&at)[kRank], int count, float* scores) const {
    const auto keys = OfKey::template apply<2>(p.c, at, count);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!sees(numbers[i / 2], keys[i % 2])) scores[i] = hidden_score<Config::softens>();
    }
  }
};

// Two products as scores; `elements` are those of the matrix, if there is one.
template <class P, class Site = S>
FUSOR_DEVICE auto scored_pair(const P& p, const Index (&at)[kRank], int count,
                              const typename Site::Loads& loads, const Vec<float, 2>& products,
                              const Vec<float, 2>& elements) {
  if constexpr (Config::has_matrix)
    return Site::template apply<2>(p.s, at, count, loads, products, elements);
  else
    return Site::template apply<2>(p.s, at, count, loads, products);
}

// A thread's two rows of a tile, and the way from products to scores.
struct ScoreRows {
  Index at[2][kRank];
  int row[2];
  KeyRange range[2];
  S::Loads loads[2];
  RowNumbers<Config::masks, R, C> numbers;

  __device__ void begin(const Params& p, const Tile& tile, int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row[half] = first + 8 * half;
      const int existing = min(row[half], tile.last);
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[half][axis] = tile.at[axis];
      at[half][kBatch] = existing;
      at[half][kBatch + 1] = 0;
      if constexpr (!kPlainScores) loads[half] = S::loads(p.s, at[half], 1);
      range[half] = p.visible.of_row(existing, static_cast<int>(p.keys));
      if constexpr (Config::limited)
        range[half].end = row[half] < tile.queries ? min(range[half].end, tile.keys) : range[half].first;
    }
    numbers.begin(p, at);
  }

  // Products of the block at `key` become scores; those of keys that a row does not see, -inf.
  template <bool kWhole, class Given>
  __device__ void score(const Params& p, int key, float (&values)[kScores], const Given& given) {
    const int mine = key + 2 * (threadIdx.x % 4);
    float elements[8];
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const int half = i / 2 % 2, column = mine + i / 4 * 8;
      if constexpr (!kPlainScores) {
        at[half][kBatch + 1] = column;
        const int count = kWhole ? 2 : static_cast<int>(p.keys) - column;
        if constexpr (Config::has_matrix)
          if (i % 8 == 0) given.template read<kTileQ>(i / 4, elements);
        const auto scored = scored_pair(p, at[half], count, loads[half], {values[i], values[i + 1]},
                                        {elements[i % 8], elements[i % 8 + 1]});
        values[i] = scored[0];
        values[i + 1] = scored[1];
      }
      if constexpr (!kWhole) {
        if (column < range[half].first || column >= range[half].end)
          values[i] = hidden_score<Config::softens>();
        if (column + 1 < range[half].first || column + 1 >= range[half].end)
          values[i + 1] = hidden_score<Config::softens>();
        if (Config::masks && half == 1) {
          at[half][kBatch + 1] = column;
          numbers.hide(p, at[half], static_cast<int>(p.keys) - column, values + i - 2);
        }
      }
    }
  }
};

// Waits for the matrix's next stage and returns the warp's reader of it; release_elements() gives the stage
// back.
template <class Memory>
FUSOR_DEVICE auto elements_of(Memory& shared, const MatrixRing& ring, int row) {
  if constexpr (Config::has_matrix) {
    shared.matrix_full[ring.stage].wait(ring.parity);
    return MatrixReader<typename Config::Matrix>(shared.matrix[ring.stage][0], row);
  } else {
    return 0;
  }
}
template <class Memory>
FUSOR_DEVICE void release_elements(Memory& shared, MatrixRing& ring) {
  if constexpr (Config::has_matrix) {
    release(shared.matrix_empty[ring.stage]);
    ring.advance();
  }
}

// Ping-pong of two consumers: one issues its products while the other is in its softmax.
FUSOR_DEVICE void wait_for_turn(int consumer) {
  if constexpr (kPingPong) wait_for_threads(1 + consumer, kConsumers * kWarpgroup);
}
FUSOR_DEVICE void pass_turn(int consumer) {
  if constexpr (kPingPong) arrive_for_threads(1 + (consumer + 1) % kConsumers, kConsumers * kWarpgroup);
}

// scores = q k^T, of the consumer's 64 queries
FUSOR_DEVICE void issue_scores(const u8* queries, const Shared& shared, int stage, float (&scores)[kScores]) {
  issue_along<Element, kHead, kTileQ, kTileK>(queries, shared.k[stage][0], scores);
}

// sums += p v; of 8 bits, parts = p v
FUSOR_DEVICE void issue_values(const Shared& shared, int stage, const u32 (&p)[kPacked], float (&sums)[kSums],
                               float (&parts)[kSums], int accumulate) {
  if constexpr (kBytes)
    issue_transposed<Element>(p, shared.v[stage][0], parts);
  else
    issue_across<Element, kTileK>(p, shared.v[stage][0], sums, accumulate);
}

template <int kCount>
FUSOR_DEVICE void pack_probabilities(const float (&scores)[kScores], u32 (&words)[kCount]) {
  if constexpr (kBytes)
    pack_bytes<Element>(scores, words);
  else
    pack<Element>(scores, words);
}

// The factor of probabilities in front of their rounding.
template <class Params>
FUSOR_DEVICE float weight_of(const Params& p) {
  if constexpr (kBytes || Config::drops)
    return p.weight;
  else
    return 1;
}

// A row of a ragged result, which site Result gives back.
template <class Result, class Places, class Params>
FUSOR_DEVICE void store_result_row_in_place(const Params& p, Index (&at)[kRank], bool exists, int half,
                                            float factor, const float (&sums)[kSums]) {
  store_placed_row<Result, Places>(p.y, p.o, p.result, at, exists, static_cast<int>(p.values), half, factor,
                                   sums);
}

FUSOR_DEVICE void finish(const Params& p, const Tile& tile, const ScoreRows& rows, const Softmax& softmax,
                         const float (&sums)[kSums]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool exists = rows.row[half] <= tile.last;
    const float sum = softmax.sum[half];
    const float inverse = Config::guarded && sum == 0 ? 0
                          : Config::softens           ? weight_of(p) / sum
                                                      : weight_of(p);
    Index at[kRank];
#pragma unroll
    for (int axis = 0; axis <= kBatch; ++axis) at[axis] = rows.at[half][axis];
    if constexpr (Config::placed)
      store_result_row_in_place<Y, O>(p, at, exists, half, inverse, sums);
    else
      store_row<Y>(p.y, at, exists, static_cast<int>(p.values), half, inverse, sums);
    if constexpr (Config::saves_rows) {
      at[kBatch + 1] = 0;
      const float largest = kPlainScores ? softmax.largest[half] * p.scale : softmax.largest[half];
      const Vec<float, 1> exponentials{kBytes ? sum / (1 << kMostProbability) : sum};
      if (exists && lane == 0) L::template apply<1>(p.l, at, 1, Vec<float, 1>{largest}, exponentials);
    }
  }
}

template <class Sink, class Params>
FUSOR_DEVICE void begin_with_sinks(const Params& p, const ScoreRows& rows, Softmax& softmax) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sink = Sink::template apply<1>(p.i, rows.at[half], 1)[0];
    softmax.begin_with(half, kPlainScores ? sink / p.scale : sink);
  }
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  Ring<kStages> ring;
  Ring<kQueryStages> queries;
  MatrixRing matrix;
  const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  if (consumer > 0) pass_turn(kConsumers - 1);
  for (Turns<kHanded> turns; turns.find(p, shared.slots); turns.leave(shared.slots)) {
    const Tile tile = tile_within<Tile, N>(p, turns.item(p, shared.slots));
    auto walk = blocks_of<kWords, Config::masks>(tile, shared.slots, turns);
    ScoreRows rows;
    rows.begin(p, tile, tile.row + consumer * 64 + warp * 16 + lane / 4);
    Softmax softmax{p.factor};
    softmax.begin();
    if constexpr (Config::has_sink) begin_with_sinks<I>(p, rows, softmax);
    float sums[kSums], scores[kScores], shrink[2];
    u32 probabilities[kPacked];
    if constexpr (kBytes) clear(sums);
    if (walk.is_empty()) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = 0;
      softmax.end();
      finish(p, tile, rows, softmax, sums);
      continue;
    }
    constexpr SharedWords kWordsOfKeys = Config::shares_words ? SharedWords::columns : SharedWords::none;
    Kept<Config::drops, M, kScores, kWordsOfKeys, 8> kept;
    kept.begin(p, rows.at[0]);
    const auto score = [&](int block) {
      const auto given = elements_of(shared, matrix, consumer * 64 + warp * 16);
      if (tile.is_whole(block) && !walk.is_mixed(block))
        rows.template score<true>(p, block * kTileK, scores, given);
      else
        rows.template score<false>(p, block * kTileK, scores, given);
      release_elements(shared, matrix);
      softmax.add(scores, shrink);
      kept.drop_others(scores);
    };
    const auto find_kept = [&](int block) {
      kept.template find<kBatch + 1>(p, rows.at, block * kTileK + 2 * (threadIdx.x % 4));
    };
    const u8* q = shared.q[queries.stage][0] + consumer * 64 * kLineBytes;
    shared.q_full[queries.stage].wait(queries.parity);
    shared.k_full[ring.stage].wait(ring.parity);
    issue_scores(q, shared, ring.stage, scores);
    find_kept(walk.last());
    product_wait<0>();
    pin(scores);
    release(shared.k_empty[ring.stage]);
    score(walk.last());
    pack_probabilities(scores, probabilities);
    int accumulate = 0;
#pragma unroll 1
    for (int block = walk.next(walk.last()); walk.has(block); block = walk.next(block)) {
      // Fresh ones for each block: what an earlier one computed in them must not reach a product in flight.
      float parts[kSums];
      const Ring<kStages> previous = ring;
      ring.advance();
      shared.k_full[ring.stage].wait(ring.parity);
      wait_for_turn(consumer);
      issue_scores(q, shared, ring.stage, scores);
      shared.v_full[previous.stage].wait(previous.parity);
      issue_values(shared, previous.stage, probabilities, sums, parts, accumulate);
      pass_turn(consumer);
      accumulate = 1;
      find_kept(block);
      product_wait<1>();
      pin(scores);
      release(shared.k_empty[ring.stage]);
      const float shrunk[2] = {shrink[0], shrink[1]};
      score(block);
      product_wait<0>();
      if constexpr (kBytes) {
        pin(parts);
        add_block(sums, shrunk, parts);
      } else {
        pin(sums);
      }
      release(shared.v_empty[previous.stage]);
      if constexpr (!kBytes && Config::softens) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] *= shrink[i / 2 % 2];
      }
      pack_probabilities(scores, probabilities);
    }
    release(shared.q_empty[queries.stage]);
    queries.advance();
    shared.v_full[ring.stage].wait(ring.parity);
    float parts[kSums];
    issue_values(shared, ring.stage, probabilities, sums, parts, accumulate);
    product_wait<0>();
    if constexpr (kBytes) {
      pin(parts);
      add_block(sums, shrink, parts);
    } else {
      pin(sums);
    }
    release(shared.v_empty[ring.stage]);
    ring.advance();
    softmax.end();
    finish(p, tile, rows, softmax, sums);
  }
}

enum : bool { kBusyProducers = kBytes || Config::ragged || kWords > 0 };
enum : int {
  kProducerRegisters = kConsumers == 2 ? (kBusyProducers ? 40 : 24) : 32,
  kConsumerRegisters = kConsumers == 2 ? (kBusyProducers ? 232 : 240) : 160,
};

extern "C" __global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    attention_forward(const __grid_constant__ Params p) {
  declare_products();
  extern __shared__ __align__(1024) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
  if (threadIdx.x == 0) {
    prefetch_map(p.q);
    prefetch_map(p.k);
    prefetch_map(p.v);
    shared.init();
  }
  enter_launch();
  __syncthreads();
  if (warpgroup == 0) {
    release_registers<kProducerRegisters>();
    if (is_producer(0)) produce(p, shared);
    if constexpr (kWords > 0)
      if (threadIdx.x / 32 == 1) find_blocks(p, shared);
    if constexpr (kBytes)
      if (threadIdx.x >= 32) transpose(p, shared, threadIdx.x / 32 - 1);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(p, shared, warpgroup - 1);
  }
}
