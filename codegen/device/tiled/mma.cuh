// Owns the tensor-core contraction of sm_80 and later: matmul and convolutions of any layout.
//
//   8 warps, kWarpsM x kWarpsN over a tile; a block sums one tile, or one part of its steps (split k).
//   iteration k   one barrier, then
//   load          stage k + kStages - 1:  cp.async of plain vectors (zeros for padding); other elements pass
//                                         their prologue in registers, a few beside each step of products
//   compute       stage k:                ldmatrix from swizzled lines --> mma.sync, 16 x 8 blocks
//   finish        a block of each warp at a time: sums --> shared memory --> Y, or the workspace of a split
//                 split among a cluster: ... --> shared memory --> sums of all its blocks --> Y (gather.cuh)
//   shared: union of stages[kStages] {a, b} and staged sums; keys of rows[], columns[], steps[2][]
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/gather.cuh"
#include "codegen/device/tiled/part.cuh"
#include "codegen/device/tiled/swizzle.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

static constexpr int kTileK = Config::tile_k, kStages = Config::stages;
static constexpr int kBlocksPerSm = kTileElements > 128 * 128 ? 1 : 2;

// The warps of a block lie kWarpsM by kWarpsN over the tile, each on kWarpRows by kWarpColumns of it, made of
// blocks of 16 x 8.
static constexpr int kWarps = kThreads / 32;
static constexpr int kMostWarpsN = kTileN >= 128 ? 4 : kTileN / 32;
static constexpr int kWarpsM = kWarps / kMostWarpsN < kTileM / 16 ? kWarps / kMostWarpsN : kTileM / 16;
static constexpr int kWarpsN = kWarps / kWarpsM;
static constexpr int kWarpRows = kTileM / kWarpsM, kWarpColumns = kTileN / kWarpsN;
static constexpr int kRowBlocks = kWarpRows / 16, kColumnBlocks = kWarpColumns / 8;
static_assert(kRowBlocks > 0 && kColumnBlocks % 2 == 0, "a fragment of b is two blocks wide");

/// Shared by both operands' loaders: how elements reach the tile, and where they lie in it.
template <class Element_, int kExtent, int kLongest, bool kAlongK_, bool kPlain_>
struct Loading {
  using Element = Element_;
  static constexpr bool kAlongK = kAlongK_, kPlain = kPlain_;
  // ldmatrix transposes pairs of bytes only: lines of single bytes run along k.
  static constexpr bool kLinesAlongK = kAlongK || sizeof(Element) == 1;
  using Vectors = ThreadVectors<kTileK, kExtent, kLongest, kAlongK>;
  using Tile = OperandTile<kTileK, kExtent, sizeof(Element), kLinesAlongK>;
  static constexpr int kVectorBytes = Vectors::kWidth * sizeof(Element);
  static constexpr bool kVectorsInLines = kLinesAlongK == kAlongK;
  static constexpr bool kAsync = kPlain && kVectorsInLines && kVectorBytes >= 4;
  // TF32: elements copied by cp.async are rounded in fragments, all others on their way through registers.
  static constexpr bool kRoundsFragments = kTf32 && kAsync;
};

// Lines of the tile that are staged at once for the epilogue: one block of every warp, along the axis on
// which the result is adjacent. The pitch spreads the banks of the writes and aligns every vector.
static constexpr bool kAlongN = Config::y_along_n;
static constexpr int kBlockLines = kAlongN ? 16 : 8;
static constexpr int kStagedLines = kBlockLines * (kAlongN ? kWarpsM : kWarpsN);
static constexpr int kStagedPitch = kFastExtent + (kAlongN ? 8 : 4);

using LoadingA = Loading<ElementA, kTileM, Config::a_width, Config::a_along_k, Config::a_plain>;
using LoadingB = Loading<ElementB, kTileN, Config::b_width, Config::b_along_k, Config::b_plain>;

struct Stage {
  alignas(128) u8 a[LoadingA::Tile::kSize];
  alignas(128) u8 b[LoadingB::Tile::kSize];
};

struct Shared {
  union {
    Stage stages[kStages];
    alignas(16) Sum staged[kStagedLines * kStagedPitch];
  };
  Key rows[kTileM], columns[kTileN];
  Key steps[2][kTileK];
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

struct LoadA : LoadingA {
  using Site = A;
  static constexpr bool kRows = true;
  FUSOR_DEVICE const A::Args& args(const Params& p) { return p.a; }
  FUSOR_DEVICE const Key* keys(const Shared& shared) { return shared.rows; }
  FUSOR_DEVICE u8* tile(Shared& shared, int stage) { return shared.stages[stage].a; }
  FUSOR_DEVICE bool find(const Params& p, Index entry, const Key& row, const Key& step,
                         Index (&at)[A::kRank]) {
    return p.problem.first_operand(entry, row, step, at);
  }
};

struct LoadB : LoadingB {
  using Site = B;
  static constexpr bool kRows = false;
  FUSOR_DEVICE const B::Args& args(const Params& p) { return p.b; }
  FUSOR_DEVICE const Key* keys(const Shared& shared) { return shared.columns; }
  FUSOR_DEVICE u8* tile(Shared& shared, int stage) { return shared.stages[stage].b; }
  FUSOR_DEVICE bool find(const Params& p, Index entry, const Key& column, const Key& step,
                         Index (&at)[B::kRank]) {
    return p.problem.second_operand(entry, column, step, at);
  }
};

// An iteration of the mainloop multiplies kTileK steps, kMmaSteps at a time. Loads through registers happen
// in rounds between these, a few elements each, so that neither registers nor text grow with the tile.
static constexpr int kMmaSteps = 32 / sizeof(ElementA), kMmas = kTileK / kMmaSteps;
static constexpr int kItemsOfRound = 8;
template <class Load>
FUSOR_DEVICE constexpr int rounds_of() {
  return Load::kAsync || Load::Vectors::kItems < kItemsOfRound ? 1 : Load::Vectors::kItems / kItemsOfRound;
}
FUSOR_DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
static constexpr int kRounds = larger(kMmas, larger(rounds_of<LoadA>(), rounds_of<LoadB>()));
static constexpr int kRoundsOfMma = kRounds / kMmas;

/// A thread's vectors of one operand tile, on their way from global to shared memory.
template <class Load>
struct Transfer {
  using Element = typename Load::Element;
  using Vectors = typename Load::Vectors;
  using Item = Vec<Element, Vectors::kWidth>;
  static constexpr int kWidth = Vectors::kWidth;
  static constexpr int kParts = Vectors::kItems < kRounds ? Vectors::kItems : kRounds;  // one a round
  static constexpr int kItems = Load::kAsync ? 1 : Vectors::kItems / kParts;
  Item items[kItems];

  /// Starts the copies of a tile.
  __device__ void copy(const Params& p, Index entry, Shared& shared, const Key* steps, int stage) {
    if constexpr (Load::kAsync) {
      const u32 tile = shared_address(Load::tile(shared, stage));
#pragma unroll
      for (int i = 0; i < Vectors::kItems; ++i) {
        Index at[Load::Site::kRank];
        const int across = Vectors::across(i), step = Vectors::step(i);
        const bool inside = Load::find(p, entry, Load::keys(shared)[across], steps[step], at);
        copy_async<Load::kVectorBytes>(tile + Load::Tile::offset(across, step),
                                       Load::Site::address(Load::args(p), at), inside);
      }
    }
  }

  /// Elements that cp.async cannot copy: loads part `part` of a tile and applies the prologue.
  __device__ void fetch(const Params& p, Index entry, const Shared& shared, const Key* steps, int part) {
    if constexpr (!Load::kAsync) {
      if (part >= kParts) return;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        Index at[Load::Site::kRank];
        const int across = Vectors::across(part * kItems + i), step = Vectors::step(part * kItems + i);
        const bool inside = Load::find(p, entry, Load::keys(shared)[across], steps[step], at);
        items[i] = elements(Load::args(p), at, inside);
      }
    }
  }

  __device__ void stash(Shared& shared, int stage, int part) const {
    if constexpr (!Load::kAsync) {
      if (part >= kParts) return;
      u8* const tile = Load::tile(shared, stage);
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int across = Vectors::across(part * kItems + i), step = Vectors::step(part * kItems + i);
        if constexpr (Load::kVectorsInLines)
          *reinterpret_cast<Item*>(tile + Load::Tile::offset(across, step)) = items[i];
        else
#pragma unroll
          for (int v = 0; v < kWidth; ++v)
            *reinterpret_cast<Element*>(tile + Load::Tile::offset(across + v, step)) = items[i][v];
      }
    }
  }

 private:
  // A vector outside the operand reads the first one instead, without a branch, and becomes zero.
  template <class Args, int kRank>
  FUSOR_DEVICE Item elements(const Args& args, Index (&at)[kRank], bool inside) {
#pragma unroll
    for (int axis = 0; axis < kRank; ++axis) at[axis] = inside ? at[axis] : Index(0);
    Item item;
    if constexpr (Load::kPlain)
      item = load_whole<kWidth>(Load::Site::address(args, at), kWidth);
    else
      item = narrow<Element>(Load::Site::template apply<kWidth>(args, at, kWidth));
    if constexpr (kTf32)
#pragma unroll
      for (int v = 0; v < kWidth; ++v) item[v] = __uint_as_float(round_to_tf32(__float_as_uint(item[v])));
    return inside ? item : Item{};
  }
};

/// The sums of one warp.
struct WarpTile {
  Sum sum[kRowBlocks][kColumnBlocks][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
#pragma unroll
        for (int s = 0; s < 4; ++s) sum[i][j][s] = Sum(0);
  }

  /// Adds the product of kMmaSteps steps, from `step` on, of two operand tiles.
  __device__ void multiply(Shared& shared, int stage, int step) {
    u32 a[kRowBlocks][4], b[kColumnBlocks / 2][4];
    read<LoadA>(shared_address(LoadA::tile(shared, stage)), first_row(), step, a);
    read<LoadB>(shared_address(LoadB::tile(shared, stage)), first_column(), step, b);
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
        multiply_add(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }

  /// Writes block number `pass` of this warp to the staging area. A chain of branches, so that sums have
  /// compile-time indices while the epilogue's text stands once.
  template <int kPass = 0>
  __device__ void stage(Sum* staged, int pass) const {
    if constexpr (kPass < kPasses) {
      if (pass == kPass)
        stage_pass<kPass>(staged);
      else
        stage<kPass + 1>(staged, pass);
    }
  }

  static constexpr int kPasses = kAlongN ? kRowBlocks : kColumnBlocks;

 private:
  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
  FUSOR_DEVICE int warp_m() { return threadIdx.x / 32 / kWarpsN; }
  FUSOR_DEVICE int warp_n() { return threadIdx.x / 32 % kWarpsN; }
  FUSOR_DEVICE int first_row() { return warp_m() * kWarpRows; }
  FUSOR_DEVICE int first_column() { return warp_n() * kWarpColumns; }

  template <class Load, int kFragments>
  FUSOR_DEVICE void read(u32 tile, int first, int step, u32 (&fragments)[kFragments][4]) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      if constexpr (Load::Tile::kByElement) {
#pragma unroll
        for (int number = 0; number < 4; ++number)
          fragments[i][number] = load_shared(
              tile + Load::Tile::template element<Load::kRows>(lane(), number, first + 16 * i, step));
      } else {
        load_fragment<!Load::kLinesAlongK>(
            fragments[i], tile + Load::Tile::template fragment<Load::kRows>(lane(), first + 16 * i, step));
      }
      if constexpr (Load::kRoundsFragments)
#pragma unroll
        for (int number = 0; number < 4; ++number) fragments[i][number] = round_to_tf32(fragments[i][number]);
    }
  }

  template <int kPass>
  __device__ void stage_pass(Sum* staged) const {
    if constexpr (kAlongN) {
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
          const int line = warp_m() * 16 + sum_row(lane(), s);
          const int at = first_column() + 8 * j + sum_column(lane(), s);
          *reinterpret_cast<Vec<Sum, 2>*>(staged + line * kStagedPitch +
                                          at) = {{sum[kPass][j][s], sum[kPass][j][s + 1]}};
        }
    } else {
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const int line = warp_n() * 8 + sum_column(lane(), s);
          const int at = first_row() + 16 * i + sum_row(lane(), s);
          staged[line * kStagedPitch + at] = sum[i][kPass][s];
        }
    }
  }
};

/// Sums the part's steps of its tile. The first kStages iterations fill the pipeline: keys are one iteration
/// ahead of loads, loads kStages - 1 ahead of products. After the one barrier of an iteration, its tiles have
/// landed and nobody reads the stage that is filled next.
FUSOR_DEVICE void sum_tile(const Params& p, const Part& part, Shared& shared, WarpTile& warp_tile) {
  // The widest tile has products enough in two steps to cover the reads of the next, and compiles in less
  // time.
  constexpr int kStepsInText = kRowBlocks * kColumnBlocks > 16 ? 2 : kMmas;
  write_tile_keys(p.problem, part.place, shared.rows, shared.columns);
  const Index entry = part.place.entry;
  Transfer<LoadA> a;
  Transfer<LoadB> b;
  int stage = 0, filled = kStages - 1, turn = 0;
#pragma unroll 1
  for (Index k = part.begin - kStages * kTileK; k < part.end; k += kTileK) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const Index next = k + (kStages - 1) * kTileK;
    const bool fetches = next >= part.begin && next < part.end;
    const Key* const steps = shared.steps[turn];
    if (fetches) {
      a.copy(p, entry, shared, steps, filled);
      b.copy(p, entry, shared, steps, filled);
    }
    commit_copies();
    write_step_keys<kTileK>(p.problem, next + kTileK, part.end, shared.steps[turn ^ 1]);
    const bool multiplies = k >= part.begin;
    if constexpr (LoadA::kAsync && LoadB::kAsync) {
      if (multiplies)
#pragma unroll(kStepsInText)
        for (int step = 0; step < kTileK; step += kMmaSteps) warp_tile.multiply(shared, stage, step);
    } else {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        if (fetches) {
          a.fetch(p, entry, shared, steps, round);
          b.fetch(p, entry, shared, steps, round);
        }
        if (multiplies && round % kRoundsOfMma == 0)
          warp_tile.multiply(shared, stage, round / kRoundsOfMma * kMmaSteps);
        if (fetches) {
          a.stash(shared, filled, round);
          b.stash(shared, filled, round);
        }
      }
    }
    turn ^= 1;
    filled = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

FUSOR_DEVICE void meet_blocks() {
  if constexpr (kBlocks > 1) {
    __syncwarp();
    synchronise_cluster();
  } else {
    __syncthreads();
  }
}

/// Stages the sums and applies the epilogue, block by block of every warp. Blocks that share a tile share out
/// its vectors.
FUSOR_DEVICE void finish(const Params& p, const Part& part, Shared& shared, const WarpTile& warp_tile) {
  constexpr int kVectors = kFastExtent / kFinishWidth;  // of a line
  constexpr int kWarpLines = kAlongN ? kWarpRows : kWarpColumns;
  const int first = kBlocks > 1 ? int(cluster_rank()) * kThreads + threadIdx.x : threadIdx.x;
#pragma unroll 1
  for (int pass = 0; pass < WarpTile::kPasses; ++pass) {
    meet_blocks();
    warp_tile.stage(shared.staged, pass);
    meet_blocks();
#pragma unroll 1
    for (int i = first; i < kStagedLines * kVectors; i += kBlocks * kThreads) {
      const int line = i / kVectors, along = i % kVectors * kFinishWidth;
      const int slow = line / kBlockLines * kWarpLines + pass * kBlockLines + line % kBlockLines;
      const Sum* const staged = shared.staged + line * kStagedPitch + along;
      if constexpr (kBlocks > 1) {
        const Vec<Sum, kFinishWidth> sums = sum_of_blocks<kFinishWidth>(staged);
        finish_vector(p, part, slow * kFastExtent + along, &sums[0]);
      } else {
        finish_vector(p, part, slow * kFastExtent + along, staged);
      }
    }
  }
  // Nobody leaves whose sums others still read.
  if constexpr (kBlocks > 1) meet_blocks();
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) mma(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  wait_for_launch_before();
  let_next_launch_begin();
  const Part part = part_of_block(p);
  if (part.is_none()) return;
  WarpTile warp_tile;
  warp_tile.clear();
  sum_tile(p, part, shared, warp_tile);
  finish(p, part, shared, warp_tile);
}
