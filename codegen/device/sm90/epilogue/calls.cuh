// Owns the calls of the epilogue of the tensor-core contraction of sm_90a: with a pair of a thread's sums, or
// with all its sums of a row in a piece; beside them staged operands, and the totals of reductions.
#pragma once

#include "codegen/device/sm90/epilogue/pieces.cuh"
#include "codegen/device/sm90/epilogue/places.cuh"
#include "codegen/device/sm90/epilogue/reduce.cuh"

// kVector of a piece's sums, of every sibling.
using Chosen = Vec<Sum, kVector>[kSiblings];

// A thread's share of the staged operands of a piece, and N elements of a row of it.
struct StagedPairs {
  PiecePairs<FirstStaged> first;
  PiecePairs<SecondStaged> second;
};
template <int N>
struct StagedValues {
  Vec<Carrier<FirstStaged>, N> first;
  Vec<Carrier<SecondStaged>, N> second;
};

// N elements of a thread's row `half` in a piece, from number `first` on.
template <int N, class T>
FUSOR_DEVICE Vec<Carrier<T>, N> widened(const PiecePairs<T>& pairs, int half, int first) {
  Vec<Carrier<T>, N> values;
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = widen(pairs[(first + i) / 2][half])[(first + i) % 2];
  return values;
}
template <int N>
FUSOR_DEVICE StagedValues<N> staged_from(const StagedPairs& pairs, int half, int first) {
  StagedValues<N> values{};
  if constexpr (kStaged > 0) values.first = widened<N, FirstStaged>(pairs.first, half, first);
  if constexpr (kStaged > 1) values.second = widened<N, SecondStaged>(pairs.second, half, first);
  return values;
}

struct Nothing {};

// The totals to which elements of a vector are added, and how many of them are.
struct Adding {
  Total* to;
  int count;
};

static_assert(!(kReduces && kClamped) || (kClasses == 0 && !kWindowPlanes),
              "rows and columns whose totals are told what exists have no gaps");

// A thread's way to the epilogue's text.
template <class Epilogue, class Grid>
struct Applier {
  const ResultPlaces<Grid> places;
  const typename Epilogue::Args& args;

  // How many elements from `column` on are added to totals; `left` elements remain to the end. Elements that
  // do not exist may be added where the total is theirs alone: it is dropped.
  __device__ int added(const Tile& tile, const Rows& rows, int half, Index column, int left) const {
    if constexpr (!kReduces) {
      return 0;
    } else if constexpr (kClamped) {
      if (kReduced != kRowsLeft && !rows.inside[half]) return 0;
      return kReduced == kColumnsLeft ? kVector : left;
    } else {
      return places.count(rows, half, places.column_key(tile, column), column);
    }
  }

  // The values that the epilogue yields for kVector sums.
  __device__ auto values(const Tile& tile, const Rows& rows, int half, int column, const Chosen& sums,
                         const StagedValues<kVector>& staged, const Adding& adding) const {
    Index at[Epilogue::kRank];
    const int existing = places.place(tile, rows, half, column, at);
    return apply(at, existing, sums, staged, adding, Epilogue::loads(args, at, existing));
  }
  // All results are stored by this thread.
  __device__ void store(const Tile& tile, const Rows& rows, int half, int column, const Chosen& sums,
                        Total* totals) const {
    Index at[Epilogue::kRank];
    const int existing = places.place(tile, rows, half, column, at);
    if (existing > 0) apply(at, existing, sums, StagedValues<kVector>{}, {totals, existing});
  }

  // Whether the epilogue is the same for all columns of a row. Then one call handles a thread's share of a
  // piece, column coordinates are not needed, and the loads of a row are made once for all pieces.
  static constexpr __device__ bool columns_alike() {
    if constexpr (kClamped && !kReduces)
      return (Epilogue::kWalked & (kSwapped ? Problem::kRowAxes : Problem::kColumnAxes)) == 0 &&
             (Epilogue::kWalked >> Epilogue::kVectorAxis & 1) == 0;
    return false;
  }
  __device__ auto loads_of_row(const Tile& tile, const Key& row) const {
    if constexpr (columns_alike()) {
      Index at[Epilogue::kRank];
      places.place_row(tile, row, at);
      return Epilogue::loads(args, at, 1);
    } else {
      return Nothing{};
    }
  }
  template <class Loads>
  __device__ auto values_of_row(const Tile& tile, const Key& row, int half, const PieceSums& sums,
                                const Loads& loads, const StagedPairs& staged) const {
    constexpr int kMine = kPiece / 4;
    Vec<Sum, kMine> mine[kSiblings];
#pragma unroll
    for (int sibling = 0; sibling < kSiblings; ++sibling)
#pragma unroll
      for (int i = 0; i < kMine; ++i) mine[sibling][i] = sums[sibling][i / 2 * 4 + 2 * half + i % 2];
    Index at[Epilogue::kRank];
    places.place_row(tile, row, at);
    return apply(at, kMine, mine, staged_from<kMine>(staged, half, 0), {}, loads);
  }

 private:
  // `loads`: of an epilogue that yields values.
  template <int N, class... Loads>
  __device__ auto apply(const Index (&at)[Epilogue::kRank], int existing,
                        const Vec<Sum, N> (&sums)[kSiblings], const StagedValues<N>& staged,
                        const Adding& adding, const Loads&... loads) const {
    if constexpr (kSiblings == 2)
      return apply_with<N>(at, existing, adding, staged, loads..., sums[0], sums[1]);
    else
      return apply_with<N>(at, existing, adding, staged, loads..., sums[0]);
  }
  template <int N, class... Inputs>
  __device__ auto apply_with(const Index (&at)[Epilogue::kRank], int existing, const Adding& adding,
                             const StagedValues<N>& staged, const Inputs&... inputs) const {
    if constexpr (kStaged == 2)
      return apply_to<N>(at, existing, adding, inputs..., staged.first, staged.second);
    else if constexpr (kStaged == 1)
      return apply_to<N>(at, existing, adding, inputs..., staged.first);
    else
      return apply_to<N>(at, existing, adding, inputs...);
  }
  template <int N, class... Inputs>
  __device__ auto apply_to(const Index (&at)[Epilogue::kRank], int existing, const Adding& adding,
                           const Inputs&... inputs) const {
    if constexpr (kReduces && kBoxed)
      return Epilogue::template apply<N, kReduced == kColumnsLeft>(args, at, existing, inputs..., adding.to,
                                                                   adding.count);
    else if constexpr (kReduces)
      return Epilogue::template apply<N, kReduced == kColumnsLeft>(args, at, existing, inputs..., adding.to);
    else
      return Epilogue::template apply<N>(args, at, existing, inputs...);
  }
};
