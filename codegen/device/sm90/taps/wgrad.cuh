// Owns the weight gradient in TF32 of a convolution whose channels are planes (NCHW), on sm_90a.
//
//   warpgroup 0, thread 0                      consumers: 2 or 3 warpgroups, kTaps neighbouring taps each
//   dy, 32 positions    -- of_outputs.full -->  b operand: wgmma reads swizzled lines along positions
//   x, piece of 64 and  -- of_inputs.full --->  a operand: 8 positions at every tap --> registers, zeros
//   what taps reach     <- empty of both -----  where a tap leaves its row, while the 8 before are multiplied
//   finish: sums of the block's steps --> partials[part][tile] --> split_finish
//
//   Rows of the product are 64 input channels, columns filters; one tile and one part of the steps a block.
//   shared: outputs[Config::stages] | inputs[Config::pieces], lines of an odd number of 16 bytes | barriers
#include "fusor_generated.cuh"

#include "codegen/device/sm90/pipeline/roles.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"
#include "codegen/device/sm90/ptx/wgmma.cuh"
#include "codegen/device/sm90/taps/tap_walk.cuh"

enum : int {
  kConsumers = Config::consumers,
  kChannels = 64,  // of a block: rows of the product
  kFilters = Config::tile_n,
  kWindowH = Config::window_h,
  kWindowW = Config::window_w,
  kWindow = kWindowH * kWindowW,
  kTaps = Config::taps,
  kTapStep = Config::tap_step,  // of a consumer; from one to the next
  kConsumersOfRow = (kWindowW + kTaps - 1) / kTaps,
};
static_assert(kConsumersOfRow * kWindowH == kConsumers, "every tap has its consumer");
// Whether steps reach beyond the plane's end.
enum : bool { kTail = Config::tail };

// Lines of positions: of a filter, swizzled; of a channel, an odd number of 16 bytes, so that no two lanes of
// a load meet in a bank.
enum : int {
  kLineBytes = kStepPositions * 4,
  kInputLineBytes = Config::piece_line * 4,
  kOutputBytes = kFilters * kLineBytes,
  kInputBytes = kChannels * kInputLineBytes,
};
static_assert(Config::piece_line % 8 == 4, "lines begin 4 banks apart, or 12, 20, 28");
static_assert(Config::piece_line >= kPiecePositions + kEight - 1 + (kTaps - 1) * kTapStep,
              "what eight outputs meet lies in one piece");

// dy, x: (position, channel, image); blocks_n, blocks_m: of 64 input channels, and of filters, of a group;
// input_channels, filters: of a group; partials: [part][tile][input channel and tap][filter].

// ---- Shared memory ----

template <int kPlaces>
struct Ring {
  Barrier full[kPlaces], empty[kPlaces];

  __device__ void init() {
    for (int i = 0; i < kPlaces; ++i) {
      full[i].init(1);
      empty[i].init(kConsumers * kWarpgroup / 32);
    }
  }
  // Called by every consumer warp that needs the place no more.
  __device__ void release(int place) {
    if (threadIdx.x % 32 == 0) empty[place].arrive();
  }
};

// A place of a ring, and the parity of its barriers.
template <int kPlaces>
struct RingPlace {
  int place = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++place < kPlaces) return;
    place = 0;
    parity ^= 1;
  }
};

struct Shared {
  alignas(1024) u8 outputs[Config::stages][kOutputBytes];
  alignas(128) u8 inputs[Config::pieces][kInputBytes];
  Ring<Config::stages> of_outputs;
  Ring<Config::pieces> of_inputs;
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

// ---- Blocks ----

// The work of a block: filters and input channels of a group, and a range of steps.
struct Item {
  int filter, channel;  // of all groups
  int begin, end;

  __device__ explicit Item(const Params& p) {
    const int part = static_cast<int>(blockIdx.x) / static_cast<int>(p.tiles);
    Index rest = static_cast<Index>(blockIdx.x) - static_cast<Index>(part) * static_cast<Index>(p.tiles);
    const int n = static_cast<int>(p.blocks_n.split(rest)), m = static_cast<int>(p.blocks_m.split(rest));
    const int group = static_cast<int>(rest);
    filter = group * static_cast<int>(p.filters) + m * kFilters;
    channel = group * static_cast<int>(p.input_channels) + n * kChannels;
    begin = p.walk.first_step(part);
    end = p.walk.first_step(part + 1);
  }
};

// ---- Load ----

FUSOR_DEVICE void load_steps(const Params& p, Shared& shared) {
  const Item item(p);
  RingPlace<Config::stages> output;
  RingPlace<Config::pieces> input;
  for (int begin = item.begin; begin < item.end;) {
    const StepRun run = p.walk.run(begin, item.end);
    begin += run.last - run.first;
    int piece = p.walk.first_piece(run.first);
#pragma unroll 1
    for (int step = run.first; step < run.last; ++step) {
      for (; piece <= p.walk.last_piece(step); ++piece) {
        Barrier& full = shared.of_inputs.full[input.place];
        shared.of_inputs.empty[input.place].wait(input.parity ^ 1);
        full.arrive_and_expect(kInputBytes);
        copy_box(shared.inputs[input.place], p.x, full, p.walk.piece_begins(piece), item.channel, run.image);
        input.advance();
      }
      Barrier& full = shared.of_outputs.full[output.place];
      shared.of_outputs.empty[output.place].wait(output.parity ^ 1);
      full.arrive_and_expect(kOutputBytes);
      copy_box(shared.outputs[output.place], p.dy, full, step * kStepPositions, item.filter, run.image);
      output.advance();
    }
  }
}

// ---- Compute ----

// The inputs of a thread that eight outputs meet at every tap of its consumer, as Wgmma wants
// them. `left`: outputs of the plane from the thread's first of the eight on.
FUSOR_DEVICE void load_eight(u32 (&inputs)[kTaps][4], const u8* from, const OutputColumns& columns,
                             int further, u32 width, int left) {
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bool meets = true;
      if constexpr (kTail) meets = 4 * i < left;
      if (Config::masked >> tap & 1) meets = meets && columns.meets(i, further + tap * kTapStep, width);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u8* const at = from + half * 8 * kInputLineBytes + (4 * i + tap * kTapStep) * 4;
        const u32 input = *reinterpret_cast<const u32*>(at);
        inputs[tap][2 * i + half] = meets ? input : 0;
      }
    }
}

template <int kTap = 0>
FUSOR_DEVICE void issue_taps(const u32 (&inputs)[kTaps][4], u64 outputs) {
  Wgmma<kFilters, float, float, 0, 0>::issue<kTap>(inputs[kTap], outputs, 1);
  if constexpr (kTap + 1 < kTaps) issue_taps<kTap + 1>(inputs, outputs);
}

template <int kTap = 0>
FUSOR_DEVICE void clear_taps() {
  clear_sums<kTap, kFilters>();
  if constexpr (kTap + 1 < kTaps) clear_taps<kTap + 1>();
}

// The sums of a thread to the block's part: neighbouring filters side by side.
template <int kTap = 0>
FUSOR_DEVICE void store_taps(float* part, int consumer) {
  const int lane = threadIdx.x % 32, channel = threadIdx.x % kWarpgroup / 32 * 16 + lane / 4;
  int row = consumer / kConsumersOfRow, column = consumer % kConsumersOfRow * kTaps + kTap;
  float sums[kFilters / 2];
  read_sums<kTap, kFilters>(sums);
  if (column < kWindowW) {
    if (Config::mirrored_h) row = kWindowH - 1 - row;
    if (Config::mirrored_w) column = kWindowW - 1 - column;
    float* const of_tap = part + (channel * kWindow + row * kWindowW + column) * kFilters + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kFilters / 4; ++j) {
      const Vec<float, 2> pair{{sums[2 * j], sums[2 * j + 1]}};
      *reinterpret_cast<Vec<float, 2>*>(of_tap + j % 2 * 8 * kWindow * kFilters + j / 2 * 8) = pair;
    }
  }
  if constexpr (kTap + 1 < kTaps) store_taps<kTap + 1>(part, consumer);
}

FUSOR_DEVICE void sum_taps(const Params& p, Shared& shared, int consumer) {
  const Item item(p);
  const int lane = threadIdx.x % 32, first = static_cast<int>(p.consumers[consumer].first);
  const int further = static_cast<int>(p.consumers[consumer].column);
  const u32 width = static_cast<u32>(p.walk.width);
  const u8* const inputs_of_thread =
      shared.inputs[0] + (threadIdx.x % kWarpgroup / 32 * 16 + lane / 4) * kInputLineBytes + lane % 4 * 4;
  RingPlace<Config::stages> output;
  RingPlace<Config::pieces> input, freed;  // pieces that have arrived; that are read no more
  u32 inputs[2][kTaps][4];
  int previous = -1;
  clear_taps();
  for (int begin = item.begin; begin < item.end;) {
    const StepRun run = p.walk.run(begin, item.end);
    begin += run.last - run.first;
    int come = p.walk.first_piece(run.first), kept = come;
    InputPlace<Config::pieces> place;
    place.begin(run.first * kStepPositions + first, come, input.place);
    OutputColumns columns;
    columns.begin(p.walk, run.first * kStepPositions + lane % 4);
#pragma unroll 1
    for (int step = run.first; step < run.last; ++step) {
      for (; come <= p.walk.last_piece(step); ++come, input.advance())
        shared.of_inputs.full[input.place].wait(input.parity);
      shared.of_outputs.full[output.place].wait(output.parity);
      const u64 outputs = wgmma_descriptor(shared_address(shared.outputs[output.place]), 16, 1024);
      const int halves = p.walk.halves(step);
      int left = static_cast<int>(p.walk.positions) - step * kStepPositions - lane % 4;
#pragma unroll 1
      for (int half = 0; half < halves; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // wgmma has read the registers of the eight before the last.
          wgmma_wait<1>();
          load_eight(inputs[i], inputs_of_thread + place.place * kInputBytes + place.offset * 4, columns,
                     further, width, left);
          wgmma_fence();
          issue_taps(inputs[i], outputs + (half * 2 + i) * (kEight * 4 >> 4));
          wgmma_commit();
          place.advance();
          columns.advance();
          left -= kEight;
        }
        if (half == 0 && previous >= 0) shared.of_outputs.release(previous);
      }
      previous = output.place;
      output.advance();
      // Registers hold what the last wgmma reads.
      const int needed = step + 1 < run.last ? p.walk.first_piece(step + 1) : come;
      for (; kept < needed; ++kept, freed.advance()) shared.of_inputs.release(freed.place);
    }
  }
  wgmma_wait<0>();
  store_taps(p.partials + static_cast<i64>(blockIdx.x) * (kChannels * kWindow * kFilters), consumer);
}

struct TapsWgrad {
  using Shared = ::Shared;
  enum : int { kLoaders = 1, kConsumers = ::kConsumers, kLoaderRegisters = 32, kClusterBlocks = 1 };
  enum : bool { kLoadsAhead = false, kMeetsAtEnd = false };
  FUSOR_DEVICE void init(const Params&, Shared& shared) {
    shared.of_outputs.init();
    shared.of_inputs.init();
  }
  FUSOR_DEVICE void prefetch(const Params& p) {
    prefetch_map(p.dy);
    prefetch_map(p.x);
  }
  FUSOR_DEVICE void clear(Shared&) {}
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    if (threadIdx.x == 0) load_steps(p, shared);
  }
  FUSOR_DEVICE void consume(const Params& p, Shared& shared, int consumer) { sum_taps(p, shared, consumer); }
};

extern "C" __global__ void __launch_bounds__(kThreadsOf<TapsWgrad>, 1)
    wgmma_taps(const __grid_constant__ Params p) {
  declare_sums<kTaps>();
  run_roles<TapsWgrad>(p);
}
