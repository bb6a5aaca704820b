// Owns grouped fprop and dgrad of few channels a group on tensor cores: adjacent 16-bit channels.
//
//   block = some groups x tiles of pixels, one after the other       a warp: 16 pixels x kTiles of one group
//
//   shared: filters of the groups, once    x of the tile with its border (cp.async, zeros where padding)
//   for every row of the window, for every 16 of its taps x channels:
//     a = ldmatrix x (16 pixels x 16 of k)     b = ldmatrix filters (16 of k x 8 channels)     sums += a * b
//   finish: sums --> this warp's staging (pixels x channels) --> 8 channels a lane --> Y
//
// The gradient of a stride is as many convolutions of stride 1 as the window has phases: results that are
// kPhases apart meet the same taps. A block belongs to one phase of rows and one of columns.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/grouped/layout.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

// group_tiles: blocks that cover all groups; tile_columns, tile_rows: tiles of an image; width, rows: of a
// tile, numbers of results of one phase; columns: of a row as pixels are counted, more than the width where
// eight lanes then stay in one row; columns_in, lines_in: of x under a tile; images_of_tile: whole images of
// a tile, more than 1 only where each is one tile; pixels: of a tile; items: warps' shares of it;
// tiles: all; line_bytes, phase_bytes: from line to line, from phase to phase of the columns; in pairs, rows
// before columns: results, positions: extents; start: position of result 0 at tap 0 (in a strided gradient,
// times the stride); window; stored_first, stored_step: tap t is stored as stored_first + t * stored_step.

enum : int {
  kWarps = Config::warps,
  kThreads = kWarps * 32,
  kIn = Config::in,    // chunks of 8 channels of a group, in x
  kOut = Config::out,  // and in the result
  kGroups = Config::groups,
  kLines = Config::lines,
  kTaps = Config::taps,
  kStride = Config::stride,  // along columns
  kDilation = Config::dilation,
  kRowPhases = Config::row_phases,
  kColumnPhases = Config::column_phases,
  kTiles = Config::tiles,  // of 16 pixels, that a warp multiplies at once
  kStages = Config::stages,
  kStagedPitch = kOut * 8 + (kOut % 2 == 0 ? 8 : 0),
  kStagedBytes = 16 * kStagedPitch * 4,
};
using Layout = GroupedLayout<kIn, kOut, kLines, kTaps, kStride, kDilation, kGroups, bool(Config::transposed)>;

/// Results of one phase along an axis, and the taps that they meet: tap(k), k = 0, 1, ..., at neighbouring
/// positions.
template <int kPhases>
struct PhaseOfAxis {
  Index phase, first_tap, start;

  __device__ __forceinline__ PhaseOfAxis(Index phase_, Index start_of_axis) : phase(phase_) {
    const Index first = phase + start_of_axis;
    first_tap = (kPhases - first % kPhases) % kPhases;
    start = (first + first_tap) / kPhases;
  }
  __device__ __forceinline__ Index tap(int k) const { return first_tap + k * kPhases; }
  __device__ __forceinline__ Index result(Index number) const { return number * kPhases + phase; }
};

/// What a block multiplies.
struct Share {
  Index group;  // the first
  PhaseOfAxis<kRowPhases> rows;
  PhaseOfAxis<kColumnPhases> columns;
};

/// Where a tile's results begin, as numbers within their phase.
struct Tile {
  Index image, row, column;

  __device__ __forceinline__ Tile(const Params& p, Index number) {
    column = p.tile_columns.split(number) * Index(p.width);
    row = p.tile_rows.split(number) * p.rows.divisor;
    image = number * Index(p.images_of_tile);
  }
};

/// A pixel of a tile.
struct Pixel {
  Index image, row, column;

  __device__ __forceinline__ Pixel(const Params& p, Index number) {
    column = p.columns.split(number);
    row = p.rows.split(number);
    image = number;
  }
};

// ---- Copies ----

// Channels of a group that the filters count first, and chunks of those that they count second.
enum : int {
  kFilterOutputs = (Config::transposed ? kIn : kOut) * 8,
  kFilterChunks = Config::transposed ? kOut : kIn
};

/// Eight neighbours of a filter, or zeros.
template <class Site>
FUSOR_DEVICE void copy_chunk(const typename Site::Args& args, const Index (&at)[5], u32 to, bool exists) {
  if constexpr (Config::b_plain) {
    copy_async<16>(to, Site::address(args, at), exists);
  } else {
    Vec<ElementB, 8> values = {};
    if (exists) values = narrow<ElementB>(Site::template apply<8>(args, at, 8));
    Words<16> words;
    memcpy(&words, &values, 16);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.word[0]), "r"(words.word[1]),
                 "r"(words.word[2]), "r"(words.word[3])
                 : "memory");
  }
}

FUSOR_DEVICE void copy_filters(const Params& p, const Share& share, u32 filters) {
  constexpr int kAll = kGroups * kFilterOutputs * kLines * kTaps * kFilterChunks;
#pragma unroll 1
  for (int i = threadIdx.x; i < kAll; i += kThreads) {
    const int chunk = i % kFilterChunks, tap = i / kFilterChunks % (kLines * kTaps);
    const int output = i / (kFilterChunks * kLines * kTaps);
    const Index row = share.rows.tap(tap / kTaps), column = share.columns.tap(tap % kTaps);
    Index at[5] = {share.group * kFilterOutputs + output, chunk * 8, 0,
                   Index(p.stored_first[0]) + row * Index(p.stored_step[0]),
                   Index(p.stored_first[1]) + column * Index(p.stored_step[1])};
    const bool exists =
        at[0] < Index(p.groups) * kFilterOutputs && row < Index(p.window[0]) && column < Index(p.window[1]);
    const int group = output / kFilterOutputs, of_group = output % kFilterOutputs;
    const u32 to = filters + (Config::transposed ? Layout::filter(group, tap, of_group, chunk * 8)
                                                 : Layout::filter(group, tap, chunk * 8, of_group));
    if (!exists) at[0] = at[3] = at[4] = 0;
    copy_chunk<B>(p.b, at, to, exists);
  }
}

/// x under a tile, with its border: a warp copies a line, whose chunks its lanes take in turn.
FUSOR_DEVICE void copy_tile(const Params& p, const Share& share, Index number, u32 stage) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Tile tile(p, number);
  const Index first_row = tile.row * Index(p.row_stride) + share.rows.start;
  const Index first_column = tile.column * kStride + share.columns.start;
  const Index channel = share.group * (kIn * 8), channels = Index(p.groups) * (kIn * 8) - channel;
  const Index origin[5] = {}, beside[5] = {0, 0, 0, 0, 1};
  const Index pitch = Index(A::address(p.a, beside) - A::address(p.a, origin));
#pragma unroll 1
  for (Index line = warp; line < Index(p.images_of_tile) * p.lines_in.divisor; line += kWarps) {
    Index image = line;
    const Index row = first_row + p.lines_in.split(image);
    image += tile.image;
    const bool exists = image < Index(p.images) && row >= 0 && row < Index(p.positions[0]);
    const Index at[5] = {exists ? image : Index(0), channel, 0, exists ? row : Index(0), 0};
    const A::Stored* const from = A::address(p.a, at);
    const u32 end = exists ? u32(p.positions[1]) : 0, to = stage + line * int(p.line_bytes);
#pragma unroll 1
    for (int i = lane; i < int(p.columns_in) * Layout::kPixelChunks; i += 32) {
      const int chunk = i % Layout::kPixelChunks, column = i / Layout::kPixelChunks;
      const Index position = first_column + column;
      const bool inside = u32(position) < end && (kGroups == 1 || chunk * 8 < channels);
      copy_async<16>(to + Layout::column(column, int(p.phase_bytes)) + chunk * 16,
                     inside ? from + position * pitch + chunk * 8 : from, inside);
    }
  }
}

// ---- Products ----

using Sums = float[kTiles][kOut][4];

/// One step of k: of 16, or of 8 behind the last whole one.
template <bool kHalf>
FUSOR_DEVICE void multiply_step(Sums& sums, const u32 (&pixels)[kTiles], u32 offset, u32 filters) {
  u32 a[kTiles][4], b[kOut][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) load_fragment<false>(a[m], pixels[m] + offset);
#pragma unroll
  for (int j = 0; j + 1 < kOut; j += 2) {
    u32 pair[4];
    load_fragment<bool(Config::transposed)>(pair, filters + Layout::filter_block(j));
    b[j][0] = pair[0], b[j][1] = pair[1], b[j + 1][0] = pair[2], b[j + 1][1] = pair[3];
  }
  if constexpr (kOut % 2 == 1)
    load_fragment<bool(Config::transposed)>(b[kOut - 1], filters + Layout::filter_block(kOut - 1));
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int j = 0; j < kOut; ++j)
      if constexpr (kHalf)
        multiply_add_half(sums[m][j], a[m], b[j][0]);
      else
        multiply_add(sums[m][j], a[m], b[j][0], b[j][1]);
}

/// One row of the window. `filters` is this lane's place of its first step.
FUSOR_DEVICE void multiply_line(Sums& sums, const u32 (&pixels)[kTiles], const int (&met)[Layout::kSteps],
                                u32 line, u32 filters) {
#pragma unroll
  for (int step = 0; step < Layout::kSteps; ++step) {
    const u32 offset = line + met[step], at = filters + Layout::filter_step(0, step);
    if (step + 1 == Layout::kSteps && Layout::kHasHalfStep)
      multiply_step<true>(sums, pixels, offset, at);
    else
      multiply_step<false>(sums, pixels, offset, at);
  }
}

// ---- Results ----

/// The block of 16 pixels number `block` of the sums goes through the staging area. Which one is known when
/// the kernel runs, so that the epilogue's text stands once.
FUSOR_DEVICE void stage_sums(float* staged, const Sums& sums, int block, int lane) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    if (m != block) continue;
#pragma unroll
    for (int j = 0; j < kOut; ++j)
#pragma unroll
      for (int s = 0; s < 4; s += 2)
        *reinterpret_cast<Vec<float, 2>*>(staged + (lane / 4 + s * 4) * kStagedPitch + j * 8 +
                                          lane % 4 * 2) = {{sums[m][j][s], sums[m][j][s + 1]}};
  }
}

FUSOR_DEVICE void finish(const Params& p, const Share& share, const Tile& tile, Index group,
                         Index first_pixel, const float* staged, int lane) {
#pragma unroll 1
  for (int i = lane; i < 16 * kOut; i += 32) {
    const Index number = first_pixel + i / kOut;
    const int chunk = i % kOut;
    if (number >= Index(p.pixels)) continue;
    const Pixel pixel(p, number);
    if (pixel.column >= Index(p.width)) continue;
    const Index at[5] = {tile.image + pixel.image, group * (kOut * 8) + chunk * 8, 0,
                         share.rows.result(tile.row + pixel.row),
                         share.columns.result(tile.column + pixel.column)};
    if (at[0] >= Index(p.images) || at[3] >= Index(p.results[0]) || at[4] >= Index(p.results[1])) continue;
    Vec<float, 8> values;
    const float* const from = staged + i / kOut * kStagedPitch + chunk * 8;
#pragma unroll
    for (int v = 0; v < 8; ++v) values[v] = from[v];
    Y::template apply<8>(p.y, at, 8, values);
  }
}

/// This warp's shares of a tile.
FUSOR_DEVICE void multiply_tile(const Params& p, const Share& share, Index number, u32 stage, u32 filters,
                                float* staged) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Tile tile(p, number);
  int met[Layout::kSteps];
#pragma unroll
  for (int step = 0; step < Layout::kSteps; ++step)
    met[step] = Layout::met_by_lane(step, lane, int(p.phase_bytes));
#pragma unroll 1
  for (int item = warp; item < int(p.items); item += kWarps) {
    const int group = item % kGroups;
    if (share.group + group >= Index(p.groups)) continue;
    const Index first_pixel = item / kGroups * (kTiles * 16);
    u32 pixels[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const Index last = Index(p.pixels) - 1, wanted = first_pixel + m * 16 + lane % 16;
      const Pixel pixel(p, wanted < last ? wanted : last);
      const Index column = pixel.column < Index(p.width) ? pixel.column : Index(p.width) - 1;
      pixels[m] = stage +
                  (pixel.image * p.lines_in.divisor + pixel.row * Index(p.row_stride)) * int(p.line_bytes) +
                  column * Layout::kPixelBytes + group * (kIn * 16);
    }
    const u32 of_group = filters + group * Layout::kFilterBytes + Layout::filter_of_lane(lane);
    Sums sums = {};
    constexpr int kLinesInText = kLines * Layout::kSteps * kTiles * kOut <= 256 ? kLines : 1;
#pragma unroll(kLinesInText)
    for (int line = 0; line < kLines; ++line)
      multiply_line(sums, pixels, met, line * int(p.line_step), of_group + Layout::filter_step(line, 0));
#pragma unroll 1
    for (int m = 0; m < kTiles; ++m) {
      __syncwarp();
      stage_sums(staged, sums, m, lane);
      __syncwarp();
      finish(p, share, tile, share.group + group, first_pixel + m * 16, staged, lane);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    grouped(const __grid_constant__ Params p) {
  extern __shared__ Vec<u32, 4> shared[];
  enter_launch();
  Index range = block_number();
  const Index group = p.group_tiles.split(range) * kGroups;
  const Index phase = range % (kRowPhases * kColumnPhases);
  range /= kRowPhases * kColumnPhases;
  const Share share{
      group, {phase / kColumnPhases, Index(p.start[0])}, {phase % kColumnPhases, Index(p.start[1])}};
  Index tile = range * Index(p.tiles_per_block), end = tile + Index(p.tiles_per_block);
  if (end > Index(p.tiles)) end = Index(p.tiles);
  if (tile >= end) return;
  const u32 filters = shared_address(shared), stages = filters + Layout::kFiltersBytes;
  float* const staged =
      reinterpret_cast<float*>(reinterpret_cast<char*>(shared) + Layout::kFiltersBytes +
                               kStages * int(p.stage_bytes) + threadIdx.x / 32 * kStagedBytes);
  copy_filters(p, share, filters);
  copy_tile(p, share, tile, stages);
  commit_copies();
  u32 stage = stages;
#pragma unroll 1
  for (; tile < end; ++tile) {
    wait_for_copies<0>();
    __syncthreads();
    const bool more = tile + 1 < end;
    u32 next = stage;
    if constexpr (kStages == 2) {
      next = stage == stages ? stages + int(p.stage_bytes) : stages;
      if (more) copy_tile(p, share, tile + 1, next);
      commit_copies();
    }
    multiply_tile(p, share, tile, stage, filters, staged);
    if constexpr (kStages == 1) {
      __syncthreads();
      if (more) copy_tile(p, share, tile + 1, next);
      commit_copies();
    }
    stage = next;
  }
}
