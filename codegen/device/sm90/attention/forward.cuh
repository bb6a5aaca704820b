// Owns forward attention on sm_90a: o = softmax(scores(q k^T)) v, without a score ever in memory.
//
//   a tile          64 queries for each consumer warpgroup, all keys that they see, from the last block to
//   the
//                   first
//   producer warp   q, then a block of keys and one of values in turn:  TMA --> rings of stages
//   consumers       S' = q k[j+1]^T  ||  O += P v[j]      two products in flight
//                   softmax of S'    ||  O += P v[j]      scores pass S (scale, bias, ...), bounds, exp2
//                   O *= shrink, P = S' in 16 bits
//   finish          O / sum --> Y;  largest score and sum of a row --> L
//
//   shared:  q [lines of 64][queries]   k [stages][lines of 64][keys]   v [stages][lines of 64][keys]
//   full     producer --> consumers: bytes have arrived     empty   consumers --> producer: a warp has read
#include "fusor_generated.cuh"

#include "codegen/device/sm90/attention/products.cuh"
#include "codegen/device/sm90/attention/softmax.cuh"

struct I;  // the sink of a row, if any

using Element = Config::Element;
static constexpr int kRank = S::kRank, kBatch = kRank - 2;
static constexpr int kWarpgroup = 128, kConsumers = Config::consumers;
static constexpr int kTileQ = 64 * kConsumers, kTileK = Config::tile_k, kStages = Config::stages;
static constexpr int kHead = Config::head, kValue = Config::value;  // multiples of 16
static constexpr bool kPlainScores = Config::plain_scores, kPingPong = Config::ping_pong;
static constexpr int kLine = 64, kLineBytes = 128;
static constexpr int kHeadLines = (kHead + kLine - 1) / kLine, kValueLines = (kValue + kLine - 1) / kLine;
static constexpr int kKeyBytes = kTileK * kLineBytes;
static constexpr int kScores = kTileK / 2, kSums = kValue / 2;  // of a thread

// q, k, v: maps of (element, row, batch axes from the last to the first); extents: of the batch axes; shares:
// entries that share one of k and v, by axis; factor: exponents are of 2; scale: of plain scores.

struct Shared {
  alignas(1024) u8 q[kHeadLines][kTileQ * kLineBytes];
  alignas(1024) u8 k[kStages][kHeadLines][kKeyBytes];
  alignas(1024) u8 v[kStages][kValueLines][kKeyBytes];
  Barrier q_full, q_empty, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];

  __device__ void init() {
    q_full.init(1);
    q_empty.init(kConsumers * kWarpgroup / 32);
    for (int stage = 0; stage < kStages; ++stage) {
      k_full[stage].init(1);
      v_full[stage].init(1);
      k_empty[stage].init(kConsumers * kWarpgroup / 32);
      v_empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    fence_barriers();
  }
};

// A stage of a ring and the parity of its barriers.
struct Ring {
  int stage = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// A tile of queries and its blocks of keys.
struct Tile {
  int row, last;    // first and last query that exists
  int first, end;   // blocks of keys that any of them sees
  KeyRange all;     // keys that all of them see
  Index at[kRank];  // the entry's place in the batch

  __device__ Tile(const Params& p, int number) {
    const TileQueue::Item item = p.queue.item(number);
    const int keys = static_cast<int>(p.keys);
    row = item.tile * kTileQ;
    last = min(row + kTileQ, static_cast<int>(p.queries)) - 1;
    coordinates<0, kBatch>(Index(item.entry), p.extents, at);
    const KeyRange any = p.visible.of_any(row, last, keys);
    all = p.visible.of_all(row, last, keys);
    first = any.first / kTileK;
    end = any.end > any.first ? (any.end + kTileK - 1) / kTileK : first;
  }
  __device__ bool is_whole(int block) const {
    return block * kTileK >= all.first && (block + 1) * kTileK <= all.end;
  }
};

// Copies `lines` boxes of 64 elements: rows from `row` on, of the entry at `at`.
template <int kLines, int kBytes>
FUSOR_DEVICE void copy_lines(u8 (&to)[kLines][kBytes], const TensorMap& map, Barrier& full, int row,
                             const int (&entry)[3]) {
  full.arrive_and_expect(kLines * kBytes);
#pragma unroll
  for (int line = 0; line < kLines; ++line) {
    const int at[3] = {entry[2], row, line * kLine};
    copy_planes(to[line], map, full, at, entry[1], entry[0]);
  }
}

FUSOR_DEVICE void produce(const Params& p, Shared& shared) {
  Ring ring;
  u32 parity = 0;
  for (int item = blockIdx.x; item < p.queue.items(); item += gridDim.x) {
    const Tile tile(p, item);
    if (tile.end == tile.first) continue;
    // Maps have three batch axes, the last ones first.
    int of_q[3] = {}, of_k[3] = {};
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) {
      of_q[3 - kBatch + axis] = static_cast<int>(tile.at[axis]);
      of_k[3 - kBatch + axis] = static_cast<int>(p.shares[axis].divide(tile.at[axis]));
    }
    shared.q_empty.wait(parity ^ 1);
    copy_lines(shared.q, p.q, shared.q_full, tile.row, of_q);
    parity ^= 1;
#pragma unroll 1
    for (int block = tile.end - 1; block >= tile.first; --block) {
      shared.k_empty[ring.stage].wait(ring.parity ^ 1);
      copy_lines(shared.k[ring.stage], p.k, shared.k_full[ring.stage], block * kTileK, of_k);
      shared.v_empty[ring.stage].wait(ring.parity ^ 1);
      copy_lines(shared.v[ring.stage], p.v, shared.v_full[ring.stage], block * kTileK, of_k);
      ring.advance();
    }
  }
}

// A thread's two rows of a tile, and the way from products to scores.
struct ScoreRows {
  Index at[2][kRank];
  int row[2];
  KeyRange range[2];
  S::Loads loads[2];

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
    }
  }

  // Products of the block at `key` become scores; those of keys that a row does not see, -inf.
  template <bool kWhole>
  __device__ void score(const Params& p, int key, float (&values)[kScores]) {
    const int mine = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const int half = i / 2 % 2, column = mine + i / 4 * 8;
      if constexpr (!kPlainScores) {
        at[half][kBatch + 1] = column;
        const int count = kWhole ? 2 : static_cast<int>(p.keys) - column;
        const auto scored =
            S::template apply<2>(p.s, at[half], count, loads[half], Vec<float, 2>{values[i], values[i + 1]});
        values[i] = scored[0];
        values[i + 1] = scored[1];
      }
      if constexpr (!kWhole) {
        if (column < range[half].first || column >= range[half].end) values[i] = no_score();
        if (column + 1 < range[half].first || column + 1 >= range[half].end) values[i + 1] = no_score();
      }
    }
  }
};

// Ping-pong of two consumers: one issues its products while the other is in its softmax.
FUSOR_DEVICE void wait_for_turn(int consumer) {
  if constexpr (kPingPong) wait_for_threads(1 + consumer, kConsumers * kWarpgroup);
}
FUSOR_DEVICE void pass_turn(int consumer) {
  if constexpr (kPingPong) arrive_for_threads(1 + (consumer + 1) % kConsumers, kConsumers * kWarpgroup);
}

FUSOR_DEVICE void release(Barrier& empty) {
  if (threadIdx.x % 32 == 0) empty.arrive();
}

using ScoreProduct = Product<Element, kTileK>;
using ValueProduct = Product<Element, kValue>;

// scores = q k^T
FUSOR_DEVICE void issue_scores(const Shared& shared, int stage, int consumer, float (&scores)[kScores]) {
  const u64 q = line_descriptor(shared.q[0] + consumer * 64 * kLineBytes, 16);
  const u64 k = line_descriptor(shared.k[stage][0], 16);
  product_fence();
#pragma unroll
  for (int step = 0; step < kHead / 16; ++step) {
    const int within = step % 4 * 2;  // units of 16 bytes
    ScoreProduct::along_k(scores, q + step / 4 * (kTileQ * kLineBytes >> 4) + within,
                          k + step / 4 * (kKeyBytes >> 4) + within, step > 0);
  }
  product_commit();
}

// sums += p v
FUSOR_DEVICE void issue_values(const Shared& shared, int stage, const u32 (&p)[kScores / 2],
                               float (&sums)[kSums], int accumulate) {
  const u64 v = line_descriptor(shared.v[stage][0], kKeyBytes);
  product_fence();
#pragma unroll
  for (int step = 0; step < kTileK / 16; ++step) {
    const u32 words[4] = {p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3]};
    ValueProduct::across_k(sums, words, v + step * (16 * kLineBytes >> 4), accumulate || step > 0);
  }
  product_commit();
}

FUSOR_DEVICE void pack(const float (&values)[kScores], u32 (&words)[kScores / 2]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i)
    words[i] = PairConversion<Element>::narrow(values[2 * i], values[2 * i + 1]);
}

// Lane l of a quad has columns 2 l and 2 l + 1 of four blocks of 8; then it has block l.
FUSOR_DEVICE Vec<float, 8> gather_block(const float (&pairs)[4][2]) {
  float x[4][2];
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    x[block][0] = pairs[block][0];
    x[block][1] = pairs[block][1];
  }
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = threadIdx.x & bit;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      if (block & bit) continue;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float &low = x[block][c], &high = x[block | bit][c];
        const float kept = upper ? high : low;
        const float other = __shfl_xor_sync(0xffffffff, upper ? low : high, bit);
        low = upper ? other : kept;
        high = upper ? kept : other;
      }
    }
  }
  Vec<float, 8> block;
#pragma unroll
  for (int i = 0; i < 8; ++i) block[i] = x[i / 2][i % 2];
  return block;
}

FUSOR_DEVICE void finish(const Params& p, const Tile& tile, const ScoreRows& rows,
                         const OnlineSoftmax& softmax, const float (&sums)[kSums]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool exists = rows.row[half] <= tile.last;
    const float sum = softmax.sum[half];
    const float inverse = Config::guarded && sum == 0 ? 0 : 1 / sum;
    Index at[kRank];
#pragma unroll
    for (int axis = 0; axis <= kBatch; ++axis) at[axis] = rows.at[half][axis];
#pragma unroll
    for (int first = 0; first < kValue / 8; first += 4) {
      float pairs[4][2];
#pragma unroll
      for (int block = 0; block < 4; ++block)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          pairs[block][c] = first + block < kValue / 8
                                ? sums[(first + block) % (kValue / 8) * 4 + 2 * half + c] * inverse
                                : 0;
      const Vec<float, 8> values = gather_block(pairs);
      at[kBatch + 1] = (first + lane) * 8;
      const int left = static_cast<int>(p.values) - (first + lane) * 8;
      if (exists && left > 0) Y::template apply<8>(p.y, at, left < 8 ? left : 8, values);
    }
    if constexpr (Config::saves_rows) {
      at[kBatch + 1] = 0;
      const float largest = kPlainScores ? softmax.largest[half] * p.scale : softmax.largest[half];
      if (exists && lane == 0) L::template apply<1>(p.l, at, 1, Vec<float, 1>{largest}, Vec<float, 1>{sum});
    }
  }
}

template <class Sink, class Params>
FUSOR_DEVICE void begin_with_sinks(const Params& p, const ScoreRows& rows, OnlineSoftmax& softmax) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sink = Sink::template apply<1>(p.i, rows.at[half], 1)[0];
    softmax.begin_with(half, kPlainScores ? sink / p.scale : sink);
  }
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) {
  Ring ring;
  u32 parity = 0;
  const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  if (consumer > 0) pass_turn(kConsumers - 1);
  for (int item = blockIdx.x; item < p.queue.items(); item += gridDim.x) {
    const Tile tile(p, item);
    ScoreRows rows;
    rows.begin(p, tile, tile.row + consumer * 64 + warp * 16 + lane / 4);
    OnlineSoftmax softmax{p.factor};
    softmax.begin();
    if constexpr (Config::has_sink) begin_with_sinks<I>(p, rows, softmax);
    float sums[kSums], scores[kScores], shrink[2];
    u32 probabilities[kScores / 2];
    if (tile.end == tile.first) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = 0;
      softmax.end();
      finish(p, tile, rows, softmax, sums);
      continue;
    }
    const auto score = [&](int block) {
      if (tile.is_whole(block))
        rows.template score<true>(p, block * kTileK, scores);
      else
        rows.template score<false>(p, block * kTileK, scores);
      softmax.add(scores, shrink);
    };
    shared.q_full.wait(parity);
    parity ^= 1;
    shared.k_full[ring.stage].wait(ring.parity);
    issue_scores(shared, ring.stage, consumer, scores);
    product_wait<0>();
    pin(scores);
    release(shared.k_empty[ring.stage]);
    score(tile.end - 1);
    pack(scores, probabilities);
    int accumulate = 0;
#pragma unroll 1
    for (int block = tile.end - 2; block >= tile.first; --block) {
      const Ring previous = ring;
      ring.advance();
      shared.k_full[ring.stage].wait(ring.parity);
      wait_for_turn(consumer);
      issue_scores(shared, ring.stage, consumer, scores);
      shared.v_full[previous.stage].wait(previous.parity);
      issue_values(shared, previous.stage, probabilities, sums, accumulate);
      pass_turn(consumer);
      accumulate = 1;
      product_wait<1>();
      pin(scores);
      release(shared.k_empty[ring.stage]);
      score(block);
      product_wait<0>();
      pin(sums);
      release(shared.v_empty[previous.stage]);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] *= shrink[i / 2 % 2];
      pack(scores, probabilities);
    }
    release(shared.q_empty);
    shared.v_full[ring.stage].wait(ring.parity);
    issue_values(shared, ring.stage, probabilities, sums, accumulate);
    product_wait<0>();
    pin(sums);
    release(shared.v_empty[ring.stage]);
    ring.advance();
    softmax.end();
    finish(p, tile, rows, softmax, sums);
  }
}

static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;

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
  __syncthreads();
  if (warpgroup == 0) {
    release_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce(p, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(p, shared, warpgroup - 1);
  }
}
