// Owns the matmul of few rows by weights that are stored in 8 or 4 bits, on the tensor cores of sm_80 and
// later. The weights go from memory through the prologue into fragments, without a stop in shared memory
// after it: they are the operand of 16 rows, and the rows of the result are its columns.
//
//   8 warps, kWarpsN x kWarpsK: columns of the tile, and chunks of k
//   iteration     one barrier, then
//   load          stage k + kStages - 1:  cp.async of the weights as they are stored, each lane's to a place
//                                         of its own; of a, in the order in which fragments read it
//   compute       stage k:  stored words --> floats --> B --> 16-bit pairs --> mma.sync
//                           or       --> 16-bit pairs, less a zero point, times a scale --> mma.sync
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
  kInPairs = Config::in_pairs,  // the prologue is exact, or rounded once, in pairs of 16 bits
  kAlongK = Config::b_along_k,
  kWholeChunks = Config::whole_chunks,    // k has no end within a stage
  kWholeColumns = Config::whole_columns,  // nor n within a tile
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
enum : int { kStagedPitch = kTileN + 4, kStaged = kTileM * kStagedPitch };
/// Sums of the warps that share columns, each as lanes have them, and of the block, for others of a cluster.
struct StagedSums {
  alignas(16) Sum of_warps[kWarpsK][kStaged];
  alignas(16) Sum of_block[kBlocks > 1 ? kStaged : 4];
};
struct Shared {
  union {
    Stage stages[kStages];
    StagedSums sums;
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

/// The copies of a block's part into stages. A warp takes every kTurn-th of the pieces of 32 steps of eight
/// rows: what differs from copy to copy is known to the compiler, what differs between lanes is found once.
struct Copies {
  enum : int {
    kTurn = kThreads / 32,
    kPieces = kTileK / 32,
    kCopies = kRowBlocks * kPieces,
    kOfBlock = kPieces < kTurn ? kPieces : kTurn,  // warps that take pieces of one block of rows
  };
  static_assert(kOfBlock * 32 % kChunk == 0 || kTurn * 32 % kChunk == 0, "warps take whole chunks together");
  const char *a, *weights;  // this lane's first piece and vector, at step 0
  i64 row, other;           // bytes to the next row of a; to the next column or step of the weights
  int rows, columns;        // that exist from there on
  int step, piece;          // of its first piece in a stage: the step, and its place in bytes
  Index end;

  __device__ Copies(const Params& p, const Part& part) : end(part.end) {
    const Place& place = part.place;
    Index at[A::kRank];
    p.problem.first_operand(place.entry, Key{0, {}}, Key{0, {}}, at);
    a = bytes_at(A::address(p.a, at));
    p.problem.first_operand(place.entry, Key{1, {}}, Key{0, {}}, at);
    row = bytes_at(A::address(p.a, at)) - a;
    const int block = warp() / kOfBlock;
    step = warp() % kOfBlock * 32 + lane() / 8 * 8;
    piece = place_of(block, step);
    const Index first_row = place.row + 8 * block + lane() % 8;
    a += first_row * row + step * 2;
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
    const Index first = warp_k() * kChunk + lane() % 4 * kRun;
    weights = origin + (kAlongK ? column * other + first * kBits / 8 : first * other + column * kBits / 8);
  }

  /// Starts those of the steps from `k` on.
  __device__ void start(Stage& stage, Index k) const {
    start_rows(stage, k);
    start_weights(stage, k);
  }

 private:
  __device__ void start_rows(Stage& stage, Index k) const {
    const u32 to = shared_address(stage.a) + piece;
    const char* const from = a + k * 2;
#pragma unroll
    for (int i = 0; i < kCopies; i += kTurn) {
      if (kCopies % kTurn != 0 && i + warp() >= kCopies) break;
      const int block = i / kPieces, on = kPieces < kTurn ? 0 : i % kPieces * 32;
      const bool inside = 8 * block < rows && (kWholeChunks || k + step + on < end);
      copy_async<16>(to + place_of_block(block, on), from + 8 * block * row + on * 2, inside);
    }
  }
  /// Where a chunk's first piece of a block of rows lies.
  static __device__ int place_of_block(int block, int step) {
    return (step / kChunk * (kRun / 8 * kRowBlocks) + block) * 512;
  }
  /// Where eight steps of this lane's row in it do: eight lanes, of as many rows, write without conflicts.
  static __device__ int place_of(int block, int step) {
    const int t = step % kChunk / kRun, g = lane() % 8;
    return place_of_block(block, step) + step % kRun / 8 * (kRowBlocks * 512) + (8 * t + (g ^ 2 * t)) * 16;
  }

  __device__ void start_weights(Stage& stage, Index k) const {
    const Index first = k + warp_k() * kChunk + lane() % 4 * kRun;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int on = chunk * kWarpsK * kChunk;
      const char* from = weights + (kAlongK ? (k + on) * kBits / 8 : (k + on) * other);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        bool inside = kWholeColumns || (kAlongK ? 8 * i : 0) < columns;
        if constexpr (!kWholeChunks) inside = inside && first + on + (kAlongK ? 0 : i) < end;
        copy_async<sizeof(Vector)>(shared_address(&stage.weights[warp()][chunk][i][lane()]), from, inside);
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

  /// Those of a word of vector `vector`, as PairedWord has them.
  __device__ void pairs(int vector, int first, u32 (&to)[kOfWord / 2]) const {
    const Vec<typename Site::Value, kOfWord> values = of<kOfWord>(vector, first);
#pragma unroll
    for (int i = 0; i < kOfWord / 2; ++i)
      to[i] = PairConversion<ElementB>::narrow(static_cast<float>(values[kOfWord == 8 ? i : 2 * i]),
                                               static_cast<float>(values[kOfWord == 8 ? i + 4 : 2 * i + 1]));
  }
};
struct NoOperand {
  template <class... Arguments>
  __device__ void load(const Arguments&...) {}
  template <int N>
  __device__ Vec<float, N> of(int, int) const {
    return {};
  }
  __device__ void pairs(int, int, u32 (&)[kOfWord / 2]) const {}
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

  /// Pairs of the operand in place `at`.
  template <int kAt>
  __device__ void pairs(int vector, int element, u32 (&to)[kOfWord / 2]) const {
    if constexpr (kAt == 0) first.pairs(vector, element, to);
    if constexpr (kAt == 1) second.pairs(vector, element, to);
  }

  /// A word's weights behind the prologue, in pairs: less the zero points, times the scales.
  template <class T = Stored>
  __device__ void apply_to_pairs(int vector, int element, u32 word, u32 (&to)[kOfWord / 2]) const {
    PairedWord<T, ElementB>::pairs(word, to);
    u32 held[kOfWord / 2];
    if constexpr (Config::zero >= 0) {
      pairs<Config::zero>(vector, element, held);
#pragma unroll
      for (int i = 0; i < kOfWord / 2; ++i) to[i] = subtract_pairs<ElementB>(to[i], held[i]);
    }
    if constexpr (Config::scale >= 0) {
      pairs<Config::scale>(vector, element, held);
#pragma unroll
      for (int i = 0; i < kOfWord / 2; ++i) to[i] = multiply_pairs<ElementB>(to[i], held[i]);
    }
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

  /// Stores them to where staged_place() finds them: without conflicts of banks.
  __device__ void stage(Sum* staged) const {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int i = 0; i < kColumnBlocks; ++i)
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int s = 0; s < 4; ++s)
          staged[(8 * r + 2 * t + s % 2) * kStagedPitch + warp_n() * kWarpColumns +
                 (kAlongK ? 16 * i + 8 * (s / 2) : 8 * across_of(i, s / 2)) + g] = sum[i][r][s];
  }
  /// The place in a line of staged sums of a column of the tile. Of vectors across k, the first columns of
  /// all lanes are neighbours, then the second ones.
  static __device__ int staged_place(int column) {
    if constexpr (kAlongK) return column;
    const int in_warp = column % kWarpColumns;
    return column - in_warp + in_warp % kAcross * 8 + in_warp / kAcross;
  }

 private:
  static __device__ u32 place_in_rows() {
    const int g = lane() / 4, t = lane() % 4;
    return (8 * t + (g ^ 2 * t)) * 16;
  }
  /// The column of a lane's vector across k that is in the lower or the upper half of a block.
  static __device__ int across_of(int block, int half) {
    if constexpr (kInPairs && kOfWord == 8)
      return block / 4 * 8 + block % 4 + 4 * half;
    else
      return 2 * block + half;
  }

  /// Eight steps of a row in each block of eight rows, in the order of the weights' pairs.
  struct Rows {
    u32 words[kRowBlocks][4];
    __device__ Rows(u32 from) {
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
        u32 read[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(read[0]), "=r"(read[1]), "=r"(read[2]), "=r"(read[3])
                     : "r"(from + r * 512));
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[r][i] = kInPairs && kAlongK && kOfWord == 8
                            ? __byte_perm(read[i / 2], read[2 + i / 2], i % 2 == 0 ? 0x5410 : 0x7632)
                            : read[i];
      }
    }
  };

  /// `low`, `high`: eight steps of a column of the lower and of the upper half of a block, in pairs.
  __device__ void add(int block, const u32 (&low)[4], const u32 (&high)[4], const Rows& rows) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const u32 weights[4] = {low[2 * s], high[2 * s], low[2 * s + 1], high[2 * s + 1]};
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
        multiply_add(sum[block][r], weights, rows.words[r][2 * s], rows.words[r][2 * s + 1]);
    }
  }

  /// Eight steps of a vector along k, from its element 8 q on, in pairs.
  __device__ void eight_steps(const Params& p, const Place& place, const Vector& stored, int vector, int q,
                              Index step, const Held& held, u32 (&to)[4]) const {
    constexpr int kOfEight = 8 / kOfWord;
    if constexpr (kInPairs) {
#pragma unroll
      for (int word = 0; word < kOfEight; ++word)
        held.apply_to_pairs(vector, 0, stored[q * kOfEight + word],
                            reinterpret_cast<u32(&)[kOfWord / 2]>(to[word * kOfWord / 2]));
    } else {
      Index at[B::kRank];
      const Index column = place.column + warp_n() * kWarpColumns + 8 * vector + lane() / 4;
      find_weight(p, place.entry, column, step + 8 * q, at);
      Vec<float, 8> floats;
#pragma unroll
      for (int word = 0; word < kOfEight; ++word)
        StoredWord<Stored>::floats(stored[q * kOfEight + word],
                                   reinterpret_cast<float(&)[kOfWord]>(floats.lane[word * kOfWord]));
      const Vec<float, 8> passed = held.template apply<8, B>(p, at, vector, 8 * q, floats);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = PairConversion<ElementB>::narrow(passed[2 * i], passed[2 * i + 1]);
    }
  }

  __device__ void add_along_k(const Params& p, const Place& place, const Vector* weights, u32 rows,
                              Index step, Index end, const Held& held) {
    Vector vectors[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vectors[i] = weights[32 * i];
#pragma unroll
    for (int q = 0; q < kRun / 8; ++q) {
      const Rows of_rows(rows + q * (kRowBlocks * 512));
#pragma unroll
      for (int block = 0; block < kColumnBlocks; ++block) {
        u32 pairs[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int vector = 2 * block + half;
          eight_steps(p, place, vectors[vector], vector, q, step, held, pairs[half]);
          if constexpr (!kWholeChunks)
#pragma unroll
            for (int i = 0; i < 4; ++i) pairs[half][i] = step < end ? pairs[half][i] : 0;
        }
        add(block, pairs[0], pairs[1], of_rows);
      }
    }
  }

  /// A word of neighbouring columns of each of eight steps at a time: pairs of steps are made of theirs.
  __device__ void add_along_n(const Params& p, const Place& place, const Vector* weights, u32 rows,
                              Index step, Index end, const Held& held) {
    const Rows of_rows(rows);
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      u32 pairs[kOfWord][4];  // by column, then by step
      if constexpr (kInPairs)
        turn_pairs(weights, word, held, pairs);
      else
        turn_floats(p, place, weights, word, step, held, pairs);
      if constexpr (!kWholeChunks)
#pragma unroll
        for (int c = 0; c < kOfWord; ++c)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            pairs[c][i] &= (step + 2 * i < end ? 0xffffu : 0u) | (step + 2 * i + 1 < end ? 0xffff0000u : 0u);
#pragma unroll
      for (int c = 0; c < kOfWord / 2; ++c)
        add(word * kOfWord / 2 + c, pairs[2 * c], pairs[2 * c + 1], of_rows);
    }
  }

  /// pairs[2 c], pairs[2 c + 1]: of the columns in pair c.
  __device__ void turn_pairs(const Vector* weights, int word, const Held& held,
                             u32 (&pairs)[kOfWord][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u32 first[kOfWord / 2], second[kOfWord / 2];
      held.apply_to_pairs(2 * i, word * kOfWord, weights[32 * (2 * i)][word], first);
      held.apply_to_pairs(2 * i + 1, word * kOfWord, weights[32 * (2 * i + 1)][word], second);
#pragma unroll
      for (int c = 0; c < kOfWord / 2; ++c) {
        pairs[2 * c][i] = __byte_perm(first[c], second[c], 0x5410);
        pairs[2 * c + 1][i] = __byte_perm(first[c], second[c], 0x7632);
      }
    }
  }

  __device__ void turn_floats(const Params& p, const Place& place, const Vector* weights, int word,
                              Index step, const Held& held, u32 (&pairs)[kOfWord][4]) const {
    const Index column = place.column + warp_n() * kWarpColumns + lane() / 4 * kAcross + word * kOfWord;
    Vec<float, kOfWord> passed[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      Index at[B::kRank];
      find_weight(p, place.entry, column, step + i, at);
      Vec<float, kOfWord> stored;
      StoredWord<Stored>::floats(weights[32 * i][word], stored.lane);
      passed[i] = held.template apply<kOfWord, B>(p, at, i, word * kOfWord, stored);
    }
#pragma unroll
    for (int c = 0; c < kOfWord; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[c][i] = PairConversion<ElementB>::narrow(passed[2 * i][c], passed[2 * i + 1][c]);
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

/// Sums of all warps that share these columns, in their order.
FUSOR_DEVICE Vec<Sum, kFinishWidth> sum_of_warps(const StagedSums& sums, int line, int along) {
  Vec<Sum, kFinishWidth> total;
#pragma unroll
  for (int i = 0; i < kFinishWidth; ++i) total[i] = Sum(0);
#pragma unroll
  for (int k = 0; k < kWarpsK; ++k) {
    const Sum* const from = sums.of_warps[k] + line * kStagedPitch;
#pragma unroll
    for (int i = 0; i < kFinishWidth; ++i) total[i] += from[WarpSums::staged_place(along + i)];
  }
  return total;
}

/// Adds up what warps have of the same columns, and applies the epilogue. Blocks that share a tile share out
/// its vectors.
FUSOR_DEVICE void finish(const Params& p, const Part& part, Shared& shared, const WarpSums& sums) {
  constexpr int kOfLine = kTileN / kFinishWidth, kFinished = kTileM * kOfLine;
  StagedSums& staged = shared.sums;
  __syncthreads();
  sums.stage(staged.of_warps[warp_k()]);
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < kFinished; i += kThreads) {
    const int line = i / kOfLine, along = i % kOfLine * kFinishWidth;
    if (part.place.row + line >= Index(p.problem.m)) break;
    const Vec<Sum, kFinishWidth> total = sum_of_warps(staged, line, along);
    if constexpr (kBlocks > 1)
      *reinterpret_cast<Vec<Sum, kFinishWidth>*>(staged.of_block + line * kStagedPitch + along) = total;
    else
      finish_vector(p, part, line * kTileN + along, &total[0]);
  }
  if constexpr (kBlocks > 1) {
    meet_blocks();
#pragma unroll 1
    for (int i = int(cluster_rank()) * kThreads + threadIdx.x; i < kFinished; i += kBlocks * kThreads) {
      const int line = i / kOfLine, along = i % kOfLine * kFinishWidth;
      if (part.place.row + line >= Index(p.problem.m)) break;
      const Vec<Sum, kFinishWidth> total =
          sum_of_blocks<kFinishWidth, kBlocks>(staged.of_block + line * kStagedPitch + along);
      finish_vector(p, part, line * kTileN + along, &total[0]);
    }
    // Nobody leaves whose sums others still read.
    meet_blocks();
  }
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
