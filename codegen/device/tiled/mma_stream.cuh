// Owns the contraction of few channels on the tensor cores of sm_80 and later: the second operand stays in
// shared memory, and the rows of the first stream past it.
//
//   block       all of b: kTileN columns x k steps, loaded once, zeros beyond n
//   each warp   every W-th tile of 16 or 32 rows, where the grid has W warps; no barrier between warps
//     load      tile t + kStages - 1: cp.async in chunks of 16 bytes, zeros for padding
//     compute   16 rows of tile t by a panel of columns: ldmatrix --> mma.sync, 16 x 8 blocks
//     finish    these: sums --> the warp's shared memory --> Y, so that lines of the result leave whole
//   shared      b | of each warp: stages[kStages], staged sums | steps' keys
//
// Lines are an odd number of chunks long, so that the eight that ldmatrix reads at once meet in no bank.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/part.cuh"
#include "codegen/device/tiled/swizzle.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

enum : int {
  kStages = Config::stages,
  kChunks = Config::chunks,  // of k, 8 elements each
  kLineBytes = (kChunks % 2 == 0 ? kChunks + 1 : kChunks) * 16,
  kWarps = kThreads / 32,
  kPanel = Config::panel,  // columns that are summed at a time
  kPairs = kPanel / 16,
  kStagedPitch = kPanel + 8,
};
static_assert(kTileM % 16 == 0 && kTileN % kPanel == 0 && kPanel % 16 == 0, "whole blocks of mma.sync");
static_assert(sizeof(ElementA) == 2, "ldmatrix reads pairs of bytes");
static_assert(Config::y_along_n, "vectors of the result run along n");

struct WarpShared {
  u8 lines[kStages][kTileM * kLineBytes];
  Sum staged[16 * kStagedPitch];
};
struct Shared {
  alignas(16) u8 b[kTileN * kLineBytes];
  alignas(16) WarpShared warps[kWarps];
  Key steps[kChunks];
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
FUSOR_DEVICE int warp() { return threadIdx.x / 32; }

/// Starts the loads of the whole second operand: in chunks along k by cp.async, in vectors across it, or
/// element by element. Neighbouring threads write neighbouring steps of a line, without conflicts of banks.
FUSOR_DEVICE void load_columns(const Params& p, Shared& shared) {
  constexpr int kWidth = Config::b_width, kAlong = Config::b_along_k ? kWidth : 1, kAcross = kWidth / kAlong;
  constexpr int kLines = kTileN / kAcross, kParts = 8 * kChunks / kAlong;
#pragma unroll 8
  for (int i = threadIdx.x; i < kLines * kParts; i += kThreads) {
    const int column = i / kParts * kAcross, step = i % kParts * kAlong;
    Index at[B::kRank];
    const bool inside =
        p.problem.second_operand(0, p.problem.column(column), p.problem.step(step, Index(p.problem.k)), at);
    u8* const to = shared.b + column * kLineBytes + step * 2;
    if constexpr (kAlong == 8) {
      copy_async<16>(shared_address(to), B::address(p.b, at), inside);
    } else {
      const Vec<ElementB, kAcross> elements = load_whole_where<kAcross>(B::address(p.b, at), inside);
#pragma unroll
      for (int v = 0; v < kAcross; ++v) *reinterpret_cast<ElementB*>(to + v * kLineBytes) = elements[v];
    }
  }
}

/// Starts the copies of a tile's lines; of none beyond the last tile.
FUSOR_DEVICE void copy_lines(const Params& p, const Shared& shared, i64 tile, u8* lines) {
  if (tile >= p.tiling.tiles) return;
  const u32 to = shared_address(lines);
  const Index first = Index(tile) * kTileM;
  constexpr int kCopies = kTileM * kChunks;
#pragma unroll
  for (int i = 0; i < kCopies; i += 32) {
    const int chunk = i + lane(), row = chunk / kChunks, part = chunk % kChunks;
    if (i + 32 > kCopies && chunk >= kCopies) return;
    Index at[A::kRank];
    const bool inside = p.problem.first_operand(0, p.problem.row(first + row), shared.steps[part], at);
    copy_async<16>(to + row * kLineBytes + part * 16, A::address(p.a, at), inside);
  }
}

/// Where a sum is staged: quads of odd rows change places in pairs, so that neither lanes that write pairs
/// nor lanes that read quads meet in a bank.
FUSOR_DEVICE int staged_place(int row, int column) {
  return row * kStagedPitch + ((column / 4) ^ (row % 2)) * 4 + column % 4;
}

/// The sums of a warp: 16 rows of a panel.
struct PanelSums {
  Sum sum[2 * kPairs][4];

  __device__ void add_products(u32 lines, u32 columns) {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j)
#pragma unroll
      for (int s = 0; s < 4; ++s) sum[j][s] = Sum(0);
    // The line that this lane names: of a rows 0-7 and 8-15, then the second half of k; of b the halves of
    // k, then columns 8-15. Of half a step there is no second half: the first is read again and not used.
    const int matrix = lane() / 8, line = lane() % 8;
    const u32 a_line = lines + (line + matrix % 2 * 8) * kLineBytes;
    const u32 b_line = columns + (line + matrix / 2 * 8) * kLineBytes;
    constexpr int kSteps = kChunks / 2;
#pragma unroll(kSteps > 0 && kSteps < 8 ? kSteps : 2)
    for (int step = 0; step < kSteps; ++step)
      add_step<true>(a_line + step * 32 + matrix / 2 * 16, b_line + step * 32 + matrix % 2 * 16);
    if constexpr (kChunks % 2 != 0) add_step<false>(a_line + kSteps * 32, b_line + kSteps * 32);
  }

  __device__ void stage(Sum* staged) const {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j)
#pragma unroll
      for (int s = 0; s < 4; s += 2) {
        const int at = staged_place(sum_row(lane(), s), 8 * j + sum_column(lane(), s));
        *reinterpret_cast<Vec<Sum, 2>*>(staged + at) = {{sum[j][s], sum[j][s + 1]}};
      }
  }

 private:
  template <bool kWhole>
  __device__ void add_step(u32 a_line, u32 b_line) {
    u32 a[4];
    load_fragment<false>(a, a_line);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      u32 b[4];
      load_fragment<false>(b, b_line + j * (16 * kLineBytes));
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if constexpr (kWhole)
          multiply_add(sum[2 * j + half], a, b[2 * half], b[2 * half + 1]);
        else
          multiply_add_half(sum[2 * j + half], a, b[2 * half]);
    }
  }
};

/// Applies the epilogue to 16 rows of a panel, from `first_row` of the tile on.
FUSOR_DEVICE void finish_rows(const Params& p, const Part& part, int first_row, int first_column,
                              const Sum* staged) {
  constexpr int kWidth = Config::vector, kVectors = kPanel / kWidth, kRead = kWidth < 4 ? kWidth : 4;
#pragma unroll(kWidth == 8 ? 2 : 1)
  for (int i = lane(); i < 16 * kVectors; i += 32) {
    const int row = i / kVectors, along = i % kVectors * kWidth;
    alignas(16) Sum read[kWidth];
#pragma unroll
    for (int v = 0; v < kWidth; v += kRead)
      *reinterpret_cast<Vec<Sum, kRead>*>(read + v) =
          *reinterpret_cast<const Vec<Sum, kRead>*>(staged + staged_place(row, along + v));
    finish_vector(p, part, (first_row + row) * kTileN + first_column + along, read);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks_per_sm)
    mma_stream(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  WarpShared& own = shared.warps[warp()];
  enter_launch(p);
  if (threadIdx.x < kChunks) shared.steps[threadIdx.x] = p.problem.step(8 * threadIdx.x, Index(p.problem.k));
  __syncthreads();

  const i64 step = i64(gridDim.x) * kWarps;
  i64 tile = i64(blockIdx.x) * kWarps + warp();
  load_columns(p, shared);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    copy_lines(p, shared, tile + stage * step, own.lines[stage]);
    commit_copies();
  }
  wait_for_copies<kStages - 2>();
  __syncthreads();

  int stage = 0, filled = kStages - 1;
#pragma unroll 1
  for (; tile < p.tiling.tiles; tile += step) {
    wait_for_copies<kStages - 2>();
    __syncwarp();
    copy_lines(p, shared, tile + (kStages - 1) * step, own.lines[filled]);
    commit_copies();
    const Part part = {p.tiling.place(Index(tile)), Index(tile), 0, Index(p.problem.k)};
#pragma unroll 1
    for (int i = 0; i < kTileM / 16 * (kTileN / kPanel); ++i) {
      const int row = i % (kTileM / 16) * 16, column = i / (kTileM / 16) * kPanel;
      PanelSums sums;
      // The epilogue before may have parted the lanes, and has read what is staged next.
      __syncwarp();
      sums.add_products(shared_address(own.lines[stage]) + row * kLineBytes,
                        shared_address(shared.b) + column * kLineBytes);
      sums.stage(own.staged);
      __syncwarp();
      finish_rows(p, part, row, column, own.staged);
    }
    filled = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  leave_launch(p);
}
