// Owns the first kernel of depthwise wgrad on tensor cores: adjacent 16-bit channels, strides of 1.
//
//   4 warps = kGroups (groups of 8 channels) x kLanes; a warp takes two octets down the rows of x
//
//   shared: kStages rows (octets.cuh)   row i + 7: in flight (cp.async, zeros where padding)  ...  row i
//   ring[kLines]: the rows of dy that row i of x meets, that of the first tap first, as fragments of mma
//   sums[pair of taps][line] += x row i at two neighbouring taps * ring[line]         all in registers
//   partials[part][tap][channel]  --> depthwise/finish.cuh; a part is one lane of one block
//
// Blocks share out the rows of x of all octets evenly: a block has a few runs of rows, each down one image.
// Before the first row of a run come those rows of dy alone that it meets besides its last one.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/row_copies.cuh"

// octets: of a row of results; height: rows of x of an image; tiles: blocks that cover all groups; rows: of
// x, of all images, where octets that a block multiplies at once have one; columns: octets of all images;
// groups: all; start_row, start: position of result 0 at tap 0.

enum : int {
  kThreads = 128,
  kTaps = Config::taps,    // of a row of the window
  kLines = Config::lines,  // rows of the window
  kGroups = Config::groups,
  kLanes = kThreads / 32 / kGroups,
  kPairs = (kTaps + 1) / 2,
  kStages = 8,
};
using Row = OctetRow<kTaps, kGroups, kLanes>;

/// Rows of x of the same octets, and rows of dy in front of them. `turn` counts the octets, as many as a
/// block multiplies at once.
struct RowRun {
  Index turn, first_row, rows, lead;

  /// From the row number `at` on.
  __device__ __forceinline__ RowRun(const Params& p, Index at, Index end) {
    turn = at;
    first_row = p.height.split(turn);
    rows = p.height.divisor - first_row;
    if (rows > end - at) rows = end - at;
    // Those above the image are zeros.
    lead = first_row - Index(p.start_row);
    lead = lead < 0 ? Index(0) : lead < kLines - 1 ? lead : Index(kLines - 1);
  }
};

/// What a thread copies, row after row, run after run.
struct Producer {
  const Params& p;
  const Index channel, end;
  Index at;          // the first row of the next run
  Index step, last;  // of the run under way: rows of dy, of which those from 0 on come with one of x
  ChunkOfRows<A> results;
  ChunkOfRows<B> pixels;

  __device__ __forceinline__ Producer(const Params& p_, Index tile, Index begin, Index end_)
      : p(p_),
        channel((tile * kGroups + threadIdx.x % kGroups) * 8),
        end(end_),
        at(begin),
        step(0),
        last(0) {}
  __device__ __forceinline__ void begin_run() {
    const RowRun run(p, at, end);
    const bool has_channel = channel < Index(p.groups) * 8;
    const auto of_results = Row::chunk<true>(threadIdx.x);
    const Octet there(p, run.turn * Row::kOctets + of_results.octet);
    const Index result = there.first + of_results.pixel;
    results.begin(p.a, there.image, channel, result, run.first_row - run.lead - Index(p.start_row),
                  has_channel && there.exists && result < Index(p.results));
    const auto of_pixels = Row::chunk<false>(threadIdx.x);
    const Octet octet(p, run.turn * Row::kOctets + of_pixels.octet);
    const Index position = octet.first + of_pixels.pixel + Index(p.start);
    pixels.begin(p.b, octet.image, channel, position, run.first_row,
                 has_channel && octet.exists && position >= 0 && position < Index(p.positions));
    step = -run.lead;
    last = run.rows;
    at += run.rows;
  }
  /// Copies the next row to the stage that begins at `stage`, if there is one.
  __device__ __forceinline__ void copy_row(u32 stage) {
    if (step == last && at < end) begin_run();
    if (step < last) {
      if (threadIdx.x < Row::kResultChunks)
        results.copy(stage + Row::offset<true>(Row::chunk<true>(threadIdx.x)), Index(p.result_rows),
                     ChunkOfRows<A>::pitch(p.a));
      ++results.row;
      if (step >= 0) {
        if (threadIdx.x < Row::kChunks)
          pixels.copy(stage + Row::offset<false>(Row::chunk<false>(threadIdx.x)), p.height.divisor,
                      ChunkOfRows<B>::pitch(p.b));
        ++pixels.row;
      }
      ++step;
    }
    commit_copies();
  }
};

static_assert(Row::kChunks <= kThreads && Row::kResultChunks <= kThreads, "a chunk a thread");

/// Fragments of rows of dy, the youngest one first.
using Ring = u32[kLines][2];
using Sums = float[kPairs][kLines][4];

FUSOR_DEVICE void take_results(Ring& ring, u32 line) {
#pragma unroll
  for (int age = kLines - 1; age > 0; --age)
#pragma unroll
    for (int half = 0; half < 2; ++half) ring[age][half] = ring[age - 1][half];
  load_fragment(ring[0], line);
}

FUSOR_DEVICE void add_row(Sums& sums, const Ring& ring, u32 line) {
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    u32 columns[4];
    load_fragment<true>(columns, line + pair * 32);
#pragma unroll
    for (int age = 0; age < kLines; ++age) multiply_add(sums[pair][age], columns, ring[age][0], ring[age][1]);
  }
}

FUSOR_DEVICE void write_part(const Params& p, Index part, Index group, int lane, const Sums& sums) {
  if (group >= Index(p.groups) || !Row::has_gradients(lane)) return;
  const i64 channels = p.groups * 8;
  const int channel = Row::channel(lane);
  float* const to = p.partials + i64(part) * (kLines * kTaps) * channels + group * 8 + channel;
#pragma unroll
  for (int line = 0; line < kLines; ++line)
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const float(&of_tap)[4] = sums[tap / 2][line];
      to[(line * kTaps + tap) * channels] = channel % 2 == 0 ? of_tap[tap % 2 * 2] : of_tap[tap % 2 * 2 + 1];
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise_mma_wgrad(const __grid_constant__ Params p) {
  __shared__ Vec<u32, 4> shared[kStages * Row::kBytes / 16];
  enter_launch();
  Index range = block_number();
  const Index tile = p.tiles.split(range);
  Index at = range * Index(p.rows_per_block);
  Index end = at + Index(p.rows_per_block);
  if (end > Index(p.rows)) end = Index(p.rows);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 stages = shared_address(shared), stages_end = stages + kStages * Row::kBytes;
  Producer producer(p, tile, at, end);
#pragma unroll 1
  for (u32 stage = stages; stage < stages_end - Row::kBytes; stage += Row::kBytes) producer.copy_row(stage);
  u32 stage = stages, free_stage = stages_end - Row::kBytes;
  // The next row is there, and all warps have read the one before it: its stage is free.
  const auto next_row = [&] {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    producer.copy_row(free_stage);
    free_stage = stage;
    const u32 row = stage;
    stage = stage + Row::kBytes == stages_end ? stages : stage + Row::kBytes;
    return row;
  };
  const u32 results = Row::results(warp, lane), columns = Row::columns(warp, lane);
  Sums sums = {};
#pragma unroll 1
  while (at < end) {
    const RowRun run(p, at, end);
    Ring ring = {};
#pragma unroll 1
    for (Index step = 0; step < run.lead; ++step) take_results(ring, next_row() + results);
#pragma unroll 1
    for (Index step = 0; step < run.rows; ++step) {
      const u32 row = next_row();
      take_results(ring, row + results);
      add_row(sums, ring, row + columns);
    }
    at += run.rows;
  }
  wait_for_copies<0>();
  write_part(p, range * kLanes + warp / kGroups, tile * kGroups + warp % kGroups, lane, sums);
}
