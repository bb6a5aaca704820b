// Owns the tensor-core matmul of sm_90a (Hopper): a persistent, warp-specialised kernel.
// load: one thread of the first warpgroup keeps a ring of operand tiles in shared memory full, by TMA.
// compute: two warpgroups multiply 64 rows of the tile each, on the tensor cores, straight from shared
// memory. finish: each stages its sums, a few columns at a time, and hands vectors of them to the epilogue;
// the loads of the next tile go on meanwhile. Rows and columns are those of the product that the tensor cores
// see: the engine may have exchanged m and n.
#include "fusor_generated.cuh"

#include "codegen/device/tma.cuh"
#include "codegen/device/wgmma.cuh"

static constexpr int kTileM = 128, kTileN = FUSOR_TILE_N, kTileK = 64, kStages = FUSOR_STAGES;
static constexpr int kBatch = FUSOR_BATCH;  // leading axes of the result
static constexpr int kVector = FUSOR_VECTOR;
static constexpr bool kRowsAdjacentA = FUSOR_A_ROWS_ADJACENT, kColumnsAdjacentB = FUSOR_B_COLUMNS_ADJACENT;
static constexpr int kWarpgroup = 128, kConsumers = 2;
static constexpr int kTileBytesA = kTileM * kTileK * 2, kTileBytesB = kTileN * kTileK * 2;
static constexpr int kSums = kTileN / 2;  // of a thread

// Staged sums of one warp: its 16 rows by kChunk columns, lines along the axis on which the result is
// adjacent. The pitch spreads the banks of the writes and leaves every vector aligned.
static constexpr int kChunk = 32, kWarpRows = 16, kWarps = kConsumers * kWarpgroup / 32;
static constexpr bool kAlongColumns = FUSOR_Y_ALONG_COLUMNS;
static constexpr int kLine = kAlongColumns ? kChunk : kWarpRows, kLines = kAlongColumns ? kWarpRows : kChunk;
static constexpr int kPitch = kLine + (kAlongColumns ? 8 : 4);
static constexpr int kStaged = kLines * kPitch;

struct Params {
  TensorMap a, b;
  i64 rows, columns, steps;  // extents of one batch entry; steps in tiles of k
  i64 entries;
  i64 batched_a, batched_b;  // 0: the operand is broadcast over the batch
  i64 tiles_m, tiles_n;
  i64 band;  // tile rows whose tiles run side by side, for L2's sake
  FastDivisor batch[kBatch > 0 ? kBatch : 1];
  Y::Args y;
};

struct Shared {
  alignas(1024) u8 a[kStages][kTileBytesA];
  alignas(1024) u8 b[kStages][kTileBytesB];
  alignas(16) float staged[kWarps][kStaged];
  Barrier full[kStages], empty[kStages];
};

struct Place {
  int entry, row, column;  // of the first element
};

// Tiles in bands of tile rows, down the rows of a band first.
FUSOR_DEVICE Place place_of(const Params& p, int tile) {
  const int per_entry = static_cast<int>(p.tiles_m * p.tiles_n);
  const int entry = tile / per_entry;
  const int inside = tile - entry * per_entry;
  const int per_band = static_cast<int>(p.band * p.tiles_n);
  const int first = inside / per_band * static_cast<int>(p.band);
  const int rest = static_cast<int>(p.tiles_m) - first;
  const int height = rest < static_cast<int>(p.band) ? rest : static_cast<int>(p.band);
  const int in_band = inside % per_band;
  return {entry, (first + in_band % height) * kTileM, in_band / height * kTileN};
}

// Where in the ring, and in which of its rounds.
struct Ring {
  int stage = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// One operand tile: boxes of 64 adjacent elements (128 bytes) by kTileK or by up to 256 lines.
template <bool kAcrossAdjacent, int kExtent>
FUSOR_DEVICE void load_tile(u8* tile, const TensorMap& map, Barrier& full, int across, int step, int entry) {
  if constexpr (kAcrossAdjacent) {
#pragma unroll
    for (int i = 0; i < kExtent; i += 64)
      copy_box(tile + i * kTileK * 2, map, full, across + i, step * kTileK, entry);
  } else {
    copy_box(tile, map, full, step * kTileK, across, entry);
  }
}

FUSOR_DEVICE void load(const Params& p, Shared& shared, int tiles) {
  Ring ring;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Place place = place_of(p, tile);
    const int entry_a = place.entry * static_cast<int>(p.batched_a),
              entry_b = place.entry * static_cast<int>(p.batched_b);
#pragma unroll 1
    for (int step = 0; step < static_cast<int>(p.steps); ++step, ring.advance()) {
      Barrier& full = shared.full[ring.stage];
      shared.empty[ring.stage].wait(ring.parity ^ 1);
      full.arrive_and_expect(kTileBytesA + kTileBytesB);
      load_tile<kRowsAdjacentA, kTileM>(shared.a[ring.stage], p.a, full, place.row, step, entry_a);
      load_tile<kColumnsAdjacentB, kTileN>(shared.b[ring.stage], p.b, full, place.column, step, entry_b);
    }
  }
}

// Descriptor of a tile's part, and how far it moves for the next 16 steps of k (in units of 16 bytes).
template <bool kAcrossAdjacent>
struct Part {
  static constexpr u64 kStep = (kAcrossAdjacent ? 16 * 128 : 16 * 2) >> 4;
  FUSOR_DEVICE u64 descriptor(const u8* part) {
    return wgmma_descriptor(shared_address(part), kAcrossAdjacent ? kTileK * 128 : 16, 1024);
  }
};

FUSOR_DEVICE void multiply(const Params& p, Shared& shared, Ring& ring, int consumer, float (&sums)[kSums]) {
  // 64 rows are one box where rows are adjacent, 64 lines of 128 bytes otherwise: both 8 KiB.
  constexpr int kPartBytes = 64 * kTileK * 2;
  int previous = -1;
#pragma unroll 1
  for (int step = 0; step < static_cast<int>(p.steps); ++step) {
    shared.full[ring.stage].wait(ring.parity);
    u64 a = Part<kRowsAdjacentA>::descriptor(shared.a[ring.stage] + consumer * kPartBytes);
    u64 b = Part<kColumnsAdjacentB>::descriptor(shared.b[ring.stage]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK; k += 16) {
      Wgmma<kTileN, kRowsAdjacentA, kColumnsAdjacentB>::issue(sums, a, b, (step | k) != 0);
      a += Part<kRowsAdjacentA>::kStep;
      b += Part<kColumnsAdjacentB>::kStep;
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (previous >= 0 && threadIdx.x % 32 == 0) shared.empty[previous].arrive();
    previous = ring.stage;
    ring.advance();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) shared.empty[previous].arrive();
}

// Writes the sums of columns [kFirst, kFirst + kChunk) to the warp's stage.
template <int kFirst>
FUSOR_DEVICE void stage_chunk(float* staged, const float (&sums)[kSums]) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float first = sums[kFirst / 2 + 4 * j + 2 * half],
                  second = sums[kFirst / 2 + 4 * j + 2 * half + 1];
      const int r = row + 8 * half, c = column + 8 * j;
      if constexpr (kAlongColumns) {
        Vec<float, 2>& pair = *reinterpret_cast<Vec<float, 2>*>(staged + r * kPitch + c);
        pair = {{first, second}};
      } else {
        staged[c * kPitch + r] = first;
        staged[(c + 1) * kPitch + r] = second;
      }
    }
}

// A switch, so that the sums keep compile-time places while the epilogue's text stands once.
template <int kFirst = 0>
FUSOR_DEVICE void stage_columns(float* staged, const float (&sums)[kSums], int first) {
  if constexpr (kFirst < kTileN) {
    if (first == kFirst)
      stage_chunk<kFirst>(staged, sums);
    else
      stage_columns<kFirst + kChunk>(staged, sums, first);
  }
}

FUSOR_DEVICE void finish_chunk(const Params& p, const float* staged, int entry, int first_row,
                               int first_column) {
  constexpr int kVectorsOfLine = kLine / kVector;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < kLines * kVectorsOfLine; i += 32) {
    const int line = i / kVectorsOfLine, along = i % kVectorsOfLine * kVector;
    const int row = first_row + (kAlongColumns ? line : along),
              column = first_column + (kAlongColumns ? along : line);
    const int rows_left = static_cast<int>(p.rows) - row, columns_left = static_cast<int>(p.columns) - column;
    if (rows_left <= 0 || columns_left <= 0) continue;
    const int left = kAlongColumns ? columns_left : rows_left;
    const Vec<float, kVector> sums =
        *reinterpret_cast<const Vec<float, kVector>*>(staged + line * kPitch + along);
    Index at[kBatch + 2];
    Index rest = entry;
#pragma unroll
    for (int axis = kBatch - 1; axis > 0; --axis) at[axis] = p.batch[axis].split(rest);
    if constexpr (kBatch > 0) at[0] = rest;
    at[kBatch] = FUSOR_SWAPPED ? column : row;
    at[kBatch + 1] = FUSOR_SWAPPED ? row : column;
    Y::apply<kVector>(p.y, at, left < kVector ? left : kVector, sums);
  }
}

FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer, int tiles) {
  Ring ring;
  const int warp = threadIdx.x / 32 - kWarpgroup / 32;
  float* const staged = shared.staged[warp];
  float sums[kSums];
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    multiply(p, shared, ring, consumer, sums);
    const Place place = place_of(p, tile);
#pragma unroll 1
    for (int first = 0; first < kTileN; first += kChunk) {
      stage_columns(staged, sums, first);
      __syncwarp();
      finish_chunk(p, staged, place.entry, place.row + warp * kWarpRows, place.column + first);
      __syncwarp();
    }
  }
}

extern "C" __global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    wgmma_matmul(const __grid_constant__ Params p) {
  extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>((reinterpret_cast<u64>(memory) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      shared.full[stage].init(1);
      shared.empty[stage].init(kConsumers * kWarpgroup / 32);
    }
    fence_barriers();
    prefetch_map(p.a);
    prefetch_map(p.b);
  }
  __syncthreads();
  const int tiles = static_cast<int>(p.tiles_m * p.tiles_n * p.entries);
  if (threadIdx.x < kWarpgroup) {
    give_registers<40>();
    if (threadIdx.x == 0) load(p, shared, tiles);
  } else {
    take_registers<232>();
    consume(p, shared, threadIdx.x / kWarpgroup - 1, tiles);
  }
}
