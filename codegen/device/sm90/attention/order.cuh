// Owns how blocks come by their tiles: in fixed turns, or, where lengths decide on the device which tiles
// have anything to do, by a counter along an order of these alone, the tiles of the longest sequences first.
//
//   ragged_maps    lengths --> a run of tiles for each sequence, and a counter at zero
//   one warp       counter --> number --> tile and entry --> a slot of shared memory
//   all others     read the slot; empty it when they are done with the tile
#pragma once

#include "codegen/device/sm90/attention/parts.cuh"
#include "codegen/device/sm90/attention/tiles.cuh"

// The tiles of a sequence: numbers from `first` on belong to it.
struct alignas(16) TileRun {
  int first, sequence, tiles, unused;
};

// The order of tiles that ragged_maps.cuh makes for all launches of a part. items: how many tiles a launch
// has; taken: how many numbers the blocks of each have asked for.
struct alignas(128) TileOrder {
  int items;
  int unused[31];
  u32 taken[32];
  TileRun runs[1];  // as many as sequences, those with most to do first
};

// Tiles of heads `first` .. first + heads - 1 of all sequences, which have `all` heads each. chunk: number of
// the launch; section: heads whose tiles take turns; most: tiles that a sequence has at most, where the
// kernel counts them from the last one down, else 0.
struct OrderedTiles {
  TileOrder* order;
  i64 sequences, all, first, heads, chunk, section, most;

  // By a warp.
  __device__ TileQueue::Item item(int number) const {
    const int lane = threadIdx.x % 32, count = static_cast<int>(sequences);
    TileRun run = order->runs[0];
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const TileRun mine = order->runs[min(base + lane, count - 1)];
      const u32 before = __ballot_sync(0xffffffff, base + lane < count && mine.first <= number);
      if (before == 0) break;
      const int last = 31 - __clz(static_cast<int>(before));
      run.first = __shfl_sync(0xffffffff, mine.first, last);
      run.sequence = __shfl_sync(0xffffffff, mine.sequence, last);
      run.tiles = __shfl_sync(0xffffffff, mine.tiles, last);
    }
    const TileQueue queue{run.tiles, heads, section, 0};
    const TileQueue::Item item = queue.item(number - run.first);
    const int tile = most > 0 ? static_cast<int>(most) - run.tiles + item.tile : item.tile;
    return {tile, run.sequence * static_cast<int>(all) + static_cast<int>(first) + item.entry};
  }
};

// Facts of which ragged_maps.cuh makes the order. rows: most rows of a sequence; least: rows that results
// have whatever lengths say; tile: rows of a tile.
struct TileOrderFacts {
  TileOrder* to;
  i64 sequences, heads, rows, least, tile;
};

// How far apart rows of a result are, and how far it reaches, in elements.
struct ResultReach {
  i64 stride, reach;
};

// Tiles on their way from the warp that asks for them to all others.
template <bool kOrdered>
struct TileSlots {
  __device__ void init(int) {}
};
template <>
struct TileSlots<true> {
  enum : int { kSlots = 4 };

  TileQueue::Item items[kSlots];  // of no entry: there are no more
  Barrier full[kSlots], empty[kSlots];

  // readers: warps that read each.
  __device__ void init(int readers) {
    for (int slot = 0; slot < kSlots; ++slot) {
      full[slot].init(1);
      empty[slot].init(readers);
    }
  }
};

// A warp's way from tile to tile:  for (Turns<...> turns; turns.find(p, slots); turns.leave(slots)) ...
template <bool kOrdered>
struct Turns {
  int number = static_cast<int>(blockIdx.x);

  template <class P>
  __device__ bool find(const P& p, const TileSlots<false>&) const {
    return number < p.queue.items();
  }
  template <class P>
  __device__ TileQueue::Item item(const P& p, const TileSlots<false>&) const {
    return p.queue.item(number);
  }
  // The item of find(), found anew rather than kept in registers.
  template <class P>
  __device__ TileQueue::Item again(const P& p, const TileSlots<false>&) const {
    return p.queue.item(hidden(number));
  }
  __device__ void leave(const TileSlots<false>&) { number += static_cast<int>(gridDim.x); }
};
template <>
struct Turns<true> {
  Ring<TileSlots<true>::kSlots> ring;

  template <class P>
  __device__ TileQueue::Item item(const P&, TileSlots<true>& slots) const {
    volatile TileQueue::Item& item = slots.items[ring.stage];
    return {item.tile, item.entry};
  }
  template <class P>
  __device__ TileQueue::Item again(const P& p, TileSlots<true>& slots) const {
    return item(p, slots);
  }
  template <class P>
  __device__ bool find(const P& p, TileSlots<true>& slots) {
    slots.full[ring.stage].wait(ring.parity);
    return item(p, slots).entry >= 0;
  }
  __device__ void leave(TileSlots<true>& slots) {
    __syncwarp();
    release(slots.empty[ring.stage]);
    ring.advance();
  }
};

// Turns of the warp that asks for tiles: it has the next number on its way while a tile passes.
template <bool kOrdered>
struct AskingTurns : Turns<false> {};
template <>
struct AskingTurns<true> {
  Ring<TileSlots<true>::kSlots> ring;
  int number = static_cast<int>(blockIdx.x);
  TileQueue::Item found = {};

  template <class P>
  __device__ TileQueue::Item item(const P&, const TileSlots<true>&) const {
    return found;
  }
  template <class P>
  __device__ TileQueue::Item again(const P&, const TileSlots<true>&) const {
    return {hidden(found.tile), hidden(found.entry)};
  }
  template <class P>
  __device__ bool find(const P& p, TileSlots<true>& slots) {
    const bool exists = number < p.ordered.order->items;
    found = exists ? p.ordered.item(number) : TileQueue::Item{0, -1};
    slots.empty[ring.stage].wait(ring.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      slots.items[ring.stage] = found;
      slots.full[ring.stage].arrive();
      if (exists)
        number = static_cast<int>(gridDim.x + atomicAdd(&p.ordered.order->taken[p.ordered.chunk], 1u));
    }
    ring.advance();
    return exists;
  }
  __device__ void leave(TileSlots<true>&) { number = __shfl_sync(0xffffffff, number, 0); }
};
