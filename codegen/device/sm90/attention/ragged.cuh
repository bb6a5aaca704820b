// Owns operands of attention whose entries begin where only the device knows: a map for each entry, which
// ragged_maps.cuh makes, and the way to rows that no map reaches.
#pragma once

#include "codegen/device/sm90/attention/parts.cuh"

// An entry, as the device knows it. Rows lie at elements `start` + row * stride + ..., before `end`; those
// from `rows` on do not exist.
struct alignas(128) RaggedEntry {
  TensorMap map;  // of its rows, where `mapped`: TMA reads the others as zero
  i64 start, end, rows, mapped;
};

// The facts of an operand that ragged_maps.cuh is given, all but `to` and `data` in elements: how far it
// reaches, the distance of rows and what they span, how many an entry has at most; and the number of entries.
struct RaggedFacts {
  RaggedEntry* to;
  const u16* data;
  i64 reach, stride, span, rows, entries;
};

// An operand of 16-bit elements. strides: of the batch axes, the first of which numbers entries.
template <int kBatch>
struct RaggedRows {
  const RaggedEntry* entries;
  const u16* data;
  i64 elements, stride;
  i64 strides[kBatch];
};

// A result whose entries begin at places of their own: how far it reaches, in elements, and its strides.
template <int kBatch, class T>
struct RaggedResult {
  T* data;
  i64 reach, stride;
  i64 strides[kBatch];

  // The place of a row's first element. at: batch axes, row.
  template <int kRank>
  __device__ i64 place_of(i64 start, const Index (&at)[kRank]) const {
    i64 place = start + at[kBatch] * stride;
#pragma unroll
    for (int axis = 1; axis < kBatch; ++axis) place += at[axis] * strides[axis];
    return place;
  }
};

// Stores those of the first `count` elements whose places are before `end`.
template <class T, int N>
FUSOR_DEVICE void store_before(T* to, i64 place, i64 end, int count, const Vec<T, N>& values) {
  constexpr int kAccess = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  if (count == N && place >= 0 && place + N <= end && reinterpret_cast<u64>(to + place) % kAccess == 0)
    return store_whole(to + place, values, N);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count && place + i >= 0 && place + i < end) store(to + place + i, values.lane[i]);
}

// Rows of one entry and one head. first: the place of the head's first element within a row.
struct RaggedHead {
  const RaggedEntry& entry;
  const u16* data;
  i64 first, stride;
  int elements;
  bool mapped;
};

template <int kBatch>
FUSOR_DEVICE void prefetch_map(const RaggedRows<kBatch>&) {}

// Makes a map in memory, which another kernel wrote, visible to TMA.
FUSOR_DEVICE void acquire_map(const TensorMap& map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&map) : "memory");
}

template <int kBatch>
FUSOR_DEVICE const TensorMap& rows_at(const TensorMap& map, MapEntry<kBatch>&) {
  return map;
}
// Entries have maps of their own, in which they are the first one.
template <int kBatch>
FUSOR_DEVICE RaggedHead rows_at(const RaggedRows<kBatch>& rows, MapEntry<kBatch>& at) {
  const RaggedEntry& entry = rows.entries[at.at[3 - kBatch]];
  i64 first = 0;
#pragma unroll
  for (int axis = 1; axis < kBatch; ++axis) first += at.at[3 - kBatch + axis] * rows.strides[axis];
  at.set(0, 0);
  const bool mapped = entry.mapped != 0;
  if (mapped && threadIdx.x % 32 == 0) acquire_map(entry.map);
  return {entry, rows.data, first, rows.stride, static_cast<int>(rows.elements), mapped};
}

// Copies lines as TMA does, element by element, by a warp: for entries that begin at no multiple of 16 bytes,
// or end within a row.
template <int kLines, int kBytes>
FUSOR_DEVICE void fill_lines(u8 (&to)[kLines][kBytes], const RaggedHead& head, int row) {
  const int lane = threadIdx.x % 32;
  const i64 end = head.entry.end;
#pragma unroll 1
  for (int line = 0; line < kLines; ++line) {
    const int column = line * kLine + 2 * lane;
    i64 place = head.entry.start + head.first + row * head.stride + column;
    const i64 rows = head.entry.rows - row;
#pragma unroll 1
    for (int i = 0; i < kBytes / kLineBytes; ++i) {
      u32 pair = 0;
      if (i < rows && column < head.elements && place >= 0 && place < end) pair = head.data[place];
      if (i < rows && column + 1 < head.elements && place + 1 >= 0 && place + 1 < end)
        pair |= u32(head.data[place + 1]) << 16;
      const int chunk = (lane / 4) ^ (i % 8);
      *reinterpret_cast<u32*>(to[line] + i * kLineBytes + chunk * 16 + lane % 4 * 4) = pair;
      place += head.stride;
    }
  }
  fence_shared_writes();
  __syncwarp();
}

// Copies boxes of 64 elements, called by a warp.
template <int kLines, int kBytes>
FUSOR_DEVICE void warp_copies_lines(u8 (&to)[kLines][kBytes], const TensorMap& map, Barrier& full, int row,
                                    const int (&entry)[3]) {
  if (threadIdx.x % 32 == 0) copy_lines(to, map, full, row, entry);
}
template <int kLines, int kBytes>
FUSOR_DEVICE void warp_copies_lines(u8 (&to)[kLines][kBytes], const RaggedHead& head, Barrier& full, int row,
                                    const int (&entry)[3]) {
  if (head.mapped) return warp_copies_lines(to, head.entry.map, full, row, entry);
  fill_lines(to, head, row);
  if (threadIdx.x % 32 == 0) full.arrive();
}

// Copies lines to where a barrier's waiters read them: a thread does, a warp where operands are ragged.
template <class Lines, class Rows>
FUSOR_DEVICE void copy_rows(Lines& to, const Rows& rows, Barrier& full, int row, const int (&entry)[3]) {
  if constexpr (Config::ragged)
    warp_copies_lines(to, rows, full, row, entry);
  else
    copy_lines(to, rows, full, row, entry);
}

// Whether the thread is one of those that produce, as the first of warp `warp` or with all of it.
FUSOR_DEVICE bool is_producer(int warp) {
  return Config::ragged ? threadIdx.x / 32 == warp : threadIdx.x == 32 * warp;
}

// A row of a ragged result: what site Result makes of row `half` of the thread's sums, to where site Places
// says that its entry lies.
template <class Result, class Places, class Args, class PlaceArgs, int kBatch, class T, int kRank, int kCount>
FUSOR_DEVICE void store_placed_row(const Args& args, const PlaceArgs& places,
                                   const RaggedResult<kBatch, T>& to, Index (&at)[kRank], bool exists,
                                   int columns, int half, float factor, const float (&sums)[kCount]) {
  Index entry[kRank] = {};
  entry[0] = at[0];
  at[kRank - 1] = 0;
  const auto bounds = Places::template apply<1>(places, entry, 1);
  const i64 place = to.place_of(i64(bounds.value[0]), at), end = min(i64(bounds.second[0]), to.reach);
  const auto loads = Result::loads(args, at, 1);
  for_blocks_of_row(exists, columns, half, factor, sums,
                    [&](int column, int count, const Vec<float, 8>& values) {
                      at[kRank - 1] = column;
                      const auto made = Result::template apply<8>(args, at, count, loads, values);
                      store_before(to.data, place + column, end, count, narrow<T>(made));
                    });
}
