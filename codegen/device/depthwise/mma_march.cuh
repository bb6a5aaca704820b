// Owns depthwise fprop and dgrad on tensor cores: adjacent 16-bit channels, strides and dilations of 1.
//
//   4 warps = kGroups (groups of 8 channels) x kLanes; a warp takes two octets down the rows, two at a step
//
//   shared: kStages pairs of rows of x (octets.cuh)      in flight (cp.async, zeros where padding)  ...  step
//   filters[line][tap]      8 channels on a diagonal, as fragments of mma         all in registers
//   sums[kRing rows of results][16 pixels x 8 channels] += x at two taps * their filters
//
//   sums        0           1           ...           kLines - 1    kLines
//   x row 0     last line   ...                       first line    -
//   x row 1     -           last line   ...                         first line
//
//   two taps of a row at a time; the last of an odd number in both rows at once
//
//   sums 0 and 1 are complete --> lanes of a quad trade --> Y, a pixel's 8 channels a lane; the ring moves on
//
// Blocks share out runs: rows of results of two octets, a part of an image high.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/base/quads.cuh"
#include "codegen/device/depthwise/row_copies.cuh"

// octets: of a row of results; parts: of an image; tiles: blocks that cover all groups; runs: all, of octets
// that a block multiplies at once; steps: of a run, pairs of rows of results; pairs: of an image; columns:
// octets of all images; groups: all; start_row, start: position of the first result at tap 0, start_row one
// less where the number of lines is even.

enum : int {
  kThreads = 128,
  kTaps = Config::taps,    // of a row of the window
  kLines = Config::lines,  // rows of the window
  kGroups = Config::groups,
  kLanes = kThreads / 32 / kGroups,
  kRing = kLines + 1,
  kLead = kLines / 2,  // steps before the first row of results is complete
  kStages = 6,
};
using Rows = OctetRowPair<kTaps, kGroups, kLanes>;
using Row = Rows::Row;
static_assert(Row::kChunks <= kThreads, "a chunk a thread");

/// The steps of a run: [begin, end), of which those before `filled` have rows of x.
struct RowRun {
  Index turn, pair;  // of the first results
  Index position;    // of step 0
  Index begin, filled, end;

  __device__ __forceinline__ RowRun(const Params& p, Index number) {
    turn = number;
    pair = p.parts.split(turn) * Index(p.steps);
    end = Index(p.pairs) - pair;
    if (end > Index(p.steps)) end = Index(p.steps);
    end += kLead;
    position = 2 * pair + Index(p.start_row);
    // Sums stay zero until there are rows.
    begin = position < 0 ? -position / 2 : 0;
    if (begin > kLead) begin = kLead;
    filled = (Index(p.rows) - position + 1) / 2;
    filled = filled < begin ? begin : filled < end ? filled : end;
  }
};

/// What a thread copies, step after step, run after run.
struct Producer {
  const Params& p;
  const Index channel, end;
  Index run;         // the next one
  Index step, last;  // of the run under way
  ChunkOfRows<A> pixels;

  __device__ __forceinline__ Producer(const Params& p_, Index tile, Index begin, Index end_)
      : p(p_),
        channel((tile * kGroups + threadIdx.x % kGroups) * 8),
        end(end_),
        run(begin),
        step(0),
        last(0) {}
  __device__ __forceinline__ void begin_run() {
    const RowRun next(p, run++);
    const auto chunk = Row::chunk<false>(threadIdx.x);
    const Octet octet(p, next.turn * Row::kOctets + chunk.octet);
    const Index position = octet.first + chunk.pixel + Index(p.start);
    pixels.begin(
        p.a, octet.image, channel, position, next.position + 2 * next.begin,
        channel < Index(p.groups) * 8 && octet.exists && position >= 0 && position < Index(p.positions));
    step = next.begin;
    last = next.filled;
  }
  /// Copies the next pair of rows to the stage that begins at `stage`, if there is one.
  __device__ __forceinline__ void copy_rows(u32 stage) {
    while (step == last && run < end) begin_run();
    if (step < last) {
      if (threadIdx.x < Row::kChunks) {
        const u32 to = stage + Row::offset<false>(Row::chunk<false>(threadIdx.x));
        const Index pitch = ChunkOfRows<A>::pitch(p.a);
        pixels.copy(to, Index(p.rows), pitch);
        ++pixels.row;
        pixels.copy(to + Rows::kRowBytes, Index(p.rows), pitch);
        ++pixels.row;
      }
      ++step;
    }
    commit_copies();
  }
};

/// Diagonals of 8 channels.
using Filters = u32[kLines][kTaps];
/// Rows of results; the next one to be finished is the first.
using Sums = float[kRing][4];

FUSOR_DEVICE void load_filters(const B::Args& args, Index group, int lane, Filters& filters) {
  const int channel = Rows::channel(lane);
  const bool has = Rows::has_filters(lane);
#pragma unroll
  for (int line = 0; line < kLines; ++line)
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const Index at[5] = {group * 8 + channel, 0, 0, Config::mirrored_lines ? kLines - 1 - line : line,
                           Config::mirrored ? kTaps - 1 - tap : tap};
      Words<2> word;
      load_words(B::address(args, at), word);
      filters[line][tap] = has ? u32(word.word) << (channel % 2 * 16) : 0;
    }
}

/// Pairs of taps of one row of x.
FUSOR_DEVICE void add_row(Sums& sums, const Filters& filters, int row, u32 line) {
#pragma unroll
  for (int tap = 0; tap + 1 < kTaps; tap += 2) {
    u32 pixels[4];
    load_fragment<false>(pixels, line + tap * 16);
#pragma unroll
    for (int r = 0; r < kLines; ++r) {
      const auto& taps = filters[kLines - 1 - r];
      multiply_add(sums[r + row], pixels, taps[tap], taps[tap + 1]);
    }
  }
}

/// The last of an odd number of taps, of both rows of x.
FUSOR_DEVICE void add_last_tap(Sums& sums, const Filters& filters, u32 line) {
  u32 pixels[4];
  load_fragment<false>(pixels, line);
#pragma unroll
  for (int r = 0; r < kRing; ++r)
    multiply_add(sums[r], pixels, r < kLines ? filters[kLines - 1 - r][kTaps - 1] : 0,
                 r > 0 ? filters[kLines - r][kTaps - 1] : 0);
}

FUSOR_DEVICE void add_rows(Sums& sums, const Filters& filters, u32 across, u32 down) {
#pragma unroll
  for (int row = 0; row < 2; ++row) add_row(sums, filters, row, across + row * Rows::kRowBytes);
  if constexpr (kTaps % 2 == 1) add_last_tap(sums, filters, down);
}

/// Two rows of results leave the ring. In front of products, which write their sums where they belong, it
/// moves nothing.
FUSOR_DEVICE void shift(Sums& sums) {
#pragma unroll
  for (int r = 0; r < kRing; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[r][i] = r + 2 < kRing ? sums[r + 2][i] : 0.0f;
}

/// Where a lane stores: one pixel of one of two rows.
struct Results {
  Index at[5];
  bool exists;

  __device__ __forceinline__ Results(const Params& p, const RowRun& run, int warp, int lane, Index group) {
    const Octet octet(p, run.turn * Row::kOctets + warp / kGroups * 2 + lane % 2);
    at[0] = octet.image;
    at[1] = group * 8;
    at[2] = 0;
    at[3] = 2 * run.pair + lane / 2 % 2;
    at[4] = octet.first + lane / 4;
    exists = octet.exists && group < Index(p.groups) && at[4] < Index(p.results);
  }
  __device__ __forceinline__ void store(const Params& p, const Sums& sums) {
    const float pixels[4][2] = {{sums[0][0], sums[0][1]},
                                {sums[0][2], sums[0][3]},
                                {sums[1][0], sums[1][1]},
                                {sums[1][2], sums[1][3]}};
    const Vec<float, 8> channels = gather_block(pixels);
    if (exists && at[3] < Index(p.result_rows)) Y::apply<8>(p.y, at, 8, channels);
    at[3] += 2;
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise_mma_march(const __grid_constant__ Params p) {
  __shared__ Vec<u32, 4> shared[kStages * Rows::kBytes / 16];
  enter_launch();
  Index range = block_number();
  const Index tile = p.tiles.split(range);
  const Index begin = range * Index(p.runs_per_block);
  Index end = begin + Index(p.runs_per_block);
  if (end > Index(p.runs)) end = Index(p.runs);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 stages = shared_address(shared), stages_end = stages + kStages * Rows::kBytes;
  Producer producer(p, tile, begin, end);
#pragma unroll 1
  for (u32 stage = stages; stage < stages_end - Rows::kBytes; stage += Rows::kBytes)
    producer.copy_rows(stage);
  u32 stage = stages, free_stage = stages_end - Rows::kBytes;
  // The next rows are there, and all warps have read those before them: their stage is free.
  const auto next_rows = [&] {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    producer.copy_rows(free_stage);
    free_stage = stage;
    const u32 rows = stage;
    stage = stage + Rows::kBytes == stages_end ? stages : stage + Rows::kBytes;
    return rows;
  };
  const Index group = tile * kGroups + warp % kGroups;
  Filters filters;
  load_filters(p.b, group < Index(p.groups) ? group : Index(0), lane, filters);
  u32 across = Rows::across(warp, lane), down = Rows::down(warp, lane);
  // Numbers of this thread: else the compiler computes them anew in every step.
  asm("" : "+r"(across), "+r"(down));
#pragma unroll 1
  for (Index number = begin; number < end; ++number) {
    const RowRun run(p, number);
    Results results(p, run, warp, lane, group);
    Sums sums = {};
    Index step = run.begin;
#pragma unroll 1
    for (; step < run.filled; ++step) {
      const u32 rows = next_rows();
      shift(sums);
      add_rows(sums, filters, rows + across, rows + down);
      if (step >= kLead) results.store(p, sums);
    }
    // A loop of its own: where paths meet, sums would be moved.
#pragma unroll 1
    for (; step < run.end; ++step) {
      shift(sums);
      if (step >= kLead) results.store(p, sums);
    }
  }
  wait_for_copies<0>();
}
