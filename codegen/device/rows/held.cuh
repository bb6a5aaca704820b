// Owns where a row lies between its phases: in registers, in shared memory, or in memory, read again by each.
//
//   vectors of a row     unit 0                  unit 1                         kGroup * kCluster threads
//                        t0 t1 t2 ... t(n-1)     t0 t1 t2 ... t(n-1)   ...      each works on one vector a
//                        unit
//   registers  held[kUnits], loops unrolled      shared  held[unit][piece][thread], loops rolled; every
//   thread
//                                                        reads what it wrote itself
#pragma once

#include "codegen/device/rows/exchange.cuh"

constexpr int kVector = Config::vector;
constexpr int kUnits = Config::units;          // vectors of a thread, where registers hold them
constexpr int kUnroll = Config::unroll;        // vectors that a thread has in flight, elsewhere
constexpr bool kWhole = Config::whole;         // every thread has as many vectors of a row
constexpr bool kRowTails = Config::row_tails;  // the last vector of a row may be partial
constexpr bool kRepacks = Config::repacks;     // values are computed anew in each phase, not held
constexpr int kLast = Y::kRank - 1;

// rows: vectors of them where kSpread; row_step: between the rows of a block; vectors: of a row, elements
// where kSpread; units: vectors of a row that a thread works on, at most; row_extent: elements along the last
// axis; partials: of the totals of columns, [part][column]; extents: that of the vector axis in vectors.

// Where a vector of the row lies. Of one that does not exist: where the last one does.
struct Spot {
  bool exists;
  int count;
};
FUSOR_DEVICE Spot locate(const Params& p, Index unit, Index first, Index (&at)[Y::kRank]) {
  const Index vector = unit * (kGroup * kCluster) + first;
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

struct InRegisters {
  Held held[kUnits];
  FUSOR_METHOD void bind(char*) {}

  FUSOR_METHOD void fill(const Params& p, Index first, Index (&at)[Y::kRank]) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      held[unit] = Y::load<kVector>(p.y, at, spot.count);
    }
  }
  // The next phase does not keep values that were computed from the row.
  FUSOR_METHOD void forget() {
    if constexpr (kRepacks && sizeof(Held) % 4 == 0 && alignof(Held) >= 4) {
      constexpr int kWords = sizeof(Held) < 4 ? 1 : sizeof(Held) / 4;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        u32 words[kWords];
        memcpy(words, &held[unit], sizeof words);
#pragma unroll
        for (u32& word : words) asm volatile("" : "+r"(word));
        memcpy(&held[unit], words, sizeof words);
      }
    }
  }
  template <class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool, Visit visit) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      if (spot.exists) visit(unit, spot.count, held[unit]);
    }
  }
};

struct InShared {
  static constexpr int kPiece = sizeof(Held) % 16 == 0  ? 16
                                : sizeof(Held) % 8 == 0 ? 8
                                : sizeof(Held) % 4 == 0 ? 4
                                                        : 1;
  static constexpr int kPieces = sizeof(Held) / kPiece;
  struct alignas(kPiece) Piece {
    char bytes[kPiece];
  };
  Piece* pieces;
  FUSOR_METHOD void bind(char* memory) { pieces = reinterpret_cast<Piece*>(memory); }

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
  FUSOR_METHOD void fill(const Params& p, Index first, Index (&at)[Y::kRank]) {
#pragma unroll 1
    for (Index unit = 0; unit < p.units; unit += kUnroll) {
      Held loaded[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const Spot spot = locate(p, unit + i, first, at);
        loaded[i] = Y::load<kVector>(p.y, at, spot.count);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i)
        if (i == 0 || unit + i < p.units) put(unit + i, loaded[i]);
    }
  }
  FUSOR_METHOD void forget() {}
  template <class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool, Visit visit) {
#pragma unroll 1
    for (Index unit = 0; unit < p.units; ++unit) {
      const Spot spot = locate(p, unit, first, at);
      const Held held = get(unit);
      if (spot.exists) visit(0, spot.count, held);
    }
  }
};

struct InMemory {
  FUSOR_METHOD void bind(char*) {}
  FUSOR_METHOD void fill(const Params&, Index, Index (&)[Y::kRank]) {}
  FUSOR_METHOD void forget() {}
  // Backwards, what the last pass read last is still in L2.
  template <class Visit>
  FUSOR_METHOD void each(const Params& p, Index first, Index (&at)[Y::kRank], bool backwards, Visit visit) {
#pragma unroll 1
    for (Index step = 0; step < p.units; step += kUnroll) {
      Held loaded[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const Spot spot = locate(p, unit_of(p, step + i, backwards), first, at);
        loaded[i] = Y::load<kVector>(p.y, at, spot.count);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const Spot spot = locate(p, unit_of(p, step + i, backwards), first, at);
        if (spot.exists && step + i < p.units) visit(0, spot.count, loaded[i]);
      }
    }
  }
  FUSOR_METHOD Index unit_of(const Params& p, Index step, bool backwards) {
    if (!backwards) return step;
    return step < p.units ? p.units - 1 - step : 0;
  }
};
