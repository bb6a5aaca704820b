// Owns the loader by threads of the tensor-core contraction of sm_90a, for operands of matmuls whose starts,
// lines or batch entries are no multiples of 16 bytes apart: TMA cannot address these.
//
//   128 threads, a unit of 16 bytes each, up to 8 units in flight
//   memory    | aligned 16 bytes | aligned 16 bytes |      two loads, then a shift; zeros beyond the ends
//   unit             |<---- 16 bytes ---->|                --> stage of the ring, swizzled as TMA would
//
// An operand that TMA can address is still loaded by TMA.
#pragma once

#include "codegen/device/sm90/load/boxes.cuh"
#include "codegen/device/sm90/load/unit_places.cuh"

// An operand in memory; distances in bytes.
struct ThreadOperand {
  const u8* first;
  i64 line, entry;        // from line to line; from entry to entry of the batch, or 0 where all share one
  i64 line_bytes, lines;  // of an entry
  i64 bytes;              // from the first to behind the last one
};

// Sixteen bytes of a tile: where they begin in memory, and how many of them exist, if any.
struct Unit {
  const u8* from;
  int bytes;

  __device__ int shift() const { return static_cast<int>(reinterpret_cast<u64>(from) % 16); }
};

FUSOR_DEVICE u32 rounded(u32 word) {
  if constexpr (kTf32) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
  return word;
}

// The largest divisor of the number up to `most`.
FUSOR_DEVICE constexpr int largest_part(int number, int most) {
  int part = number < most ? number : most;
  while (number % part != 0) --part;
  return part;
}

// Copies a unit at an operand's ends element by element.
template <int kBytes>
FUSOR_DEVICE void copy_elements(u8* to, const Unit& unit) {
  Words<kBytes> elements[16 / kBytes]{};
#pragma unroll
  for (int i = 0; i < 16 / kBytes; ++i)
    if (i * kBytes < unit.bytes) load_words(unit.from + i * kBytes, elements[i]);
#pragma unroll
  for (int i = 0; i < 16 / kBytes; ++i) {
    if constexpr (kBytes == 4)
      reinterpret_cast<u32*>(to)[i] = rounded(elements[i].word[0]);
    else if constexpr (kBytes == 2)
      reinterpret_cast<u16*>(to)[i] = elements[i].word;
    else
      to[i] = static_cast<u8>(elements[i].word);
  }
}

// A thread's units of the tile of kLines lines that begins at `across` in step `step` of k.
template <int kGrain, bool kAcross, int kLines>
struct ThreadLoader {
  using Places = UnitPlaces<kAcross, kTileK, kWarpgroup>;
  enum : int { kPasses = kLines / Places::kLinesOfPass, kBlock = Places::kPassesOfBlock };
  static_assert(kLines % (Places::kLinesOfPass * kBlock) == 0);
  // Units in flight: as many as the registers hold, in whole blocks.
  enum : int {
    kMost = Config::blocks_per_sm == 1 ? 8 : 4,
    kBatch = largest_part(kPasses / kBlock, kMost / kBlock) * kBlock,
  };

  const ThreadOperand& operand;
  // The beginning of the next batch's first unit, and how many lines, and bytes of a line, exist from there
  // on, if any.
  const u8* from;
  int lines, bytes;

  __device__ ThreadLoader(const ThreadOperand& operand_, int entry, int across, int step)
      : operand(operand_) {
    constexpr int kEnough = 1 << 20;
    const i64 line = (kAcross ? step * kTileK : across) + Places::line(threadIdx.x);
    const i64 byte =
        (kAcross ? static_cast<i64>(across) * kElementBytes : static_cast<i64>(step) * kLineBytes) +
        Places::byte(threadIdx.x);
    const i64 left = operand.line_bytes - byte;
    from = operand.first + entry * operand.entry + line * operand.line + byte;
    lines = static_cast<int>(operand.lines - line);
    bytes = left < kEnough ? static_cast<int>(left) : kEnough;
  }

  __device__ void load(u8* tile) {
    u8* to = tile + Places::place(threadIdx.x, 0);
#pragma unroll 1
    for (int pass = 0; pass < kPasses; pass += kBatch) {
      if (is_inside())
        load_batch(to);
      else
        load_at_ends(to);
      to += kBatch * kPassBytes;
      advance();
    }
  }

 private:
  enum : int { kPassBytes = Places::kLinesOfPass * kLineBytes };

  // How many bytes of a unit of the batch exist, if any; and where the unit after the one at `at` begins.
  __device__ int existing(int pass) const {
    return Places::lines_on(pass) < lines ? bytes - Places::bytes_on(pass) : 0;
  }
  __device__ const u8* next(const u8* at, int pass) const {
    if (kAcross && pass % kBlock == 0) return from + Places::bytes_on(pass);
    return at + Places::kLinesOfPass * operand.line;
  }
  __device__ void advance() {
    if constexpr (kAcross) {
      from += Places::bytes_on(kBatch);
      bytes -= Places::bytes_on(kBatch);
    } else {
      from += Places::lines_on(kBatch) * operand.line;
      lines -= Places::lines_on(kBatch);
    }
  }

  // Whether aligned units that hold bytes of the batch are the operand's own.
  __device__ bool is_inside() const {
    constexpr int kMostOn = Places::lines_on(kAcross ? kBlock - 1 : kBatch - 1);
    const int last =
        lines - 1 < kMostOn ? (lines - 1) / Places::kLinesOfPass * Places::kLinesOfPass : kMostOn;
    const u8* const end = from + last * operand.line + Places::bytes_on(kBatch - 1) + 32;
    return from - Unit{from, 0}.shift() >= operand.first && end <= operand.first + operand.bytes;
  }

  __device__ void load_batch(u8* to) const {
    u32 words[kBatch][8];
    const u8* at = from;
#pragma unroll
    for (int i = 0; i < kBatch; at = next(at, ++i)) fetch(words[i], {at, existing(i)});
    at = from;
#pragma unroll
    for (int i = 0; i < kBatch; at = next(at, ++i)) put(to + i * kPassBytes, words[i], {at, existing(i)});
  }
  __device__ void fetch(u32 (&words)[8], const Unit& unit) const {
    // Zeros break a false dependence: ptxas might reuse the registers of the unit before, and wait for it.
    Words<16> units[2]{};
    if (unit.bytes > 0) {
      const u8* const aligned = unit.from - unit.shift();
      load_words(aligned, units[0]);
      load_words(aligned + 16, units[1]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = units[i / 4].word[i % 4];
  }
  __device__ void put(u8* to, u32 (&words)[8], const Unit& unit) const {
    move_down<kGrain>(words, unit.shift());
    if (unit.bytes < 16)
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = first_bytes(words[i], unit.bytes - 4 * i);
    Vec<u32, 4> whole;
#pragma unroll
    for (int i = 0; i < 4; ++i) whole[i] = rounded(words[i]);
    *reinterpret_cast<Vec<u32, 4>*>(to) = whole;
  }

  // Element by element: an operand has few such units.
  __device__ void load_at_ends(u8* to) const {
    const u8* at = from;
#pragma unroll 1
    for (int i = 0; i < kBatch; at = next(at, ++i))
      copy_elements<kElementBytes>(to + i * kPassBytes, {at, existing(i)});
  }
};

// Called by all threads of the warpgroup. Each waits for the stage, and arrives when its share is written;
// the first one expects the bytes of TMA before.
template <class Params>
FUSOR_DEVICE void load_by_threads(const Params& p, Stages& stages) {
  constexpr u32 kCopiedBytes = (kGrainA > 0 ? 0 : kTileBytesA) + (kGrainB > 0 ? 0 : kTileBytesB);
  Ring ring;
  const int items = p.schedule.items();
  for (int item = first_item(); item < items; item += item_step()) {
    const Tile tile = p.schedule.tile(item);
    const EntryIn<false> entry_a(p.operands, tile);
    const EntryIn<true> entry_b(p.operands, tile);
#pragma unroll 1
    for (int step = tile.begin; step < tile.end; ++step, ring.advance()) {
      Barrier& full = stages.full[ring.stage];
      u8 *const a = stages.a[ring.stage], *const b = stages.b[ring.stage];
      stages.empty[ring.stage].wait(ring.parity ^ 1);
      if (kCopiedBytes > 0 && threadIdx.x == 0) {
        full.expect(kCopiedBytes);
        if constexpr (kGrainA == 0)
          load_lines<kRowsAdjacentA, kTileM, Alone>(a, p.a, full, tile.row, step * kTileK,
                                                    entry_a.place(p.operands, tile));
        if constexpr (kGrainB == 0)
#pragma unroll
          for (int i = 0; i < kSiblings; ++i)
            load_lines<kColumnsAdjacentB, kColumns, Alone>(b + i * kColumns * kLineBytes, p.b[i], full,
                                                           tile.column, step * kTileK,
                                                           entry_b.place(p.operands, tile));
      }
      __syncwarp();
      if constexpr (kGrainA > 0)
        ThreadLoader<kGrainA, kRowsAdjacentA, kTileM>(p.thread_a, tile.entry, tile.row, step).load(a);
      if constexpr (kGrainB > 0)
#pragma unroll 1
        for (int i = 0; i < kSiblings; ++i)
          ThreadLoader<kGrainB, kColumnsAdjacentB, kColumns>(p.thread_b[i], tile.entry, tile.column, step)
              .load(b + i * kColumns * kLineBytes);
      fence_shared_writes();
      full.arrive();
    }
  }
}
