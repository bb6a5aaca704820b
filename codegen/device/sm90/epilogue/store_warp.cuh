// Owns the store warp of the tensor-core contraction of sm_90a: one thread for each consumer, where the
// epilogue has staged operands.
//
//   box 0   load   loaded --> consumer: epilogue --> done   store   load (for kBoxesOfConsumer boxes later)
//   ... box 1          load   loaded --> consumer: epilogue --> done   store   load ...
//
// The consumer waits for staged operands only, never for its own stores.
#pragma once

#include "codegen/device/sm90/epilogue/boxes.cuh"

// The maps of all that boxes hold; `second` is unused where there is one result.
template <int kStaged>
struct BoxMaps {
  const TensorMap& result;
  const TensorMap& second;
  const TensorMap (&staged)[kStaged];
};

// The boxes of one consumer, in the order in which it fills them.
struct BoxWalk {
  const Schedule& schedule;
  const int consumer;
  int item, part = 0, column = 0;
  Tile tile;

  __device__ BoxWalk(const Schedule& schedule_, int consumer_)
      : schedule(schedule_),
        consumer(consumer_),
        item(first_item() + (kPingPong ? consumer * item_step() : 0)) {
    if (more()) tile = schedule.tile(item);
  }
  __device__ bool more() const { return item < schedule.items(); }
  __device__ int first_row() const { return tile.row + ((kPingPong ? 0 : consumer * kParts) + part) * 64; }
  __device__ int first_column() const { return tile.column + column; }
  __device__ void advance() {
    column += kBoxColumns;
    if (column < kColumns) return;
    column = 0;
    if (++part < kParts) return;
    part = 0;
    item += (kPingPong ? kConsumers : 1) * item_step();
    if (more()) tile = schedule.tile(item);
  }
};

template <int kStaged>
struct StoreWarp {
  using Outer = OuterOf<Schedule>;

  const Problem& problem;
  const Schedule& schedule;
  const BoxMaps<kStaged>& maps;
  u8* boxes;  // of this consumer: kBoxesOfConsumer
  BoxBarriers& barriers;
  int consumer;

  __device__ void run() const {
    BoxWalk coming(schedule, consumer), leaving(schedule, consumer);
    for (int box = 0; box < kBoxesOfConsumer && coming.more(); ++box, coming.advance()) bring(box, coming);
#pragma unroll 1
    for (BoxRing ring; leaving.more(); leaving.advance(), ring.advance()) {
      barriers.done[ring.stage].wait(ring.parity);
      send(ring.stage, leaving);
      wait_for_stores<0>();
      if (!coming.more()) continue;
      bring(ring.stage, coming);
      coming.advance();
    }
  }

 private:
  template <class T, class Move>
  __device__ void for_blocks_of(const BoxWalk& at, u8* box, Move move) const {
    for_blocks<T>(problem, schedule, at.tile, at.first_row(), at.first_column(), box, move);
  }

  // A box of which nothing exists still completes its barrier, with no bytes.
  __device__ void bring(int number, const BoxWalk& at) const {
    u8* const box = boxes + number * kBoxBytes;
    Barrier& barrier = barriers.loaded[number];
    u32 bytes = 0;
    count<FirstStaged>(at, bytes);
    if constexpr (kStaged > 1) count<SecondStaged>(at, bytes);
    barrier.arrive_and_expect(bytes);
    copy<FirstStaged>(at, box + kFirstStagedAt, maps.staged[0], barrier);
    if constexpr (kStaged > 1)
      copy<SecondStaged>(at, box + kSecondStagedAt, maps.staged[kStaged - 1], barrier);
  }
  template <class T>
  __device__ void count(const BoxWalk& at, u32& bytes) const {
    for_blocks_of<T>(at, nullptr, [&](u8*, int, int, const Outer&) { bytes += Box<T>::kBlockBytes; });
  }
  template <class T>
  __device__ void copy(const BoxWalk& at, u8* box, const TensorMap& map, Barrier& barrier) const {
    for_blocks_of<T>(
        at, box, [&](u8* to, int c0, int c1, const Outer& c2) { copy_box(to, map, barrier, c0, c1, c2); });
  }

  __device__ void send(int number, const BoxWalk& at) const {
    u8* const box = boxes + number * kBoxBytes;
    store<Out>(at, box, maps.result);
    if constexpr (kHasSecond) store<SecondOut>(at, box + kSecondAt, maps.second);
    commit_stores();
  }
  template <class T>
  __device__ void store(const BoxWalk& at, u8* box, const TensorMap& map) const {
    for_blocks_of<T>(at, box,
                     [&](u8* from, int c0, int c1, const Outer& c2) { store_box(map, from, c0, c1, c2); });
  }
};
