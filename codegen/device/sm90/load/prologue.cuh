// Owns the loader of the tensor-core contraction of sm_90a for matmuls with a prologue: dequantised weights,
// scaled activations.
//
//   memory --TMA--> raw stages (RawStages), kAhead steps, elements as stored     thread 0 issues the copies
//          --full--> apply<8>, in one or two warpgroups --> stage of the ring, in TMA's own layout
//          <-empty--
//   memory --TMA--> stage of the ring                                          an operand without a prologue
#pragma once

#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/load/unit_places.cuh"

// One operand with the prologue Site: a tile of kLines lines, in units of 16 bytes (UnitPlaces), which exist
// whole or not at all. kSecond: the second operand of the op, wherever the tensor cores have it.
template <class Site, class Stored, bool kSecond, bool kAcross, int kLines>
struct PrologueOperand {
  using Places = UnitPlaces<kAcross, kTileK, kLoading>;
  enum : int { kPasses = kLines / Places::kLinesOfPass };
  static_assert(kLines % (Places::kLinesOfPass * Places::kPassesOfBlock) == 0);
  enum : int { kWidth = 16 / kElementBytes };
  // Raw stages have as many elements a line as the tile, in the stored type.
  enum : int { kStoredLine = kLine * sizeof(Stored), kStepBytes = kLines * kStoredLine };

  const Problem& problem;
  const typename Site::Args& args;
  int lines, elements;  // that exist: of an entry, and in a line

  __device__ PrologueOperand(const Problem& problem_, const typename Site::Args& args_)
      : problem(problem_),
        args(args_),
        lines(static_cast<int>(kAcross   ? problem_.k
                               : kSecond ? problem_.n
                                         : problem_.m)),
        elements(static_cast<int>(kAcross ? (kSecond ? problem_.n : problem_.m) : problem_.k)) {}

  // Called by one thread: loads a step into its raw stage.
  template <class Entry>
  FUSOR_DEVICE void fetch(u8* raw, const TensorMap& map, Barrier& full, const Entry& entry, int across,
                          int step) {
    if constexpr (kAcross)
#pragma unroll
      for (int i = 0; i < kLines; i += kLine)
        copy_box(raw + i * kStoredLine, map, full, across + i, step * kTileK, entry);
    else
      copy_box(raw, map, full, step * kTileK, across, entry);
  }

  // Called before the first step of a tile.
  __device__ void enter(int entry, int across) {
    if constexpr (kHolds) {
      const Place first = place(across, 0);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) held[pass] = loads_at(entry, place(first, pass));
    }
  }

  // Applies the prologue to a raw stage, and fills the tile.
  __device__ void put(u8* tile, const u8* raw, int entry, int across, int step) const {
    const Place first = place(across, step);
#pragma unroll(kHolds ? kPasses : 1)
    for (int pass = 0; pass < kPasses; pass += kBatch) {
      Unit units[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) units[i] = taken(raw, pass + i, entry, place(first, pass + i));
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        *reinterpret_cast<UnitWords*>(tile + Places::place(threadIdx.x, pass + i)) = computed(units[i]);
    }
  }

 private:
  // Loads that all elements of a unit share are the same in all steps of lines along k. They are made once a
  // tile, where registers hold them.
  enum : bool { kHolds = !kAcross && kPasses <= 8 && sizeof(typename Site::Loads) <= 8 };
  typename Site::Loads held[kHolds ? kPasses : 1];

  using UnitWords = Vec<u32, 4>;
  // Read one after the other before any is written: the compiler cannot know that these are other places.
  enum : int { kBatch = kPasses % 4 == 0 ? 4 : kPasses % 2 == 0 ? 2 : 1 };
  struct Unit {
    Vec<Stored, kWidth> stored;
    typename Site::Loads loads;
    Index at[Problem::kAxes];
    bool inside;
  };

  // A line, and an element in it, of this thread's first unit in a step, or of the one in a pass.
  struct Place {
    int line, element;
  };
  FUSOR_DEVICE Place place(int across, int step) {
    const int k = step * kTileK;
    return {(kAcross ? k : across) + Places::line(threadIdx.x),
            (kAcross ? across : k) + Places::byte(threadIdx.x) / kElementBytes};
  }
  FUSOR_DEVICE Place place(const Place& first, int pass) {
    return {first.line + Places::lines_on(pass), first.element + Places::bytes_on(pass) / kElementBytes};
  }

  // Boxes are swizzled over their lines, where those are no longer than 128 bytes.
  FUSOR_DEVICE const u8* raw_at(const u8* raw, int pass, int byte) {
    constexpr int kSwizzled = kStoredLine <= 128 ? kStoredLine / 16 - 1 : 0;
    const int thread = static_cast<int>(threadIdx.x);
    const int first = thread / Places::kUnits * kStoredLine +
                      thread % Places::kUnits * static_cast<int>(sizeof(Stored)) * kWidth + byte;
    return raw + pass * Places::kLinesOfPass * kStoredLine + (first ^ (first >> 7 & kSwizzled) << 4);
  }

  __device__ Unit taken(const u8* raw, int pass, int entry, const Place& place) const {
    constexpr int kBytes = sizeof(Stored) * kWidth, kPiece = kBytes < 16 ? kBytes : 16;
    using Piece = Vec<u32, kPiece / 4>;
    Unit unit;
#pragma unroll
    for (int i = 0; i < kBytes / kPiece; ++i)
      reinterpret_cast<Piece*>(&unit.stored)[i] =
          *reinterpret_cast<const Piece*>(raw_at(raw, pass, i * kPiece));
    unit.inside = place.line < lines && place.element < elements;
    find(entry, unit.inside ? place : Place{0, 0}, unit.at);
    if constexpr (kHolds)
      unit.loads = held[pass];
    else
      unit.loads = Site::loads(args, unit.at, kWidth);
    return unit;
  }
  __device__ void find(int entry, const Place& place, Index (&at)[Problem::kAxes]) const {
    const Key line{place.line, {}}, element{place.element, {}};
    const Key &across = kAcross ? element : line, &k = kAcross ? line : element;
    if constexpr (kSecond)
      problem.second_operand(entry, across, k, at);
    else
      problem.first_operand(entry, across, k, at);
  }
  __device__ typename Site::Loads loads_at(int entry, const Place& place) const {
    Index at[Problem::kAxes];
    find(entry, {place.line < lines ? place.line : 0, 0}, at);
    return Site::loads(args, at, kWidth);
  }

  // Elements that do not exist become zero after the prologue, which might shift a zero.
  __device__ UnitWords computed(const Unit& unit) const {
    const Vec<ElementA, kWidth> values =
        narrow<ElementA>(Site::template apply<kWidth>(args, unit.at, kWidth, unit.loads, widen(unit.stored)));
    return unit.inside ? bit_cast<UnitWords>(values) : UnitWords{};
  }
};

// The steps of a block's tiles, one after the other.
struct StepWalk {
  const Schedule& schedule;
  int item = first_item(), step = 0;
  Tile tile{};

  __device__ explicit StepWalk(const Schedule& schedule_) : schedule(schedule_) { enter(); }
  __device__ bool more() const { return item < schedule.items(); }
  __device__ void advance() {
    if (++step < tile.end) return;
    item += item_step();
    enter();
  }

 private:
  __device__ void enter() {
    if (!more()) return;
    tile = schedule.tile(item);
    step = tile.begin;
  }
};

struct A;  // the prologue of a, where there is one
struct B;
template <class Site>
using PrologueA = PrologueOperand<Site, Config::StoredA, kSwapped, kRowsAdjacentA, kTileM>;
template <class Site>
using PrologueB = PrologueOperand<Site, Config::StoredB, !kSwapped, kColumnsAdjacentB, kColumns>;
enum : int {
  kRawBytesA = kPrologueA ? kTileM * kLine * int(sizeof(Config::StoredA)) : 0,
  kRawBytesB = kPrologueB ? kColumns * kLine * int(sizeof(Config::StoredB)) : 0,
};

// Raw stages: steps of k in flight, as they are stored.
enum : int { kAhead = Config::ahead };
struct RawStages {
  alignas(1024) u8 step[kAhead][kRawBytesA + kRawBytesB];
  Barrier full[kAhead], empty[kAhead];

  __device__ void init() {
    for (int slot = 0; slot < kAhead; ++slot) {
      full[slot].init(1);
      empty[slot].init(kLoading / 32);
    }
  }
};
using RawRing = RingOf<kAhead>;

// Called by one thread: loads the next step into its raw stage, once the threads have read what was there.
template <class SiteA, class SiteB, class Params>
FUSOR_DEVICE void fetch_step(const Params& p, RawStages& raw, RawRing& ring, StepWalk& coming) {
  if (!coming.more()) return;
  const Tile& tile = coming.tile;
  Barrier& full = raw.full[ring.stage];
  raw.empty[ring.stage].wait(ring.parity ^ 1);
  full.arrive_and_expect(kRawBytesA + kRawBytesB);
  if constexpr (kPrologueA)
    PrologueA<SiteA>::fetch(raw.step[ring.stage], p.a, full, entry_in<false>(p.operands, tile), tile.row,
                            coming.step);
  if constexpr (kPrologueB)
    PrologueB<SiteB>::fetch(raw.step[ring.stage] + kRawBytesA, p.b[0], full, entry_in<true>(p.operands, tile),
                            tile.column, coming.step);
  ring.advance();
  coming.advance();
}

// The prologue of one operand, or nothing where it has none.
struct NoPrologue {
  __device__ void enter(int, int) {}
  __device__ void put(u8*, const u8*, int, int, int) const {}
};
template <class SiteA, class Params>
FUSOR_DEVICE auto prologue_of_a(const Params& p) {
  if constexpr (kPrologueA)
    return PrologueA<SiteA>{p.problem, p.prologue_a};
  else
    return NoPrologue{};
}
template <class SiteB, class Params>
FUSOR_DEVICE auto prologue_of_b(const Params& p) {
  if constexpr (kPrologueB)
    return PrologueB<SiteB>{p.problem, p.prologue_b};
  else
    return NoPrologue{};
}

// Called by all loading threads, like load_by_threads().
template <class SiteA = A, class SiteB = B, class Params>
FUSOR_DEVICE void load_through_prologues(const Params& p, Stages& stages, RawStages& raw) {
  constexpr u32 kCopiedBytes = (kPrologueA ? 0 : kTileBytesA) + (kPrologueB ? 0 : kTileBytesB);
  auto a = prologue_of_a<SiteA>(p);
  auto b = prologue_of_b<SiteB>(p);
  StepWalk coming(p.schedule), leaving(p.schedule);
  RawRing filled, taken;
  Ring ring;
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int i = 0; i < kAhead - 1; ++i) fetch_step<SiteA, SiteB>(p, raw, filled, coming);
#pragma unroll 1
  for (; leaving.more(); leaving.advance(), ring.advance(), taken.advance()) {
    const Tile& tile = leaving.tile;
    const int step = leaving.step;
    if (step == tile.begin) {
      a.enter(tile.entry, tile.row);
      b.enter(tile.entry, tile.column);
    }
    Barrier& full = stages.full[ring.stage];
    if (threadIdx.x == 0) fetch_step<SiteA, SiteB>(p, raw, filled, coming);
    stages.empty[ring.stage].wait(ring.parity ^ 1);
    if (kCopiedBytes > 0 && threadIdx.x == 0) {
      full.expect(kCopiedBytes);
      if constexpr (!kPrologueA)
        load_lines<kRowsAdjacentA, kTileM, Alone>(stages.a[ring.stage], p.a, full, tile.row, step * kTileK,
                                                  entry_in<false>(p.operands, tile));
      if constexpr (!kPrologueB)
        load_lines<kColumnsAdjacentB, kColumns, Alone>(stages.b[ring.stage], p.b[0], full, tile.column,
                                                       step * kTileK, entry_in<true>(p.operands, tile));
    }
    __syncwarp();
    raw.full[taken.stage].wait(taken.parity);
    a.put(stages.a[ring.stage], raw.step[taken.stage], tile.entry, tile.row, step);
    b.put(stages.b[ring.stage], raw.step[taken.stage] + kRawBytesA, tile.entry, tile.column, step);
    fence_shared_writes();
    full.arrive();
    __syncwarp();
    if (threadIdx.x % 32 == 0) raw.empty[taken.stage].arrive();
  }
}
