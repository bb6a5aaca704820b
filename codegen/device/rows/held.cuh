// Owns where a row lies between its phases: in registers, in shared memory, or in memory, read again by each.
//
//   vectors of a row     unit 0                  unit 1                         kGroup * kCluster threads
//                        t0 t1 t2 ... t(n-1)     t0 t1 t2 ... t(n-1)   ...      each has a vector of a unit
//   registers  held[kUnits], loops unrolled
//   shared     held[unit][piece][thread], loops rolled; a thread reads what it wrote itself, or had copied
#pragma once

#include "codegen/device/rows/exchange.cuh"

enum : int {
  kVector = Config::vector,
  kUnits = Config::units,    // vectors of a thread, where registers hold them
  kUnroll = Config::unroll,  // vectors that a thread has in flight, elsewhere
};
enum : bool {
  kWhole = Config::whole,         // every thread has as many vectors of a row
  kRowTails = Config::row_tails,  // the last vector of a row may be partial
  kRepacks = Config::repacks,     // values are computed anew in each phase, not held
  kSplit = Config::split,         // p.parts blocks share a row, by launches
};
enum : int { kLast = Y::kRank - 1 };

// rows: vectors of them where kSpread; row_step: between the rows of a block; vectors: of a row, elements
// where kSpread; units: vectors of a row that a thread works on, at most; row_extent: elements along the last
// axis; partials: of the totals of columns, [part][element of a vector][vector]; extents: that of the vector
// axis in vectors.

// Where a vector of the row lies. Of one that does not exist: where the last one does.
struct Spot {
  bool exists;
  int count;
};
template <class Params>
FUSOR_DEVICE Index unit_step(const Params& p) {
  if constexpr (kSplit)
    return kGroup * p.parts;
  else
    return kGroup * kCluster;
}
FUSOR_DEVICE Spot locate(const Params& p, Index unit, Index first, Index (&at)[Y::kRank]) {
  const Index vector = unit * unit_step(p) + first;
  const bool exists = kWhole || vector < p.vectors;
  coordinates<Y::kKept, Y::kRank>(exists ? vector : p.vectors - 1, p.extents, at);
  int count = kVector;
  if constexpr (!kSpread) {
    at[kLast] *= kVector;
    if constexpr (kRowTails) {
      const Index rest = p.row_extent - at[kLast];
      count = rest < kVector ? static_cast<int>(rest) : kVector;
    }
  }
  return {exists, count};
}

using Held = Y::Held<kVector>;

// Loaded elements on their way from one row to the next: whole words, so that a register holds two of 16
// bits.
template <class T>
struct Packed {
  enum : bool { kInWords = sizeof(T) % 4 == 0 };
  enum : int { kWords = kInWords ? sizeof(T) / 4 : 1 };
  struct Whole {
    T value;
  };
  struct Words {
    u32 word[kWords];
  };
  using Stored = If<kInWords, Words, Whole>;
  Stored stored;

  FUSOR_METHOD void put(const T& value) { memcpy(&stored, &value, sizeof value); }
  FUSOR_METHOD T get() const {
    T value;
    memcpy(&value, &stored, sizeof value);
    return value;
  }
  // Values computed of it before are computed anew.
  FUSOR_METHOD void forget() {
    if constexpr (kInWords) {
#pragma unroll
      for (u32& word : stored.word) asm volatile("" : "+r"(word));
    }
  }
};

// each<kFirst>() visits the vectors of a row that a thread works on, with what is loaded of them: kFirst,
// before any other pass.
struct InRegisters {
  Packed<Held> held[kUnits];
  FUSOR_METHOD void bind(char*) {}

  FUSOR_METHOD void fill(const Params& p, Index first, Index (&at)[Y::kRank]) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      held[unit].put(Y::load<kVector>(p.y, at, spot.count));
    }
  }
  // The next phase does not keep values that were computed from the row.
  FUSOR_METHOD void forget() {
    if constexpr (kRepacks) {
#pragma unroll
      for (auto& of_unit : held) of_unit.forget();
    }
  }
  template <bool kFirst, class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool, Visit visit) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      if (spot.exists) visit(unit, spot.count, held[unit].get());
    }
  }
};

// Visits vectors as they come from memory, kUnroll of them in flight.
template <class Visit>
FUSOR_DEVICE void each_loaded(const Params& p, Index first, Index (&at)[Y::kRank], bool backwards,
                              Visit visit) {
#pragma unroll 1
  for (Index step = 0; step < p.units; step += kUnroll) {
    Packed<Held> loaded[kUnroll];
    const auto unit_of = [&](int i) {
      const Index unit = step + i < p.units ? step + i : p.units - 1;
      return backwards ? p.units - 1 - unit : unit;
    };
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const Spot spot = locate(p, unit_of(i), first, at);
      loaded[i].put(Y::load<kVector>(p.y, at, spot.count));
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const Index unit = unit_of(i);
      const Spot spot = locate(p, unit, first, at);
      if (step + i < p.units) visit(unit, spot, loaded[i].get());
    }
  }
}

struct InShared {
  enum : int {
    kPiece = sizeof(Held) % 16 == 0  ? 16
             : sizeof(Held) % 8 == 0 ? 8
             : sizeof(Held) % 4 == 0 ? 4
                                     : 1,
    kPieces = sizeof(Held) / kPiece,
  };
  using Piece = If<kPiece >= 4, Vec<u32, kPiece / 4 + (kPiece < 4)>, u8>;
  Piece* pieces;
  FUSOR_METHOD void bind(char* memory) { pieces = reinterpret_cast<Piece*>(memory); }
  FUSOR_METHOD void fill(const Params&, Index, Index (&)[Y::kRank]) {}
  FUSOR_METHOD void forget() {}

  FUSOR_METHOD Piece* place(Index unit) const { return pieces + (unit * kPieces) * kThreads + threadIdx.x; }
  FUSOR_METHOD void put(Index unit, const Held& held) {
    Piece parts[kPieces];
    memcpy(parts, &held, sizeof held);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) place(unit)[i * kThreads] = parts[i];
  }
  FUSOR_METHOD Held get(Index unit) const {
    Piece parts[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) parts[i] = place(unit)[i * kThreads];
    Held held;
    memcpy(&held, parts, sizeof held);
    return held;
  }
  template <bool kFirst, class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool, Visit visit) {
    if constexpr (kFirst) {
      each_loaded(p, first, at, false, [&](Index unit, const Spot& spot, const Held& held) {
        put(unit, held);
        if (spot.exists) visit(0, spot.count, held);
      });
    } else {
#pragma unroll 2
      for (Index unit = 0; unit < p.units; ++unit) {
        const Spot spot = locate(p, unit, first, at);
        const Held held = get(unit);
        if (spot.exists) visit(0, spot.count, held);
      }
    }
  }
};

// All of the row is on its way at once, in kGroups groups of copies; the first pass waits for one after the
// other.
template <class Site>
struct Copied {
  enum : int { kGroups = 8, kApart = kThreads * 16 };
  char* pieces;  // [unit][piece][thread]
  FUSOR_METHOD void bind(char* memory) { pieces = memory + threadIdx.x * 16; }
  FUSOR_METHOD void forget() {}

  FUSOR_METHOD char* place(Index unit) const {
    return pieces + unit * (kVector * Site::kCopiedBytes / 16 * kApart);
  }
  static FUSOR_METHOD Index units_of_group(const Params& p) { return (p.units + kGroups - 1) / kGroups; }
  static FUSOR_METHOD void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

  FUSOR_METHOD void fill(const Params& p, Index first, Index (&at)[Y::kRank]) {
    const Index of_group = units_of_group(p);
    Index unit = 0;
#pragma unroll 1
    for (int group = 1; group <= kGroups; ++group) {
      const Index end = group * of_group < p.units ? group * of_group : p.units;
#pragma unroll 2
      for (; unit < end; ++unit) {
        locate(p, unit, first, at);
        Site::template copy<kVector>(p.y, at, place(unit), kApart);
      }
      close_group();
    }
  }
  // Vectors unit ... end - 1, which are there.
  template <class Visit>
  FUSOR_METHOD void visit_units(const Params& p, Index first, Index (&at)[Y::kRank], Index unit, Index end,
                                Visit visit) const {
#pragma unroll 2
    for (; unit < end; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      const Held held = Site::template copied<kVector>(p.y, at, spot.count, place(unit), kApart);
      if (spot.exists) visit(0, spot.count, held);
    }
  }
  template <bool kFirst, class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool, Visit visit) {
    if constexpr (!kFirst) {
      visit_units(p, first, at, 0, p.units, visit);
    } else {
      const Index of_group = units_of_group(p);
#pragma unroll 1
      for (Index unit = 0; unit < p.units; unit += of_group) {
        // Each turn closes one more group, an empty one: so all but kGroups - 1 are those that this turn
        // needs.
        asm volatile("cp.async.wait_group %0;" ::"n"(kGroups - 1) : "memory");
        close_group();
        visit_units(p, first, at, unit, unit + of_group < p.units ? unit + of_group : p.units, visit);
      }
    }
  }
};

struct InMemory {
  FUSOR_METHOD void bind(char*) {}
  FUSOR_METHOD void fill(const Params&, Index, Index (&)[Y::kRank]) {}
  FUSOR_METHOD void forget() {}
  // Backwards, what the last pass read last is still in L2.
  template <bool kFirst, class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool backwards, Visit visit) {
    each_loaded(p, first, at, backwards, [&](Index, const Spot& spot, const Held& held) {
      if (spot.exists) visit(0, spot.count, held);
    });
  }
};
