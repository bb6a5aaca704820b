// Owns the rows of a tile of attention_decode, in which the queries of all heads that share keys are packed,
// and how the parts of its keys become one result.
//
//   row     query * heads + head, of the heads that share keys
//   part    a range of the keys: of a warp, of a block, or of a block of another launch
#pragma once

#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/sm90/attention/softmax.cuh"
#include "codegen/device/tiled/attention/shape.cuh"

enum : int { kRows = 16 * Config::row_blocks };

/// Rows of an entry of the keys, and tiles of kRows of them; parts of a tile's keys.
struct PackedRows {
  i64 rows, tiles, parts;
  FastDivisor heads;
};

/// Tiles of rows by entry of the keys. `extents` are those of the keys' batch, `shares` the heads that share
/// an entry of it, by axis.
struct RowTile {
  const FastDivisor* shares;
  FastDivisor heads;
  int row, last;  // first row, and the last that exists
  Index keys[kRank];

  template <class Params>
  __device__ RowTile(const Params& p, int number) : shares(p.shares), heads(p.rows.heads) {
    const int tiles = static_cast<int>(p.rows.tiles);
    row = number % tiles * kRows;
    last = min(row + kRows, static_cast<int>(p.rows.rows)) - 1;
    coordinates<0, kBatch>(Index(number / tiles), p.extents, keys);
  }
  __device__ int rows() const { return last + 1 - row; }
  __device__ bool has(int of_tile) const { return row + of_tile <= last; }
  __device__ int query_of(int row_of_entry) const { return static_cast<int>(heads.divide(row_of_entry)); }

  /// Puts the place of a row of the tile into `at`, and returns the query; past the last, that of the last.
  __device__ int find(int of_tile, Index (&at)[kRank]) const {
    Index query = min(row + of_tile, last);
    const Index head = heads.split(query);
    Index of_share[kRank];
    coordinates<0, kBatch>(head, shares, of_share);
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) at[axis] = keys[axis] * shares[axis].divisor + of_share[axis];
    at[kBatch] = query;
    return static_cast<int>(query);
  }
};

/// Sums of a part's exponentials times values; scores stand for exp2(score * factor). Lines are padded, so
/// that neither fragments nor vectors of a line meet in a bank.
struct Part {
  enum : int { kVector = 4, kVectors = kValue / kVector };
  alignas(16) float sums[kRows][kValue + 8];
  float largest[kRows], sum[kRows];
};

/// A vector of a row: the sums, and the largest score and sum of exponentials that they go with.
struct RowVector {
  Vec<float, Part::kVector> sums;
  float largest, sum;

  __device__ void load(const Part& part, int row, int vector) {
    sums = *reinterpret_cast<const Vec<float, Part::kVector>*>(part.sums[row] + vector * Part::kVector);
    largest = part.largest[row];
    sum = part.sum[row];
  }
  __device__ void shrink(float weight) {
    sum *= weight;
#pragma unroll
    for (int c = 0; c < Part::kVector; ++c) sums[c] *= weight;
  }
  __device__ void add(float weight, const RowVector& other) {
    sum = multiply_add(weight, other.sum, sum);
#pragma unroll
    for (int c = 0; c < Part::kVector; ++c) sums[c] = multiply_add(weight, other.sums.lane[c], sums[c]);
  }
  /// With another lane's, whose parts come after this one's.
  __device__ void add_lane(float factor, int distance) {
    RowVector other;
    other.largest = __shfl_xor_sync(0xffffffff, largest, distance);
    other.sum = __shfl_xor_sync(0xffffffff, sum, distance);
#pragma unroll
    for (int c = 0; c < Part::kVector; ++c) other.sums[c] = __shfl_xor_sync(0xffffffff, sums[c], distance);
    const float highest = fmaxf(largest, other.largest);
    const float base = highest == no_score() ? 0 : -highest * factor;
    shrink(exp2_short(multiply_add(largest, factor, base)));
    add(exp2_short(multiply_add(other.largest, factor, base)), other);
    largest = highest;
  }
  __device__ void store(Part& part, int row, int vector) const {
    *reinterpret_cast<Vec<float, Part::kVector>*>(part.sums[row] + vector * Part::kVector) = sums;
    if (vector == 0) {
      part.largest[row] = largest;
      part.sum[row] = sum;
    }
  }
};

/// Adds up `parts` parts in order, kAtOnce of which are loaded together; `part_of(i)` is a pointer to one.
/// `sink`: a score without a key.
template <class PartOf>
FUSOR_DEVICE RowVector sum_of_parts(float factor, float sink, int parts, int row, int vector,
                                    PartOf&& part_of) {
  constexpr int kAtOnce = 4;
  RowVector total;
  total.largest = sink;
  total.sum = sink == no_score() ? 0 : 1;
#pragma unroll
  for (int c = 0; c < Part::kVector; ++c) total.sums[c] = 0;
#pragma unroll 1
  for (int begin = 0; begin < parts; begin += kAtOnce) {
    RowVector loaded[kAtOnce];
    float largest = total.largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      loaded[i] = {{}, no_score(), 0};
      if (begin + i < parts) loaded[i].load(*part_of(begin + i), row, vector);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) largest = fmaxf(largest, loaded[i].largest);
    const float base = largest == no_score() ? 0 : -largest * factor;
    total.shrink(exp2_short(multiply_add(total.largest, factor, base)));
    total.largest = largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      total.add(exp2_short(multiply_add(loaded[i].largest, factor, base)), loaded[i]);
  }
  return total;
}

template <class Sink, class Params>
FUSOR_DEVICE float sink_of(const Params& p, const Index (&at)[kRank]) {
  const float sink = Sink::template apply<1>(p.i, at, 1)[0];
  return kPlainScores ? sink / p.scale : sink;
}

template <class Params>
FUSOR_DEVICE void store_results(const Params& p, Index (&at)[kRank], int vector, const RowVector& total) {
  if constexpr (Config::saves_rows) {
    const float largest = kPlainScores ? total.largest * p.scale : total.largest;
    if (vector == 0) L::template apply<1>(p.l, at, 1, Vec<float, 1>{largest}, Vec<float, 1>{total.sum});
  }
  const float inverse = Config::guarded && total.sum == 0 ? 0 : 1 / total.sum;
  Vec<float, Part::kVector> values;
#pragma unroll
  for (int c = 0; c < Part::kVector; ++c) values[c] = total.sums.lane[c] * inverse;
  at[kBatch + 1] = vector * Part::kVector;
  const int left = static_cast<int>(p.values) - vector * Part::kVector;
  if (left > 0) Y::template apply<Part::kVector>(p.y, at, min(left, Part::kVector), values);
}

/// Adds up the parts of the tile's vector `number`, if that is below `end`, and stores its results. kLanes
/// lanes of a warp, kAcross apart, share the parts; all lanes of a warp call it.
template <int kLanes, class Params, class PartOf>
FUSOR_DEVICE void finish_vector(const Params& p, const RowTile& tile, int parts, int number, int end,
                                PartOf&& part_of) {
  constexpr int kAcross = 32 / kLanes;
  const bool exists = number < end;
  const int existing = exists ? number : 0;
  const int row = existing / Part::kVectors, vector = existing % Part::kVectors;
  const int lane = static_cast<int>(threadIdx.x) % 32 / kAcross;
  Index at[kRank];
  tile.find(row, at);
  at[kBatch + 1] = 0;
  float sink = no_score();
  if constexpr (Config::has_sink) sink = lane == 0 ? sink_of<I>(p, at) : no_score();
  RowVector total = sum_of_parts(p.factor, sink, (parts - lane + kLanes - 1) / kLanes, row, vector,
                                 [&](int i) { return part_of(lane + i * kLanes); });
#pragma unroll
  for (int distance = kAcross; distance < 32; distance *= 2) total.add_lane(p.factor, distance);
  if (exists && lane == 0) store_results(p, at, vector, total);
}
