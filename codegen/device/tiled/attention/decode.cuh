// Owns attention of a few queries and many keys on the tensor cores of sm_80 and later. Keys and values are
// read once for all heads that share them, by as many blocks as keep memory busy (Dao et al.,
// "Flash-Decoding").
//
//   a tile        kRows rows: queries x heads that share keys           its keys: parts, one a block
//   a warp        all rows, and every kWarps-th group of kTileK keys of the part; no warp waits for another
//                 ring of kStages of its own:  k [keys][head]   v [keys][value]     filled kStages - 1 ahead
//                 S = q k^T --> scores pass S, bounds, exp2; O *= shrink, P = S in 16 bits; O += P v
//   finish        O, largest scores and sums of all warps -> shared memory, added up in order, then
//                   one part        --> Y, L
//                   exchange 1      the blocks of a cluster share the rows out and read each other's parts
//                   exchange 2      parts go to the workspace, for decode_finish
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/attention/tiles.cuh"
#include "codegen/device/tiled/attention/key_parts.cuh"
#include "codegen/device/tiled/attention/warp_rows.cuh"

enum : int {
  kWarps = Config::warps,
  kThreads = 32 * kWarps,
  kStages = Config::stages,
};

using LoadQ = Load<Q, kRows, kHead, true, Config::q_width, Config::q_plain, false>;
using LoadK = Load<K, kTileK, kHead, Config::k_along_head, Config::k_width, Config::k_plain, false>;
using LoadV = Load<V, kTileK, kValue, Config::v_along_head, Config::v_width, Config::v_plain, true>;
using Rows = WarpRows<Config::row_blocks, 0, kTileK, LoadQ, LoadK, LoadV>;

struct Stage {
  alignas(128) u8 k[LoadK::kSize];
  alignas(128) u8 v[LoadV::kSize];
};
struct Shared {
  alignas(128) u8 q[LoadQ::kSize];
  union {
    Stage stages[kWarps][kStages];
    Part parts[kWarps + 1];  // of the warps, and of the block
  };
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

/// An operand's groups of keys, which a warp copies.
template <class Load, int kHeadAxis>
struct Stream {
  // Lanes share whole lines: each has one vector of every kLines-th line.
  enum : bool { kByLine = Load::kAsync && Load::kAlongHead && 32 % Load::kOfLine == 0 };
  // Lines lie in pages: each lane finds one of them for all.
  enum : bool { kFinds = kByLine && Load::kMayMiss };
  enum : int { kLines = kByLine ? 32 / Load::kOfLine : 1, kCopies = Load::kVectors / 32 };
  const typename Load::Site::Args& args;
  const Index (&entry)[kRank];
  const char* first = nullptr;  // this lane's vector of its first line
  i64 step = 0;                 // to the next line
  int line = 0, element = 0;

  __device__ Stream(const typename Load::Site::Args& args_, const Index (&entry_)[kRank])
      : args(args_), entry(entry_) {
    if constexpr (kByLine) {
      const int lane = threadIdx.x % 32;
      line = lane / Load::kOfLine;
      element = lane % Load::kOfLine * Load::kWidth;
    }
    if constexpr (kByLine && !kFinds) {
      Index at[kRank];
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[axis] = entry[axis];
      at[kBatch] = at[kBatch + 1] = 0;
      const char* const start = reinterpret_cast<const char*>(Load::Site::address(args, at));
      at[2 * kBatch + 1 - kHeadAxis] = 1;
      step = reinterpret_cast<const char*>(Load::Site::address(args, at)) - start;
      first = start + line * step + 2 * element;
    }
  }

  /// Where this lane's line of the keys from `key` on begins; 0 where there is none.
  __device__ u64 find(int key, int keys) const {
    if constexpr (kFinds) {
      Index at[kRank];
#pragma unroll
      for (int axis = 0; axis < kBatch; ++axis) at[axis] = entry[axis];
      const int mine = key + static_cast<int>(threadIdx.x) % kTileK;
      at[kHeadAxis] = 0;
      at[2 * kBatch + 1 - kHeadAxis] = max(min(mine, keys - 1), 0);
      u64 place = reinterpret_cast<u64>(Load::Site::address(args, at));
      asm("" : "+l"(place));  // without a branch, so that two are found at once
      return mine < keys ? place : 0;
    } else {
      return 0;
    }
  }

  /// `found`: of these keys.
  __device__ void copy(u8* to, int key, int keys, int elements, u64 found) const {
    if constexpr (kFinds) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const u64 from = __shfl_sync(0xffffffff, found, line + i * kLines);
        const bool inside = from != 0 && element < elements;
        copy_async<Load::kWidth * 2>(shared_address(to + Load::place_of(line + i * kLines, element)),
                                     reinterpret_cast<const char*>(from) + (inside ? 2 * element : 0),
                                     inside);
      }
    } else if constexpr (kByLine) {
      const char* from = first + key * step;
      const int existing = element < elements ? keys - key - line : 0;
#pragma unroll
      for (int i = 0; i < kCopies; ++i, from += kLines * step) {
        const bool inside = i * kLines < existing;
        copy_async<Load::kWidth * 2>(shared_address(to + Load::place_of(line + i * kLines, element)),
                                     inside ? from : first, inside);
      }
    } else {
      Load::template copy<kHeadAxis, 32>(args, to, entry, key, keys, elements);
    }
  }
};

/// A warp's share of a part: fills `rows` with its sums.
FUSOR_DEVICE void add_keys(const Params& p, Shared& shared, const Tile& tile, const KeyPart& part,
                           Rows& rows) {
  const int warp = threadIdx.x / 32, head = static_cast<int>(p.head), values = static_cast<int>(p.values);
  Index of_k[kRank], of_v[kRank];
#pragma unroll
  for (int axis = 0; axis < kBatch; ++axis) of_k[axis] = of_v[axis] = tile.keys[axis];
  const Stream<LoadK, kBatch> stream_k(p.k, of_k);
  const Stream<LoadV, kBatch + 1> stream_v(p.v, of_v);
  Stage* const stages = shared.stages[warp];
  const u32 q = shared_address(shared.q);
  struct Found {
    u64 k, v;
  };
  const auto find = [&](int group) {
    return Found{stream_k.find(group * kTileK, part.end_key), stream_v.find(group * kTileK, part.end_key)};
  };
  const auto fetch = [&](int group, int stage, const Found& found) {
    if (group < part.end) {
      stream_k.copy(stages[stage].k, group * kTileK, part.end_key, head, found.k);
      stream_v.copy(stages[stage].v, group * kTileK, part.end_key, values, found.v);
    }
    commit_copies();
  };
  const int first = part.first + warp;
  // Page numbers of a later group are on their way while one is copied or multiplied.
  Found next = find(first);
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    const Found found = next;
    next = find(first + (stage + 1) * kWarps);
    fetch(first + stage * kWarps, stage, found);
  }
  // The queries, whose copies began before those of keys.
  wait_for_copies<kStages - 1>();
  __syncthreads();
  int stage = 0, free = kStages - 1;
#pragma unroll 1
  for (int group = first; group < part.end; group += kWarps) {
    Rows::Scores scores;
    Rows::Probabilities probabilities;
    wait_for_copies<kStages - 2>();
    __syncwarp();
    fetch(group + (kStages - 1) * kWarps, free, next);
    next = find(group + kStages * kWarps);
    free = stage;
    rows.multiply_keys(q, shared_address(stages[stage].k), scores);
    rows.soften(p, part.is_whole(group), group * kTileK, scores, probabilities);
    rows.multiply_values(shared_address(stages[stage].v), probabilities);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
}

/// A warp's sums, largest scores and sums of exponentials go to shared memory.
FUSOR_DEVICE void leave(Rows& rows, Part& part) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < Config::row_blocks; ++r) {
    rows.softmax[r].end();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * r + 8 * half + lane / 4;
#pragma unroll
      for (int block = 0; block < kValue / 8; ++block)
        *reinterpret_cast<Vec<float, 2>*>(part.sums[row] + 8 * block + lane % 4 * 2) = {
            {rows.sums[r][4 * block + 2 * half], rows.sums[r][4 * block + 2 * half + 1]}};
      if (lane % 4 == 0) {
        part.largest[row] = rows.softmax[r].largest[half];
        part.sum[row] = rows.softmax[r].sum[half];
      }
    }
  }
}

/// The same place in the shared memory of another block of the cluster.
template <class T>
FUSOR_DEVICE const T* in_block(const T* mine, int rank) {
  u64 address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(mine), "r"(rank));
  return reinterpret_cast<const T*>(address);
}
FUSOR_DEVICE void meet_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Blocks of a cluster have the parts of one tile; each finishes a share of the tile's vectors.
FUSOR_DEVICE void finish_in_cluster(const Params& p, const RowTile& tile, const Part* mine, int rank) {
  constexpr int kLanes = 8, kTogether = kThreads / kLanes;
  const int blocks = static_cast<int>(p.rows.parts);
  const int vectors = tile.rows() * Part::kVectors, share = (vectors + blocks - 1) / blocks;
  const int thread = static_cast<int>(threadIdx.x),
            mine_of = thread / 32 * (32 / kLanes) + thread % (32 / kLanes);
  meet_cluster();
  const int end = min((rank + 1) * share, vectors);
  for (int first = rank * share; first < end; first += kTogether)
    finish_vector<kLanes>(p, tile, blocks, first + mine_of, end,
                          [&](int part) { return in_block(mine, part); });
  // No block leaves while another reads its memory.
  meet_cluster();
}

template <class Params>
FUSOR_DEVICE Part* part_of_block(const Params& p, Shared& shared, int number) {
  if constexpr (Config::exchange == 2)
    return p.parts + number;
  else
    return shared.parts + kWarps;
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks_per_sm)
    attention_decode(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int number = static_cast<int>(block_number()), parts = static_cast<int>(p.rows.parts);
  const int part = number % parts;
  enter_launch(p, Config::exchange != 2);
  const Tile tile(p, number / parts);  // reads lengths
  LoadQ::copy_found<kBatch + 1, kThreads>(p.q, shared.q, static_cast<int>(p.head),
                                          [&](int row, Index(&at)[kRank]) {
                                            tile.find(row, at);
                                            return tile.has(row);
                                          });
  commit_copies();
  Rows rows;
  rows.begin(p, tile);
  add_keys(p, shared, tile, KeyPart(p, tile, part), rows);
  if constexpr (Config::exchange == 2) let_next_launch_begin();
  __syncthreads();
  leave(rows, shared.parts[threadIdx.x / 32]);
  __syncthreads();
  const auto part_of = [&](int warp) { return shared.parts + warp; };
  Part* const to = part_of_block(p, shared, number);
  const int vectors = tile.rows() * Part::kVectors;
  for (int first = 0; first < vectors; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    if constexpr (Config::exchange == 0)
      finish_vector<1>(p, tile, kWarps, i, vectors, part_of);
    else if (i < vectors)
      sum_of_parts(p.factor, no_score(), kWarps, i / Part::kVectors, i % Part::kVectors, part_of)
          .store(*to, i / Part::kVectors, i % Part::kVectors);
  }
  if constexpr (Config::exchange == 1) finish_in_cluster(p, tile, to, part);
  leave_launch(p);
}
