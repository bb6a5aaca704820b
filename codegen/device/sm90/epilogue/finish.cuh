// Owns the epilogue and the store paths of the tensor-core contraction of sm_90a.
//
//   sums in registers --> Y, pair by pair --+--> the thread stores (threads)
//                                           +--> box --> TMA store, during the next tile (boxes);
//                                           |            the store warp issues it where operands are staged
//                                           +--> box --> threads store lines or planes (scatter.cuh)
//   parts of a split of k: sums --> workspace, without Y (partials: split.cuh)
#pragma once

#include "codegen/device/sm90/epilogue/calls.cuh"
#include "codegen/device/sm90/epilogue/scatter.cuh"
#include "codegen/device/sm90/epilogue/split.cuh"

// The loads of a thread's two rows of a part.
template <class Loads>
struct RowLoads {
  Loads of[2];
};

// Grid: as ResultPlaces wants it.
template <class Epilogue, class Grid>
struct Finisher {
  using Apply = Applier<Epilogue, Grid>;

  const Problem& problem;
  const Grid& grid;
  const typename Epilogue::Args& args;
  const Target* target;  // null where threads store from registers
  u8* boxes;             // of this warpgroup: kBoxesOfConsumer
  int warp;              // in the warpgroup
  BoxRing ring{};
  const TensorMap* second = nullptr;  // of the second result
  BoxBarriers* barriers = nullptr;    // where operands are staged
  Reducer<kPiece> reducer;
  bool rehearses = false;  // nothing is stored

  // The loads of a tile's rows that all columns share are asked for before the products, so that nobody waits
  // for them behind them. One part only: a loop over more would index registers.
  enum : bool { kLoadsAhead = Apply::columns_alike() && kParts == 1 };
  __device__ auto loads_ahead(const Tile& tile, int first_row) const {
    if constexpr (kLoadsAhead) {
      const Index upper = first_row + row_in_part(warp, lane(), 0),
                  lower = first_row + row_in_part(warp, lane(), 1);
      const auto of_row = [&](Index row) {
        return epilogue().loads_of_row(tile, places().row_key(tile, row));
      };
      return RowLoads<decltype(of_row(upper))>{{of_row(upper), of_row(lower)}};
    } else {
      return Nothing{};
    }
  }

  // A consumer's parts: 64 rows by the tile's columns each.
  template <class Sums>
  __device__ void finish(const Tile& tile, int first_row, const Sums& sums) {
    finish(tile, first_row, sums, loads_ahead(tile, first_row));
  }
  template <class Sums, class Ahead>
  __device__ void finish(const Tile& tile, int first_row, const Sums& sums, const Ahead& ahead) {
#pragma unroll(kUnrolled ? kParts : 1)
    for (int part = 0; part < kParts; ++part) {
      const int part_row = first_row + 64 * part;
      Rows mine;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = part_row + row_in_part(warp, lane(), half);
        mine.key[half] = places().row_key(tile, row);
        mine.inside[half] = places().is_inside(row, mine.key[half]) && !rehearses;
      }
      const auto loads = loads_of(tile, mine, ahead);
      const int warp_row = part_row + warp * 16;
      reducer.begin_part();
#pragma unroll(kUnrolled ? kPieces : 1)
      for (int first = 0; first < kColumns; first += kPiece) {
        PieceSums chosen;
        if constexpr (kUnrolled)
          take(chosen, sums[part], first / 2);
        else
          choose(chosen, sums, part * kPieces + first / kPiece);
        const int in_box = first % kBoxColumns, column = tile.column + first;
        u8* const box = boxes + ring.stage * kBoxBytes;
        if constexpr (kStaged > 0)
          if (in_box == 0) barriers->loaded[ring.stage].wait(ring.parity);
        reducer.begin_piece();
        piece(tile, mine, loads.of, column, chosen, box, column - in_box);
        reducer.end_piece(tile, warp_row, column, static_cast<int>(places().rows()),
                          static_cast<int>(places().columns()));
        if constexpr (kBoxed)
          if (in_box + kPiece == kBoxColumns) {
            if constexpr (kStaged > 0)
              barriers->hand_over(ring.stage);
            else
              send_box(*target, tile, part_row, column - in_box, box);
            ring.advance();
          }
      }
      reducer.end_part(tile, warp_row, static_cast<int>(places().rows()));
    }
  }

 private:
  template <class Ahead>
  __device__ auto loads_of(const Tile& tile, const Rows& rows, const Ahead& ahead) const {
    if constexpr (kLoadsAhead) {
      return ahead;
    } else {
      const auto of_row = [&](int half) { return epilogue().loads_of_row(tile, rows.key[half]); };
      return RowLoads<decltype(of_row(0))>{{of_row(0), of_row(1)}};
    }
  }
  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
  __device__ ResultPlaces<Grid> places() const { return {problem, grid}; }
  __device__ Apply epilogue() const { return {places(), args}; }

  __device__ bool leads() const { return kAlongColumns ? lane() == 0 : threadIdx.x % kWarpgroup == 0; }

  // Waits until TMA has read the next box, the oldest in flight, so that nobody waits before filling it. The
  // wait counts groups: with more than two boxes, one of which nothing exists is committed as well.
  __device__ void send_box(const TensorMap& map, const Tile& tile, int first_row, int column, u8* box) {
    fence_shared_writes();
    if (leads()) wait_for_stores<kBoxesOfConsumer - 2>();
    meet_at_box();
    // Along columns a warp has lines of its own.
    const int above = kAlongColumns ? warp * 16 : 0, row = first_row + above;
    if (leads() && !rehearses && (kBoxesOfConsumer > 2 || row < static_cast<int>(places().rows()))) {
      store_blocks<Out>(map, tile, row, column, box + above * Box<Out>::kLine);
      if constexpr (kHasSecond)
        store_blocks<SecondOut>(*second, tile, row, column, box + kSecondAt + above * Box<SecondOut>::kLine);
      commit_stores();
    }
  }
  template <class T>
  __device__ void store_blocks(const TensorMap& map, const Tile& tile, int row, int column, u8* box) const {
    for_blocks<T>(
        problem, grid, tile, row, column, box,
        [&](const u8* from, int c0, int c1, const OuterOf<Grid>& c2) { store_box(map, from, c0, c1, c2); });
  }
  // Lines or planes that TMA cannot store.
  template <class Scattered>
  __device__ void send_box(const Scattered& to, const Tile& tile, int first_row, int column,
                           const u8* box) const {
    Scatterer<Grid>{places(), warp}.store(to, tile, first_row, column, box);
  }

  // A piece of the tile, its first column at `column`; the box's first at `first_column`.
  template <class Loads>
  __device__ void piece(const Tile& tile, const Rows& rows, const Loads (&loads)[2], int column,
                        const PieceSums& sums, u8* box, int first_column) {
    PiecePairs<Out> pairs;
    PiecePairs<SecondOut> second_pairs;
    StagedPairs staged;
    const BoxAccess access{warp};
    const int in_box = column - first_column;
    if constexpr (kStaged > 0) access.template read<FirstStaged>(staged.first, box + kFirstStagedAt, in_box);
    if constexpr (kStaged > 1)
      access.template read<SecondStaged>(staged.second, box + kSecondStagedAt, in_box);
    if constexpr (Apply::columns_alike())
      row_by_row(tile, rows, loads, sums, staged, pairs, second_pairs);
    else
      pair_by_pair(tile, rows, column + lane() % 4 * 2, sums, staged, pairs, second_pairs);
    if constexpr (kBoxed) access.template fill<Out>(pairs, box, in_box);
    if constexpr (kHasSecond) access.template fill<SecondOut>(second_pairs, box + kSecondAt, in_box);
  }

  // A thread's pairs of a piece, where all columns are alike.
  template <class Loads>
  __device__ void row_by_row(const Tile& tile, const Rows& rows, const Loads (&loads)[2],
                             const PieceSums& sums, const StagedPairs& staged, PiecePairs<Out>& pairs,
                             PiecePairs<SecondOut>& second_pairs) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto out = epilogue().values_of_row(tile, rows.key[half], half, sums, loads[half], staged);
#pragma unroll
      for (int j = 0; j < kPiece / 8; ++j)
        if constexpr (kHasSecond) {
          pairs[j][half] = pair_of<Out>(out.value, j);
          second_pairs[j][half] = pair_of<SecondOut>(out.second, j);
        } else {
          pairs[j][half] = pair_of<Out>(out, j);
        }
    }
  }
  template <class T, class C, int N>
  FUSOR_DEVICE Vec<T, 2> pair_of(const Vec<C, N>& all, int number) {
    return narrow<T>(Vec<C, 2>{{all[2 * number], all[2 * number + 1]}});
  }

  // A thread's pairs of a piece, its first column at `mine`.
  __device__ void pair_by_pair(const Tile& tile, const Rows& rows, int mine, const PieceSums& sums,
                               const StagedPairs& staged, PiecePairs<Out>& pairs,
                               PiecePairs<SecondOut>& second_pairs) {
    const int left = static_cast<int>(places().columns()) - mine;
#pragma unroll
    for (int j = 0; j < kPiece / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Chosen chosen[2 / kVector];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int sibling = 0; sibling < kSiblings; ++sibling)
            chosen[i / kVector][sibling][i % kVector] = sums[sibling][4 * j + 2 * half + i];
        constexpr int kLast = 2 - kVector;  // what is first of the last vector
        const int at = mine + 8 * j;
        if constexpr (kBoxed) {
          const auto value = [&](int i) {
            const Adding adding{reducer.totals_of(j, half, i),
                                epilogue().added(tile, rows, half, at + i, left - 8 * j - i)};
            return epilogue().values(tile, rows, half, at + i, chosen[i],
                                     staged_from<kVector>(staged, half, 2 * j + i), adding);
          };
          const auto low = value(0), high = kLast == 0 ? low : value(kLast);
          if constexpr (kHasSecond) {
            pairs[j][half] = joined<Out>(low.value, high.value);
            second_pairs[j][half] = joined<SecondOut>(low.second, high.second);
          } else {
            pairs[j][half] = joined<Out>(low, high);
          }
        } else {
#pragma unroll
          for (int i = 0; i < 2; i += kVector)
            epilogue().store(tile, rows, half, at + i, chosen[i / kVector], reducer.totals_of(j, half, i));
        }
      }
  }
  // Both elements of a pair, rounded at once; `low` and `high` are the same where one vector is the pair.
  template <class T, class C>
  FUSOR_DEVICE Vec<T, 2> joined(const Vec<C, kVector>& low, const Vec<C, kVector>& high) {
    return narrow<T>(Vec<C, 2>{{low[0], high[kVector - 1]}});
  }
};

// Where the first result and the second go, where boxes are sent there.
template <class Params>
FUSOR_DEVICE const Target* target_of(const Params& p) {
  if constexpr (store_path() == StorePath::boxes)
    return &p.result;
  else if constexpr (kBoxed)
    return &p.target;
  else
    return nullptr;
}
template <class Params>
FUSOR_DEVICE const TensorMap* second_of(const Params& p) {
  if constexpr (kHasSecond)
    return &p.second;
  else
    return nullptr;
}

// The end of a tile, given its sums: finish(tile, row, sums), by the store path of the config.
// `boxes` and `barriers`: of the consumer, null where it has none.
template <class Epilogue, class Grid, class Params>
FUSOR_DEVICE auto make_finisher(const Params& p, const Grid& grid, u8* boxes, BoxBarriers* barriers,
                                int warp) {
  if constexpr (store_path() == StorePath::partials)
    return PartStore<Grid>{p.partials, p.problem, grid, warp};
  else
    return Finisher<Epilogue, Grid>{p.problem, grid,         p.y,      target_of(p), boxes, warp,
                                    {},        second_of(p), barriers, {},           false};
}
