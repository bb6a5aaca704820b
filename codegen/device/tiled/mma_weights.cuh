// Owns the matmul of few rows by weights that are stored in 8 or 4 bits, on the tensor cores of sm_80 and
// later. The weights go from memory through the prologue into fragments, without a stop in shared memory
// after it: they are the operand of 16 rows, and the rows of the result are its columns.
//
//   8 warps, kWarpsN x kWarpsK: columns of the tile, and chunks of k
//   iteration     one barrier, then
//   load          stage k + kStages - 1:  cp.async of the weights as they are stored, each lane's to a place
//                                         of its own; of a, in the order in which fragments read it
//   compute       stage k:  stored words --> floats --> B --> 16-bit pairs --> mma.sync
//   finish        warps of one place add up in shared memory --> Y, the workspace of a split, or the sums of
//                 a cluster (gather.cuh)
//
//   a lane (g = lane / 4, t = lane % 4) has kRun neighbours in k of a chunk of 4 kRun: t * kRun and up
//     weights along k   a vector of kRun steps of each column g, g + 8, ... of the warp
//     weights along n   a vector of kAcross columns from g * kAcross on, of each of its steps
//   Which steps meet in one instruction is of no matter, as long as both operands agree.
//
//   shared: union of stages[kStages] {a, weights} and staged sums
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/base/stored_words.cuh"
#include "codegen/device/tiled/gather.cuh"
#include "codegen/device/tiled/part.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

enum : int {
  kTileK = Config::tile_k,
  kStages = Config::stages,
  kBlocks = Config::cluster,  // blocks of a cluster that share a tile
  kRun = Config::run,
  kAcross = Config::across,
  kWarpColumns = Config::warp_columns,
  kWarpsN = kTileN / kWarpColumns,
  kWarpsK = kThreads / 32 / kWarpsN,
  kChunk = 4 * kRun,
  kChunks = kTileK / (kChunk * kWarpsK),  // of a warp in a stage
  kRowBlocks = kTileM / 8,
  kColumnBlocks = kWarpColumns / 16,
  kHeld = Config::held,
};
enum : bool {
  kAlongK = Config::b_along_k,
  kWholeChunks = Config::whole_chunks,  // k has no end within a chunk
};
static_assert(kRun % 8 == 0 && kChunks > 0 && kTileK == kChunks * kChunk * kWarpsK, "whole chunks");
static_assert(kAlongK ? kAcross == 1 && kWarpColumns % 16 == 0 : kRun == 8 && kWarpColumns == 8 * kAcross,
              "lanes share out a warp's columns");
static_assert(Config::y_along_n, "vectors of the result run along n");

using Stored = Config::StoredB;
enum : int {
  kBits = kPackedBits<Stored> > 0 ? kPackedBits<Stored> : 8,
  kOfWord = 32 / kBits,
  kVectors = kAlongK ? kWarpColumns / 8 : kRun,   // of a lane in a chunk
  kWords = (kAlongK ? kRun : kAcross) / kOfWord,  // of a vector
};
using Vector = Vec<u32, kWords>;

struct Stage {
  alignas(128) u8 a[kTileM * kTileK * 2];
  alignas(128) Vector weights[kThreads / 32][kChunks][kVectors][32];
};
enum : int { kStagedPitch = kTileN + 4 };
struct Shared {
  union {
    Stage stages[kStages];
    alignas(16) Sum staged[kTileM * kStagedPitch];
  };
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
FUSOR_DEVICE int warp() { return threadIdx.x / 32; }
FUSOR_DEVICE int warp_n() { return warp() % kWarpsN; }
FUSOR_DEVICE int warp_k() { return warp() / kWarpsN; }

/// Where step and column meet in the sites of the weights, whose axis of k may be one of blocks and one of
/// steps in a block.
template <int kRank, class Params>
FUSOR_DEVICE void find_weight(const Params& p, Index entry, Index column, Index step, Index (&at)[kRank]) {
  const Key of_column{column, {}}, of_step{step, {}};
  if constexpr (Config::blocked) {
    const Index block = p.block.divide(step);
    at[0] = block;
    at[1] = step - block * p.block.divisor;
    at[2] = column;
  } else {
    p.problem.second_operand(entry, of_column, of_step, at);
  }
}

template <class T>
FUSOR_DEVICE const char* bytes_at(const T* pointer) {
  return reinterpret_cast<const char*>(pointer);
}
template <class T>
FUSOR_DEVICE const char* bytes_at(const PackedPointer<T>& pointer) {
  return reinterpret_cast<const char*>(pointer.byte());
}

/// The copies of a block's part into stages.
struct Copies {
  const char *a, *weights;  // this lane's first row and column, at step 0
  i64 row, other;           // bytes to the next row of a; to the next column or step of the weights
  int rows, columns;        // that exist from there on
  Index end;

  __device__ Copies(const Params& p, const Part& part) : end(part.end) {
    const Place& place = part.place;
    Index at[A::kRank];
    p.problem.first_operand(place.entry, Key{0, {}}, Key{0, {}}, at);
    a = bytes_at(A::address(p.a, at));
    p.problem.first_operand(place.entry, Key{1, {}}, Key{0, {}}, at);
    row = bytes_at(A::address(p.a, at)) - a;
    const Index first_row = place.row + lane() % 8;
    a += first_row * row;
    rows = static_cast<int>(Index(p.problem.m) - first_row);

    Index found[B::kRank];
    find_weight(p, place.entry, 0, 0, found);
    const char* const origin = bytes_at(W::address(p.w, found));
    // Neighbours along the axis on which they are not adjacent, an even number apart: bytes are whole.
    constexpr int kApart = 2;
    find_weight(p, place.entry, kAlongK ? kApart : 0, kAlongK ? 0 : kApart, found);
    other = (bytes_at(W::address(p.w, found)) - origin) / kApart;
    const Index column = place.column + warp_n() * kWarpColumns + lane() / 4 * kAcross;
    columns = static_cast<int>(Index(p.problem.n) - column);
    weights = origin + (kAlongK ? column * other : column * kBits / 8);
  }

  /// Starts those of the steps from `k` on.
  __device__ void start(Stage& stage, Index k) const {
    start_rows(stage, k);
    start_weights(stage, k);
  }

 private:
  /// Eight lanes take a row each, so that they write without conflicts.
  __device__ void start_rows(Stage& stage, Index k) const {
    constexpr int kPieces = kTileK / 32, kCopies = kRowBlocks * kPieces;
    const u32 to = shared_address(stage.a);
#pragma unroll
    for (int i = 0; i < kCopies; i += kThreads / 32) {
      const int number = i + warp();
      if (kCopies % (kThreads / 32) != 0 && number >= kCopies) break;
      const int block = number / kPieces, step = number % kPieces * 32 + lane() / 8 * 8;
      const bool inside = 8 * block < rows && k + step < end;
      copy_async<16>(to + place_of(block, step), inside ? a + 8 * block * row + (k + step) * 2 : a, inside);
    }
  }
  /// Of eight steps of this lane's row in a block of eight.
  static __device__ u32 place_of(int block, int step) {
    const int t = step % kChunk / kRun, g = lane() % 8;
    return ((step / kChunk * (kRun / 8) + step % kRun / 8) * kRowBlocks + block) * 512 +
           (8 * t + (g ^ 2 * t)) * 16;
  }

  __device__ void start_weights(Stage& stage, Index k) const {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const Index step = k + (chunk * kWarpsK + warp_k()) * kChunk + lane() % 4 * kRun;
      const char* from = weights + (kAlongK ? step * kBits / 8 : step * other);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const bool inside = kAlongK ? 8 * i < columns && step < end : columns > 0 && step + i < end;
        copy_async<sizeof(Vector)>(shared_address(&stage.weights[warp()][chunk][i][lane()]),
                                   inside ? from : weights, inside);
        from += kAlongK ? 8 * other : other;
      }
    }
  }
};

// ---- What the prologue reads beside the weights: scales, zero points ----

struct H0;
struct H1;
struct H2;

/// The values of one operand that a lane needs for a chunk: one for each of its columns, or one for all.
template <class Site, bool kPerColumn>
struct HeldOperand {
  enum : int { kCount = !kPerColumn ? 1 : kAlongK ? kVectors : kAcross };
  typename Site::Value value[kCount];

  template <class Params>
  __device__ void load(const Params& p, const typename Site::Args& args, const Place& place, Index step) {
    const Index n = Index(p.problem.n);
    const Index first = place.column + warp_n() * kWarpColumns + lane() / 4 * kAcross;
    step = step < Index(p.problem.k) ? step : Index(0);
    Index at[Site::kRank];
    if constexpr (kAlongK || !kPerColumn) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const Index column = first + 8 * i;
        find_weight(p, place.entry, column < n ? column : Index(0), step, at);
        value[i] = Site::template apply<1>(args, at, 1)[0];
      }
    } else {
      find_weight(p, place.entry, first < n ? first : Index(0), step, at);
      const auto values = Site::template apply<kAcross>(args, at, kAcross);
#pragma unroll
      for (int i = 0; i < kAcross; ++i) value[i] = values[i];
    }
  }

  /// Those of N elements of vector `vector`, the first of them element `first` of it.
  template <int N>
  __device__ Vec<typename Site::Value, N> of(int vector, int first) const {
    Vec<typename Site::Value, N> values;
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = value[!kPerColumn ? 0 : kAlongK ? vector : first + i];
    return values;
  }
};
struct NoOperand {
  template <class... Arguments>
  __device__ void load(const Arguments&...) {}
  template <int N>
  __device__ Vec<float, N> of(int, int) const {
    return {};
  }
};

struct Held {
  If<(kHeld > 0), HeldOperand<H0, Config::per_column0>, NoOperand> first;
  If<(kHeld > 1), HeldOperand<H1, Config::per_column1>, NoOperand> second;
  If<(kHeld > 2), HeldOperand<H2, Config::per_column2>, NoOperand> third;

  template <class Params>
  __device__ void load(const Params& p, const Place& place, Index step) {
    if constexpr (kHeld > 0) first.load(p, p.h0, place, step);
    if constexpr (kHeld > 1) second.load(p, p.h1, place, step);
    if constexpr (kHeld > 2) third.load(p, p.h2, place, step);
  }

  /// N weights of a lane behind the prologue, from the first one's place on.
  template <int N, class Site, class Params>
  __device__ Vec<float, N> apply(const Params& p, const Index (&at)[Site::kRank], int vector, int element,
                                 const Vec<float, N>& stored) const {
    const auto loads = Site::loads(p.b, at, N);
    if constexpr (kHeld == 0)
      return Site::template apply<N>(p.b, at, N, loads, stored);
    else if constexpr (kHeld == 1)
      return Site::template apply<N>(p.b, at, N, loads, stored, first.template of<N>(vector, element));
    else if constexpr (kHeld == 2)
      return Site::template apply<N>(p.b, at, N, loads, stored, first.template of<N>(vector, element),
                                     second.template of<N>(vector, element));
    else
      return Site::template apply<N>(p.b, at, N, loads, stored, first.template of<N>(vector, element),
                                     second.template of<N>(vector, element),
                                     third.template of<N>(vector, element));
  }
};

// ---- Products ----

/// The sums of one warp: its columns, by all rows of the tile.
struct WarpSums {
  Sum sum[kColumnBlocks][kRowBlocks][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kColumnBlocks; ++i)
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int s = 0; s < 4; ++s) sum[i][r][s] = Sum(0);
  }

  __device__ void add_chunk(const Params& p, const Place& place, const Stage& stage, int chunk, Index step,
                            Index end, const Held& held) {
    const u32 rows = shared_address(stage.a) + (chunk * kWarpsK + warp_k()) * (kRun / 8 * kRowBlocks * 512) +
                     place_in_rows();
    const Vector* const weights = &stage.weights[warp()][chunk][0][lane()];
    if constexpr (kAlongK)
      add_along_k(p, place, weights, rows, step, end, held);
    else
      add_along_n(p, place, weights, rows, step, end, held);
  }

  /// Adds them to staged sums, or stores them first.
  __device__ void stage(Sum* staged, bool adds) const {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int i = 0; i < kColumnBlocks; ++i)
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const int column =
              warp_n() * kWarpColumns + (kAlongK ? 16 * i + 8 * (s / 2) + g : g * kAcross + 2 * i + s / 2);
          Sum& to = staged[(8 * r + 2 * t + s % 2) * kStagedPitch + column];
          to = adds ? to + sum[i][r][s] : sum[i][r][s];
        }
  }

 private:
  static __device__ u32 place_in_rows() {
    const int g = lane() / 4, t = lane() % 4;
    return (8 * t + (g ^ 2 * t)) * 16;
  }
  /// Eight steps of a row in each block of eight rows.
  struct Rows {
    Vec<u32, 4> words[kRowBlocks];
    __device__ Rows(u32 from) {
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[r][0]), "=r"(words[r][1]), "=r"(words[r][2]), "=r"(words[r][3])
                     : "r"(from + r * 512));
    }
  };
  static __device__ u32 pair(float low, float high) { return PairConversion<ElementB>::narrow(low, high); }

  /// `low`, `high`: eight steps of a column of the upper and of the lower half of a block.
  __device__ void add(int block, const float (&low)[8], const float (&high)[8], const Rows& rows,
                      bool exists) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      u32 weights[4] = {pair(low[4 * s], low[4 * s + 1]), pair(high[4 * s], high[4 * s + 1]),
                        pair(low[4 * s + 2], low[4 * s + 3]), pair(high[4 * s + 2], high[4 * s + 3])};
      if constexpr (!kWholeChunks)
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[i] = exists ? weights[i] : 0;
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
        multiply_add(sum[block][r], weights, rows.words[r][2 * s], rows.words[r][2 * s + 1]);
    }
  }

  __device__ void add_along_k(const Params& p, const Place& place, const Vector* weights, u32 rows,
                              Index step, Index end, const Held& held) {
    const int g = lane() / 4;
    Vector vectors[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vectors[i] = weights[32 * i];
#pragma unroll
    for (int q = 0; q < kRun / 8; ++q) {
      const Rows of_rows(rows + q * (kRowBlocks * 512));
#pragma unroll
      for (int block = 0; block < kColumnBlocks; ++block) {
        float values[2][8];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int vector = 2 * block + half;
          Index at[B::kRank];
          find_weight(p, place.entry, place.column + warp_n() * kWarpColumns + 8 * vector + g, step + 8 * q,
                      at);
          Vec<float, 8> stored;
#pragma unroll
          for (int word = 0; word < 8 / kOfWord; ++word)
            StoredWord<Stored>::floats(vectors[vector][q * (8 / kOfWord) + word],
                                       reinterpret_cast<float(&)[kOfWord]>(stored.lane[word * kOfWord]));
          const Vec<float, 8> passed = held.template apply<8, B>(p, at, vector, 8 * q, stored);
#pragma unroll
          for (int i = 0; i < 8; ++i) values[half][i] = passed[i];
        }
        add(block, values[0], values[1], of_rows, step < end);
      }
    }
  }

  /// A word of neighbouring columns of each of eight steps at a time: their pairs are made across steps.
  __device__ void add_along_n(const Params& p, const Place& place, const Vector* weights, u32 rows,
                              Index step, Index end, const Held& held) {
    const Rows of_rows(rows);
    const Index column = place.column + warp_n() * kWarpColumns + lane() / 4 * kAcross;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      Vec<float, kOfWord> passed[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        Index at[B::kRank];
        find_weight(p, place.entry, column + word * kOfWord, step + i, at);
        Vec<float, kOfWord> stored;
        StoredWord<Stored>::floats(weights[32 * i][word], stored.lane);
        passed[i] = held.template apply<kOfWord, B>(p, at, i, word * kOfWord, stored);
        if constexpr (!kWholeChunks)
#pragma unroll
          for (int c = 0; c < kOfWord; ++c) passed[i][c] = step + i < end ? passed[i][c] : 0.0f;
      }
#pragma unroll
      for (int c = 0; c < kOfWord; c += 2) {
        float values[2][8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          values[0][i] = passed[i][c];
          values[1][i] = passed[i][c + 1];
        }
        add((word * kOfWord + c) / 2, values[0], values[1], of_rows, true);
      }
    }
  }
};

/// Sums the part's steps of its tile. Copies are kStages - 1 stages ahead; the values of scales a chunk.
FUSOR_DEVICE void sum_part(const Params& p, const Part& part, Shared& shared, WarpSums& sums) {
  const Copies copies(p, part);
  const auto step_of = [](Index k, int chunk) {
    return k + (chunk * kWarpsK + warp_k()) * kChunk + lane() % 4 * kRun;
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    const Index k = part.begin + stage * kTileK;
    if (k < part.end) copies.start(shared.stages[stage], k);
    commit_copies();
  }
  Held held;
  held.load(p, part.place, step_of(part.begin, 0));
  int stage = 0, filled = kStages - 1;
#pragma unroll 1
  for (Index k = part.begin; k < part.end; k += kTileK) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const Index next = k + (kStages - 1) * kTileK;
    if (next < part.end) copies.start(shared.stages[filled], next);
    commit_copies();
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const Held of_chunk = held;
      if constexpr (Config::held_moves)
        held.load(p, part.place, chunk + 1 < kChunks ? step_of(k, chunk + 1) : step_of(k + kTileK, 0));
      sums.add_chunk(p, part.place, shared.stages[stage], chunk, step_of(k, chunk), part.end, of_chunk);
    }
    filled = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

FUSOR_DEVICE void meet_blocks() {
  if constexpr (kBlocks > 1) {
    __syncwarp();
    synchronise_cluster();
  } else {
    __syncthreads();
  }
}

/// Adds up what warps have of the same columns, and applies the epilogue. Blocks that share a tile share out
/// its vectors.
FUSOR_DEVICE void finish(const Params& p, const Part& part, Shared& shared, const WarpSums& sums) {
  constexpr int kOfLine = kTileN / kFinishWidth;
  __syncthreads();
#pragma unroll 1
  for (int k = 0; k < kWarpsK; ++k) {
    if (warp_k() == k) sums.stage(shared.staged, k > 0);
    if (k + 1 < kWarpsK) __syncthreads();
  }
  meet_blocks();
  const int first = kBlocks > 1 ? int(cluster_rank()) * kThreads + threadIdx.x : threadIdx.x;
#pragma unroll 1
  for (int i = first; i < kTileM * kOfLine; i += kBlocks * kThreads) {
    const int line = i / kOfLine, along = i % kOfLine * kFinishWidth;
    const Sum* const staged = shared.staged + line * kStagedPitch + along;
    if constexpr (kBlocks > 1) {
      const Vec<Sum, kFinishWidth> total = sum_of_blocks<kFinishWidth, kBlocks>(staged);
      finish_vector(p, part, line * kTileN + along, &total[0]);
    } else {
      finish_vector(p, part, line * kTileN + along, staged);
    }
  }
  // Nobody leaves whose sums others still read.
  if constexpr (kBlocks > 1) meet_blocks();
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks_per_sm)
    mma_weights(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  enter_launch(p);
  const Part part = part_of_block(p);
  if (part.is_none()) return;
  WarpSums sums;
  sums.clear();
  sum_part(p, part, shared, sums);
  finish(p, part, shared, sums);
  leave_launch(p);
}
