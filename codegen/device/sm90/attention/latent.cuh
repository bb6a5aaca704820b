// Owns attention of few queries to a cache whose rows are keys, and whose first columns are the values, on
// sm_90a: heads share a latent row of up to 576 elements, as in DeepSeek-V2's decoding. A row is read once.
//
//   a tile        64 rows: queries x heads that share keys        its keys: parts, one a block
//   producers     a warpgroup; each stage has warps of its own, which wait for its copies alone
//                 ring of kStages:  k [lines of 64 elements][kTileK keys]
//   consumers     take groups in turn: one has S = q k^T --> scores pass S, bounds, exp2 --> P in 16 bits and
//                 the largest scores, handed to the other; then both O += P v, of half the values each
//
//   consumer 0    | S[j]  softmax | O[j] |               | O[j+1] | S[j+2] ...
//   consumer 1    |               | O[j] | S[j+1] softmax| O[j+1] |
//                 so that a group leaves its stage soon: shared memory holds few of them
//
//   finish        one part       --> Y, L
//                 several parts  --> the workspace, for decode_finish
//
//   shared        q [lines of 64 elements][64 rows]   stages   what consumers exchange
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/attention/parts.cuh"
#include "codegen/device/tiled/attention/key_parts.cuh"
#include "codegen/device/tiled/attention/operands.cuh"
#include "codegen/device/tiled/attention/score_rows.cuh"

enum : int {
  kStages = Config::stages,
  kConsumers = 2,
  kThreads = kConsumers * kWarpgroup,
  kValuesOfOne = kValue / kConsumers,
  kHeadLines = lines_of(kHead),
  kLinesOfOne = kValuesOfOne / kLine,
  kWidth = 8,  // elements of a copy
  kThreadsOfStage = kWarpgroup / 32 / kStages * 32,
};
static_assert(kRows == 64 && kValuesOfOne % kLine == 0 && kValue <= kHead);

enum : int { kScores = kTileK / 2, kWords = kTileK / 4 };  // of a thread

// Barriers of consumers alone: the first two say that a group's probabilities are there.
enum : int { kHandedOver = 1, kConsumersMeet = 3 };

struct Shared {
  alignas(1024) u8 q[kHeadLines][kRows * kLineBytes];
  alignas(1024) u8 k[kStages][kHeadLines][kTileK * kLineBytes];
  alignas(16) Vec<u32, 4> probabilities[kWords / 4][kWarpgroup];
  float largest[kRows];           // of scores
  float sums[kConsumers][kRows];  // of exponentials
  Barrier full[kStages], empty[kStages];

  __device__ void init() {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(kThreadsOfStage);
      empty[stage].init(kThreads / 32);
    }
    fence_barriers();
  }
  // One part of the keys takes the stages' place when these have been read.
  __device__ Part& part() {
    static_assert(sizeof(Part) <= sizeof(k));
    return *reinterpret_cast<Part*>(k[0][0]);
  }
};
static_assert(sizeof(Shared) <= Config::shared_bytes, "the launch has room for all of it");

// Where a vector of row `row` lies in a line of 64 elements, swizzled as wgmma reads it.
FUSOR_DEVICE int place_in_line(int row, int vector) { return row * kLineBytes + (vector ^ row % 8) * 16; }

// A block's tile, and its part of the keys. Each role finds its own: registers of one are none of the
// other's.
struct Share {
  const Tile tile;  // reads lengths
  const KeyPart part;

  __device__ explicit Share(const Params& p)
      : tile(p, static_cast<int>(block_number()) / static_cast<int>(p.rows.parts)),
        part(p, tile, static_cast<int>(block_number()) % static_cast<int>(p.rows.parts)) {}
};

// The warps of one stage copy every kStages-th group of keys.
FUSOR_DEVICE void produce(const Params& p, Shared& shared) {
  const Share share(p);
  const Tile& tile = share.tile;
  const KeyPart& part = share.part;
  constexpr int kVectors = kLine / kWidth, kApart = kThreadsOfStage / kVectors, kPasses = kTileK / kApart;
  constexpr int kAtOnce = kPasses < 8 ? kPasses : 8;
  const int thread = static_cast<int>(threadIdx.x) % kThreadsOfStage;
  const int stage = static_cast<int>(threadIdx.x) / kThreadsOfStage;
  if (stage >= kStages) return;
  const int line = thread / kVectors, vector = thread % kVectors, head = static_cast<int>(p.head);
  Index at[kRank];
#pragma unroll
  for (int axis = 0; axis < kBatch; ++axis) at[axis] = tile.keys[axis];
  at[kBatch] = 0;
  u32 parity = 1;
#pragma unroll 1
  for (int group = part.first + stage; group < part.end; group += kStages, parity ^= 1) {
#pragma unroll 1
    for (int begin = 0; begin < kPasses; begin += kAtOnce) {
      const Element* from[kAtOnce];
#pragma unroll
      for (int pass = 0; pass < kAtOnce; ++pass) {
        const int key = group * kTileK + line + (begin + pass) * kApart;
        at[kBatch + 1] = min(key, part.end_key - 1);
        from[pass] = K::address(p.k, at);
        if (key >= part.end_key) from[pass] = nullptr;
      }
      if (begin == 0) shared.empty[stage].wait(parity);
#pragma unroll
      for (int pass = 0; pass < kAtOnce; ++pass) {
        const int row = line + (begin + pass) * kApart, first = vector * kWidth;
        u8* const to = shared.k[stage][0] + place_in_line(row, vector);
#pragma unroll
        for (int i = 0; i < kHeadLines; ++i) {
          const bool inside = from[pass] != nullptr && i * kLine + first < head;
          copy_async<kWidth * 2>(shared_address(to + i * kTileK * kLineBytes),
                                 from[pass] + (inside ? i * kLine + first : 0), inside);
        }
      }
    }
    commit_copies();
    wait_for_copies<0>();
    fence_shared_writes();
    shared.full[stage].arrive();
  }
}

// Consumers bring the tile's queries.
template <class Site>
FUSOR_DEVICE void copy_queries(const typename Site::Args& args, Shared& shared, const Tile& tile, int head,
                               int thread) {
  constexpr int kVectors = kHeadLines * kLine / kWidth;
  Index at[kRank];
#pragma unroll 1
  for (int i = thread; i < kRows * kVectors; i += kThreads) {
    const int row = i / kVectors, vector = i % kVectors;
    u8* const to = shared.q[vector / (kLine / kWidth)] + place_in_line(row, vector % (kLine / kWidth));
    tile.find(row, at);
    const bool inside = tile.has(row) && vector * kWidth < head;
    at[kBatch + 1] = inside ? vector * kWidth : 0;
    if constexpr (Config::q_plain && Config::q_width == kWidth) {
      const Element* const from = Site::address(args, at);
      copy_async<kWidth * 2>(shared_address(to), from, inside && from != nullptr);
    } else {
      constexpr int kPiece = Config::q_width;
      Vec<Element, kWidth> values = {};
#pragma unroll
      for (int first = 0; first < kWidth; first += kPiece) {
        if (!inside || vector * kWidth + first >= head) break;
        at[kBatch + 1] = vector * kWidth + first;
        const Vec<Element, kPiece> piece = narrow<Element>(Site::template apply<kPiece>(args, at, kPiece));
#pragma unroll
        for (int c = 0; c < kPiece; ++c) values[first + c] = piece[c];
      }
      *reinterpret_cast<Vec<Element, kWidth>*>(to) = values;
    }
  }
  commit_copies();
  wait_for_copies<0>();
  fence_shared_writes();
  wait_for_threads(kConsumersMeet, kThreads);
}

// A consumer's rows, and its half of their sums.
struct Consumer {
  const int number, warp, lane;
  ScoreRows<S, kPlainScores> rows;
  float sums[kValuesOfOne / 2];
  float largest[2], sum[2];

  __device__ Consumer(const Params& p, const Tile& tile, int number_)
      : number(number_), warp(threadIdx.x % kWarpgroup / 32), lane(threadIdx.x % 32) {
    rows.begin(p, tile, row(0));
    clear(sums);
    largest[0] = largest[1] = no_score();
    sum[0] = sum[1] = 0;
  }
  __device__ int row(int half) const { return 16 * warp + lane / 4 + 8 * half; }

  // Sums of earlier groups shrink to a row's new largest score; returns what scores of the row lose.
  __device__ float raise(int half, float highest, float factor) {
    // A row that has seen nothing yet: all its exponentials are zero.
    const float base = highest == no_score() ? 0 : -highest * factor;
    const float shrink = exp2_short(multiply_add(largest[half], factor, base));
    largest[half] = highest;
    sum[half] *= shrink;
#pragma unroll
    for (int i = 2 * half; i < kValuesOfOne / 2; i += 4) {
      sums[i] *= shrink;
      sums[i + 1] *= shrink;
    }
    return base;
  }

  // Scores of a group become probabilities, which are handed to the other consumer.
  __device__ void soften(Shared& shared, float factor, int barrier, float (&scores)[kScores],
                         u32 (&words)[kWords]) {
    float highest[2] = {largest[0], largest[1]}, base[2];
#pragma unroll
    for (int i = 0; i < kScores; ++i) highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = quad_max(highest[half]);
      if (lane % 4 == 0) shared.largest[row(half)] = highest[half];
      base[half] = highest[half] == no_score() ? 0 : -highest[half] * factor;
    }
    float part[2] = {};
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      scores[i] = exp2_short(multiply_add(scores[i], factor, base[i / 2 % 2]));
      part[i / 2 % 2] += scores[i];
    }
    pack<Element>(scores, words);
    const int thread = threadIdx.x % kWarpgroup;
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i)
      shared.probabilities[i][thread] = {
          {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]}};
    arrive_for_threads(barrier, kThreads);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      raise(half, highest[half], factor);
      sum[half] += part[half];
    }
  }

  // Probabilities of a group that the other consumer had.
  __device__ void take(Shared& shared, float factor, int barrier, u32 (&words)[kWords]) {
    wait_for_threads(barrier, kThreads);
    const int thread = threadIdx.x % kWarpgroup;
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const Vec<u32, 4> four = shared.probabilities[i][thread];
#pragma unroll
      for (int c = 0; c < 4; ++c) words[4 * i + c] = four[c];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) raise(half, shared.largest[row(half)], factor);
  }

  // Sums of both consumers' groups, added up in one order.
  __device__ void finish(Shared& shared) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = quad_sum(sum[half]);
      if (lane % 4 == 0) shared.sums[number][row(half)] = sum[half];
    }
    wait_for_threads(kConsumersMeet, kThreads);
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] = shared.sums[0][row(half)] + shared.sums[1][row(half)];
  }

  __device__ void store(const Tile& tile, Part& to) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!tile.has(row(half))) continue;
#pragma unroll
      for (int block = 0; block < kValuesOfOne / 8; ++block)
        *reinterpret_cast<Vec<float, 2>*>(to.sums[row(half)] + number * kValuesOfOne + 8 * block +
                                          lane % 4 * 2) = {
            {sums[4 * block + 2 * half], sums[4 * block + 2 * half + 1]}};
      if (number == 0 && lane % 4 == 0) {
        to.largest[row(half)] = largest[half];
        to.sum[row(half)] = sum[half];
      }
    }
  }
};

template <class Params>
FUSOR_DEVICE Part& part_of_block(const Params& p, Shared& shared, int number) {
  if constexpr (Config::exchange == 2)
    return p.parts[number];
  else
    return shared.part();
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int number) {
  const Share share(p);
  const Tile& tile = share.tile;
  const KeyPart& part = share.part;
  const int thread = static_cast<int>(threadIdx.x) - kWarpgroup;
  copy_queries<Q>(p.q, shared, tile, static_cast<int>(p.head), thread);
  Consumer mine(p, tile, number);
  Ring<kStages> ring;
#pragma unroll 1
  for (int group = part.first; group < part.end; ++group, ring.advance()) {
    const int turn = (group - part.first) % kConsumers;
    u32 words[kWords];
    if (turn == number) {
      float scores[kScores];
      shared.full[ring.stage].wait(ring.parity);
      issue_along<Element, kHead, kRows, kTileK>(shared.q[0], shared.k[ring.stage][0], scores);
      product_wait<0>();
      pin(scores);
      if (part.is_whole(group))
        mine.rows.template score<true>(p, group * kTileK, scores);
      else
        mine.rows.template score<false>(p, group * kTileK, scores);
      mine.soften(shared, p.factor, kHandedOver + turn, scores, words);
    } else {
      mine.take(shared, p.factor, kHandedOver + turn, words);
    }
    issue_across<Element, kTileK>(words, shared.k[ring.stage][number * kLinesOfOne], mine.sums, 1);
    product_wait<0>();
    pin(mine.sums);
    release(shared.empty[ring.stage]);
  }
  if constexpr (Config::exchange == 2) let_next_launch_begin();
  mine.finish(shared);  // behind it, no stage is read any more
  Part& to = part_of_block(p, shared, static_cast<int>(block_number()));
  mine.store(tile, to);
  if constexpr (Config::exchange == 0) {
    wait_for_threads(kConsumersMeet, kThreads);
    const int vectors = tile.rows() * Part::kVectors;
    for (int first = 0; first < vectors; first += kThreads)
      finish_vector<1>(p, tile, 1, first + thread, vectors, [&](int) { return &to; });
  }
}

extern "C" __global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    attention_latent(const __grid_constant__ Params p) {
  declare_products();
  extern __shared__ __align__(1024) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
  if (threadIdx.x == 0) shared.init();
  enter_launch(p, Config::exchange != 2);
  __syncthreads();
  if (warpgroup == 0) {
    release_registers<72>();
    produce(p, shared);
  } else {
    claim_registers<216>();
    consume(p, shared, warpgroup - 1);
  }
  leave_launch(p);
}
