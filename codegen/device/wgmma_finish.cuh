// Owns the way out of the tensor-core contraction of sm_90a: sums pass the epilogue in the registers that
// hold them, pair by pair, and leave by one of five ways: the copy engine takes the first result, and perhaps
// a second one, from shared memory while the next tile is multiplied; threads take it from there line by
// line, where the lines of a tile are no neighbours, or in units of neighbouring pixels, where channels lie
// apart; threads store all results themselves; or a part of a split goes to the scratch as it is.
#pragma once

#include "codegen/device/wgmma_pieces.cuh"
#include "codegen/device/wgmma_reduce.cuh"

// Both elements of a pair of columns exist or neither does, and none is stored by a thread: whatever lies
// outside may be computed from a neighbour's coordinates, for the copy engine drops it, and totals are told
// what exists.
static constexpr bool kClamped = FUSOR_CLAMPED;
static constexpr int kVector = FUSOR_VECTOR;  // 2 where a pair of columns moves as one

// The first result as lines of channels, one a pixel.
struct ResultLines {
  Out* first;
  i64 stride;
};
// Or as planes of channels, the positions of an image side by side; channels and images are as far apart.
struct ResultPlanes {
  Out* first;
  i64 channel, image;
};
#if FUSOR_WAY_OUT == 3
using Target = ResultLines;
#elif FUSOR_WAY_OUT == 4
using Target = ResultPlanes;
#else
using Target = TensorMap;
#endif

// kVector of a piece's sums, of every sibling.
using Chosen = Vec<Sum, kVector>[kSiblings];

// A thread's share of what the copy engine brought of a piece, and N elements of a row of it.
struct GivenPairs {
  PiecePairs<FirstGiven> first;
  PiecePairs<SecondGiven> second;
};
template <int N>
struct GivenValues {
  Vec<Carrier<FirstGiven>, N> first;
  Vec<Carrier<SecondGiven>, N> second;
};

struct Nothing {};

// Where the elements of a vector are added up, and how many of them.
struct Adding {
  Total* to;
  int count;
};

static_assert(!(kReduces && kClamped) || (kClasses == 0 && !kWindowPlanes),
              "rows and columns whose totals are told what exists have no gaps");

// The rows of one thread in a part: row_in_part().
struct Rows {
  Key key[2];
  bool inside[2];
};

// Grid: which pixels (or other rows) of the problem the tiles consist of, and in which order: rows(problem)
// in all, and row<clamped>(problem, tile, index), whose lead is negative for what does not exist; and where
// boxes lie in the result's map: outer(tile), and first_line(problem, tile) of lines along columns.
template <class Epilogue, class Grid>
struct Finisher {
  const Problem& problem;
  const Grid& grid;
  const typename Epilogue::Args& args;
  const Target& target;
  u8* boxes;  // of this warpgroup: kTurns
  int warp;   // in the warpgroup
  Turn turn{};
  const TensorMap* second = nullptr;  // of the second result
  BoxBarriers* barriers = nullptr;    // where operands are given
  Reducer<kPiece> reducer;

  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
  __device__ Index rows() const { return static_cast<Index>(kSwapped ? problem.n : grid.rows(problem)); }
  __device__ Index columns() const { return static_cast<Index>(kSwapped ? grid.rows(problem) : problem.n); }
  __device__ Key row_key(const Tile& tile, Index row) const {
    if constexpr (kClamped)
      if (row >= rows()) row = rows() - 1;
    return kSwapped ? problem.column(row) : grid.template row<kClamped>(problem, tile, row);
  }
  __device__ Key column_key(const Tile& tile, Index column) const {
    if constexpr (kClamped)
      if (column >= columns()) column = columns() - kVector;
    return kSwapped ? grid.template row<kClamped>(problem, tile, column) : problem.column(column);
  }

  // Of a row that may be clamped.
  __device__ bool is_inside(Index row, const Key& key) const {
    return kClamped ? row < rows() : key.lead >= 0;
  }

  // Of what begins at `column`, how many belong to a total; `left`: from there to the end. What has a total
  // to itself may be wrong where it does not exist: the total is dropped.
  __device__ int added(const Tile& tile, const Rows& rows_, int half, Index column, int left) const {
#ifdef FUSOR_REDUCED
    if constexpr (kClamped) {
      if (kReduced != kRowsLeft && !rows_.inside[half]) return 0;
      return kReduced == kColumnsLeft ? kVector : left;
    } else {
      return count(rows_, half, column_key(tile, column), column);
    }
#else
    return 0;
#endif
  }

  // Of the pair at `column`: how many exist.
  __device__ int count(const Rows& rows_, int half, const Key& key, int column) const {
    if constexpr (kClamped) return kVector;
    if (!rows_.inside[half] || key.lead < 0) return 0;
    if constexpr (kVector == 1) return 1;
    return column + 1 < static_cast<int>(columns()) ? 2 : 1;
  }

  // Coordinates in the result of a row and of what begins at `column`; how many of it exist.
  __device__ int place(const Tile& tile, const Rows& rows_, int half, int column,
                       Index (&at)[Epilogue::kRank]) const {
    const Key key = column_key(tile, column);
    problem.result(tile.entry, kSwapped ? key : rows_.key[half], kSwapped ? rows_.key[half] : key, at);
    return count(rows_, half, key, column);
  }

  template <int N, class... Inputs>
  __device__ auto apply_to(const Index (&at)[Epilogue::kRank], int existing, const Adding& adding,
                           const Inputs&... inputs) const {
#ifdef FUSOR_REDUCED
    constexpr bool kSpread = Reducer<kPiece>::kSpread;
    if constexpr (kBoxed)
      return Epilogue::template apply<N, kSpread>(args, at, existing, inputs..., adding.to, adding.count);
    else
      return Epilogue::template apply<N, kSpread>(args, at, existing, inputs..., adding.to);
#else
    return Epilogue::template apply<N>(args, at, existing, inputs...);
#endif
  }
  template <int N, class... Inputs>
  __device__ auto apply_with(const Index (&at)[Epilogue::kRank], int existing, const Adding& adding,
                             const GivenValues<N>& given, const Inputs&... inputs) const {
    if constexpr (kGiven == 2)
      return apply_to<N>(at, existing, adding, inputs..., given.first, given.second);
    else if constexpr (kGiven == 1)
      return apply_to<N>(at, existing, adding, inputs..., given.first);
    else
      return apply_to<N>(at, existing, adding, inputs...);
  }
  // `loads`: of an epilogue that yields values.
  template <int N, class... Loads>
  __device__ auto apply(const Index (&at)[Epilogue::kRank], int existing,
                        const Vec<Sum, N> (&sums)[kSiblings], const GivenValues<N>& given,
                        const Adding& adding, const Loads&... loads) const {
    if constexpr (kSiblings == 2)
      return apply_with<N>(at, existing, adding, given, loads..., sums[0], sums[1]);
    else
      return apply_with<N>(at, existing, adding, given, loads..., sums[0]);
  }

  // Of a thread's row `half` in a piece, N elements from number `first` on.
  template <int N, class T>
  FUSOR_DEVICE Vec<Carrier<T>, N> widened(const PiecePairs<T>& pairs, int half, int first) {
    Vec<Carrier<T>, N> values;
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = widen(pairs[(first + i) / 2][half])[(first + i) % 2];
    return values;
  }
  template <int N>
  FUSOR_DEVICE GivenValues<N> given_from(const GivenPairs& pairs, int half, int first) {
    GivenValues<N> values{};
    if constexpr (kGiven > 0) values.first = widened<N, FirstGiven>(pairs.first, half, first);
    if constexpr (kGiven > 1) values.second = widened<N, SecondGiven>(pairs.second, half, first);
    return values;
  }

  // Whether the epilogue is the same for all columns of a row. Then one call has all of a thread's in a
  // piece, nobody asks where a column is, and what the row loads is loaded once for all pieces.
  static constexpr __device__ bool columns_alike() {
    if constexpr (kClamped && !kReduces)
      return (Epilogue::kWalked & (kSwapped ? Problem::kRowAxes : Problem::kColumnAxes)) == 0 &&
             (Epilogue::kWalked >> Epilogue::kVectorAxis & 1) == 0;
    return false;
  }
  __device__ void place_row(const Tile& tile, const Key& row, Index (&at)[Epilogue::kRank]) const {
    const Key any{};
    problem.result(tile.entry, kSwapped ? any : row, kSwapped ? row : any, at);
  }
  __device__ auto loads_of_row(const Tile& tile, const Key& row) const {
    if constexpr (columns_alike()) {
      Index at[Epilogue::kRank];
      place_row(tile, row, at);
      return Epilogue::loads(args, at, 1);
    } else {
      return Nothing{};
    }
  }
  template <class Loads>
  __device__ auto values_of_row(const Tile& tile, const Key& row, int half, const PieceSums& sums,
                                const Loads& loads, const GivenPairs& given) const {
    constexpr int kMine = kPiece / 4;
    Vec<Sum, kMine> mine[kSiblings];
#pragma unroll
    for (int sibling = 0; sibling < kSiblings; ++sibling)
#pragma unroll
      for (int i = 0; i < kMine; ++i) mine[sibling][i] = sums[sibling][i / 2 * 4 + 2 * half + i % 2];
    Index at[Epilogue::kRank];
    place_row(tile, row, at);
    return apply(at, kMine, mine, given_from<kMine>(given, half, 0), {}, loads);
  }

  // What the epilogue yields of kVector sums.
  __device__ auto values(const Tile& tile, const Rows& rows_, int half, int column, const Chosen& sums,
                         const GivenValues<kVector>& given, const Adding& adding) const {
    Index at[Epilogue::kRank];
    const int existing = place(tile, rows_, half, column, at);
    return apply(at, existing, sums, given, adding, Epilogue::loads(args, at, existing));
  }
  // Of a pair, rounded at once; both are the same where one vector is the pair.
  template <class T, class C>
  FUSOR_DEVICE Vec<T, 2> joined(const Vec<C, kVector>& low, const Vec<C, kVector>& high) {
    return narrow<T>(Vec<C, 2>{{low[0], high[kVector - 1]}});
  }
  template <class T, class C, int N>
  FUSOR_DEVICE Vec<T, 2> pair_of(const Vec<C, N>& all, int number) {
    return narrow<T>(Vec<C, 2>{{all[2 * number], all[2 * number + 1]}});
  }

  // All results are stored by this thread.
  __device__ void store(const Tile& tile, const Rows& rows_, int half, int column, const Chosen& sums,
                        Total* totals) const {
    Index at[Epilogue::kRank];
    const int existing = place(tile, rows_, half, column, at);
    if (existing > 0) apply(at, existing, sums, GivenValues<kVector>{}, {totals, existing});
  }

  // A thread's pairs of a piece, its first column at `mine`.
  __device__ void pair_by_pair(const Tile& tile, const Rows& rows_, int mine, const PieceSums& sums,
                               const GivenPairs& given, PiecePairs<Out>& pairs,
                               PiecePairs<SecondOut>& second_pairs) {
    const int left = static_cast<int>(columns()) - mine;
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
                                added(tile, rows_, half, at + i, left - 8 * j - i)};
            return values(tile, rows_, half, at + i, chosen[i], given_from<kVector>(given, half, 2 * j + i),
                          adding);
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
            store(tile, rows_, half, at + i, chosen[i / kVector], reducer.totals_of(j, half, i));
        }
      }
  }

  // A piece of the tile, its first column at `column`; the box's first at `first_column`.
  template <class Loads>
  __device__ void piece(const Tile& tile, const Rows& rows_, const Loads (&loads)[2], int column,
                        const PieceSums& sums, u8* box, int first_column) {
    PiecePairs<Out> pairs;
    PiecePairs<SecondOut> second_pairs;
    GivenPairs given;
    const BoxAccess access{warp};
    const int in_box = column - first_column;
    if constexpr (kGiven > 0) access.template read<FirstGiven>(given.first, box + kFirstGivenAt, in_box);
    if constexpr (kGiven > 1) access.template read<SecondGiven>(given.second, box + kSecondGivenAt, in_box);
    if constexpr (columns_alike()) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto out = values_of_row(tile, rows_.key[half], half, sums, loads[half], given);
#pragma unroll
        for (int j = 0; j < kPiece / 8; ++j)
          if constexpr (kHasSecond) {
            pairs[j][half] = pair_of<Out>(out.value, j);
            second_pairs[j][half] = pair_of<SecondOut>(out.second, j);
          } else {
            pairs[j][half] = pair_of<Out>(out, j);
          }
      }
    } else {
      pair_by_pair(tile, rows_, column + lane() % 4 * 2, sums, given, pairs, second_pairs);
    }
    if constexpr (kBoxed) access.template fill<Out>(pairs, box, in_box);
    if constexpr (kHasSecond) access.template fill<SecondOut>(second_pairs, box + kSecondAt, in_box);
  }

  // Who fills what one of them sends: a warp (along columns) or the warpgroup.
  __device__ void meet() const {
    if constexpr (kAlongColumns && !kFromRegisters)
      __syncwarp();
    else
      wait_for_threads(1 + (threadIdx.x / kWarpgroup), kWarpgroup);
  }
  __device__ bool leads() const { return kAlongColumns ? lane() == 0 : threadIdx.x % kWarpgroup == 0; }

  // The copy engine has read the box that is next by now, the oldest of those sent: nobody waits before
  // filling it. Where others may be under way, they are counted: one of which nothing exists is sent, too.
  __device__ void send_box(const TensorMap& map, const Tile& tile, int first_row, int column, u8* box) {
    fence_shared_writes();
    if (leads()) wait_for_stores<kTurns - 2>();
    meet();
    // Along columns a warp has lines of its own.
    const int above = kAlongColumns ? warp * 16 : 0, row = first_row + above;
    if (leads() && (kTurns > 2 || row < static_cast<int>(rows()))) {
      store_blocks<Out>(map, tile, row, column, box + above * Box<Out>::kLine);
      if constexpr (kHasSecond)
        store_blocks<SecondOut>(*second, tile, row, column, box + kSecondAt + above * Box<SecondOut>::kLine);
      commit_stores();
    }
  }
  template <class T>
  __device__ void store_blocks(const TensorMap& map, const Tile& tile, int row, int column, u8* box) const {
    for_blocks<T>(problem, grid, tile, row, column, box,
                  [&](const u8* from, int c0, int c1, int c2) { store_box(map, from, c0, c1, c2); });
  }
  // Eight threads a line. When the next box is sent, all have read this one.
  __device__ void send_box(const ResultLines& lines, const Tile& tile, int first_row, int column,
                           const u8* box) {
#if FUSOR_WAY_OUT == 3
    static_assert(Box<Out>::kLine == 128);
    constexpr int kUnit = 16 / int(sizeof(Out)), kLines = kAlongColumns ? 16 : kBoxColumns;
    constexpr int kTogether = (kAlongColumns ? 32 : kWarpgroup) / 8;
    meet();
    const int mine = (kAlongColumns ? lane() : threadIdx.x % kWarpgroup) / 8, unit = threadIdx.x % 8;
#pragma unroll 1
    for (int i = 0; i < kLines; i += kTogether) {
      const int line = (kAlongColumns ? warp * 16 : 0) + i + mine;
      const Key pixel = grid.template row<false>(problem, tile, (kAlongColumns ? first_row : column) + line);
      if (pixel.lead < 0) continue;
      i64 at = pixel.lead;
#pragma unroll
      for (int axis = 0; axis < kSpatial; ++axis) {
        const auto& extent = kOp == kFprop ? problem.axis[axis].output : problem.axis[axis].input;
        at = at * extent.divisor + pixel.at[axis];
      }
      Out* const to = lines.first + at * lines.stride + tile.entry * problem.n;
#pragma unroll
      for (int block = 0; block < kBoxColumns; block += Box<Out>::kBlockColumns) {
        const int channel = (kAlongColumns ? column + block : first_row) + unit * kUnit;
        if (channel < static_cast<int>(problem.n))
          *reinterpret_cast<Vec<Out, kUnit>*>(to + channel) = *reinterpret_cast<const Vec<Out, kUnit>*>(
              box + block / Box<Out>::kBlockColumns * Box<Out>::kBlockBytes +
              Box<Out>::place(line, unit * 16));
      }
    }
#endif
  }

  // Units of pixels that never straddle two images. A thread has the same ones of every line: it finds their
  // place once.
  __device__ void send_box(const ResultPlanes& planes, const Tile& tile, int first_row, int column,
                           const u8* box) {
#if FUSOR_WAY_OUT == 4
    static_assert(Box<Out>::kLine == 128);
    using Unit = Vec<Out, FUSOR_UNIT>;
    constexpr int kUnits = 128 / int(sizeof(Unit)), kThreads = kAlongColumns ? 32 : kWarpgroup;
    constexpr int kOfLine = kUnits < kThreads ? kUnits : kThreads, kTogether = kThreads / kOfLine;
    constexpr int kLines = kAlongColumns ? 16 : kBoxColumns;
    constexpr int kBatch = kLines / kTogether < 4 ? kLines / kTogether : 4;
    meet();
    const int thread = threadIdx.x % kThreads, line = (kAlongColumns ? warp * 16 : 0) + thread / kOfLine;
    const int pixels = kAlongColumns ? column : first_row;
    const int channel = (kAlongColumns ? first_row : column) + line;
#pragma unroll 1
    for (int unit = thread % kOfLine; unit < kUnits; unit += kOfLine) {
      const Key pixel = grid.template row<false>(problem, tile, pixels + unit * FUSOR_UNIT);
      if (pixel.lead < 0) continue;
      i64 position = 0;
#pragma unroll
      for (int axis = 0; axis < kSpatial; ++axis) {
        const auto& extent = kOp == kFprop ? problem.axis[axis].output : problem.axis[axis].input;
        position = position * extent.divisor + pixel.at[axis];
      }
      Out* to = planes.first + pixel.lead * planes.image + position +
                (tile.entry * problem.n + channel) * planes.channel;
#pragma unroll 1
      for (int first = 0; first < kLines; first += kBatch * kTogether) {
        Unit units[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          units[i] = *reinterpret_cast<const Unit*>(
              box + Box<Out>::place(line + first + i * kTogether, unit * int(sizeof(Unit))));
#pragma unroll
        for (int i = 0; i < kBatch; ++i, to += kTogether * planes.channel)
          if (channel + first + i * kTogether < static_cast<int>(problem.n))
            store_whole<FUSOR_UNIT>(to, units[i], FUSOR_UNIT);
      }
    }
#endif
  }

  // A consumer's parts: 64 rows by the tile's columns each.
  template <class Sums>
  __device__ void finish(const Tile& tile, int first_row, const Sums& sums) {
#pragma unroll(kUnrolled ? kParts : 1)
    for (int part = 0; part < kParts; ++part) {
      const int part_row = first_row + 64 * part;
      Rows mine;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = part_row + row_in_part(warp, lane(), half);
        mine.key[half] = row_key(tile, row);
        mine.inside[half] = is_inside(row, mine.key[half]);
      }
      const decltype(loads_of_row(tile, mine.key[0])) loads[2] = {loads_of_row(tile, mine.key[0]),
                                                                  loads_of_row(tile, mine.key[1])};
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
        u8* const box = boxes + turn.box * kBoxBytes;
        if constexpr (kGiven > 0)
          if (in_box == 0) barriers->given[turn.box].wait(turn.parity);
        reducer.begin_piece();
        piece(tile, mine, loads, column, chosen, box, column - in_box);
        reducer.end_piece(tile, warp_row, column, static_cast<int>(rows()), static_cast<int>(columns()));
        if constexpr (kBoxed)
          if (in_box + kPiece == kBoxColumns) {
            if constexpr (kGiven > 0)
              barriers->hand_over(turn.box);
            else
              send_box(target, tile, part_row, column - in_box, box);
            turn.advance();
          }
      }
      reducer.end_part(tile, warp_row, static_cast<int>(rows()));
    }
  }
};

// [part][tile][row][column], for the kernel that adds the parts up: direct_finish.cuh, which counts tiles
// along n first.
FUSOR_DEVICE void store_parts(Sum* partials, const Schedule& schedule, const Tile& tile, int row, int warp,
                              const AllSums& sums) {
  const int tiles_m = static_cast<int>(schedule.order.rows) * kCluster,
            tiles_n = static_cast<int>(schedule.order.columns);
  const int tile_m = row / kTileM, tile_n = tile.column / kTileN;
  const i64 number = kSwapped ? (i64(tile.entry) * tiles_n + tile_n) * tiles_m + tile_m
                              : (i64(tile.entry) * tiles_m + tile_m) * tiles_n + tile_n;
  const i64 tiles = schedule.order.entries * tiles_m * tiles_n;
  const int lane = threadIdx.x % 32;
  Sum* const to =
      partials + (tile.part * tiles + number) * (kTileM * kTileN) + row % kTileM * kTileN + lane % 4 * 2;
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Sum(&mine)[kSums] = sums[part];
        const Vec<Sum, 2> pair{{mine[4 * j + 2 * half], mine[4 * j + 2 * half + 1]}};
        *reinterpret_cast<Vec<Sum, 2>*>(to + (64 * part + row_in_part(warp, lane, half)) * kTileN + 8 * j) =
            pair;
      }
}
