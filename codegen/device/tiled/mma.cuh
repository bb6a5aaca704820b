// Owns the tensor-core contraction of sm_80 and later: matmul and convolutions of any layout.
//
//   8 warps, kWarpsM x kWarpsN over a tile; a block sums one tile, or one part of its steps (split k).
//   iteration k   one barrier, then
//   load          stage k + kStages - 1:  cp.async of plain vectors (zeros for padding); other elements pass
//                                         their prologue in registers, a few beside each step of products
//   compute       stage k:                ldmatrix from swizzled lines --> mma.sync, 16 x 8 blocks
//   fp32          elements become three bf16 on their way; six products of these, the small ones in sums of
//                 their own. A stage with a number that has no parts, and a tile whose sums are not finite,
//                 is summed on the CUDA cores
//   finish        a block of each warp at a time: sums --> shared memory --> Y, or the workspace of a split
//                 split among a cluster: ... --> shared memory --> sums of all its blocks --> Y (gather.cuh)
//   shared: union of stages[kStages] {a, b} and staged sums; keys of rows[], columns[], steps[2 or 3][]
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/gather.cuh"
#include "codegen/device/tiled/part.cuh"
#include "codegen/device/tiled/parts_of_floats.cuh"
#include "codegen/device/tiled/swizzle.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

enum : int { kTileK = Config::tile_k, kStages = Config::stages };
// Blocks of a cluster that share a tile.
enum : int { kBlocks = Config::cluster };
// Tiles of an operand in shared memory: its elements, or the high, middle and low parts of fp32.
enum : int { kParts = Config::parts };
enum : bool { kInParts = kParts > 1 };
static_assert(!kInParts || kStages == 2, "what a turn has loaded is what the next multiplies");
enum : int { kBlocksPerSm = kTileElements > (kInParts ? 64 * 64 : 128 * 128) ? 1 : 2 };

// The warps of a block lie kWarpsM by kWarpsN over the tile, each on kWarpRows by kWarpColumns of it, made of
// blocks of 16 x 8.
enum : int {
  kWarps = kThreads / 32,
  kMostWarpsN = kTileN >= 128 ? 4 : kTileN / 32,
  kWarpsM = kWarps / kMostWarpsN < kTileM / 16 ? kWarps / kMostWarpsN : kTileM / 16,
  kWarpsN = kWarps / kWarpsM,
  kWarpRows = kTileM / kWarpsM,
  kWarpColumns = kTileN / kWarpsN,
  kRowBlocks = kWarpRows / 16,
  kColumnBlocks = kWarpColumns / 8,
};
static_assert(kRowBlocks > 0 && kColumnBlocks % 2 == 0, "a fragment of b is two blocks wide");

/// The type in memory of an operand whose tile holds `Element`.
template <class Element_, bool kInParts_>
struct LoadedElement {
  using type = Element_;
};
template <class Element_>
struct LoadedElement<Element_, true> {
  using type = float;
};

/// Shared by both operands' loaders: how elements reach the tile, and where they lie in it.
template <class Element_, int kExtent, int kLongest, bool kAlongK_, bool kPlain_>
struct Loading {
  using Element = Element_;
  using Loaded = typename LoadedElement<Element, kInParts>::type;
  enum : bool { kAlongK = kAlongK_, kPlain = kPlain_ };
  // ldmatrix transposes pairs of bytes only: lines of single bytes run along k.
  enum : bool { kLinesAlongK = kAlongK || sizeof(Element) == 1 };
  using Vectors = ThreadVectors<kTileK, kExtent, kLongest, kAlongK>;
  using Tile = OperandTile<kTileK, kExtent, sizeof(Element), kLinesAlongK>;
  enum : int { kVectorBytes = Vectors::kWidth * sizeof(Element) };
  enum : bool {
    kVectorsInLines = kLinesAlongK == kAlongK,
    kAsync = kPlain && kVectorsInLines && kVectorBytes >= 4 && !kInParts,
  };
  // TF32: elements copied by cp.async are rounded in fragments, all others on their way through registers.
  enum : bool { kRoundsFragments = kTf32 && kAsync };
};

// Lines of the tile that are staged at once for the epilogue: one block of every warp, along the axis on
// which the result is adjacent. The pitch spreads the banks of the writes and aligns every vector.
enum : bool { kAlongN = Config::y_along_n };
enum : int {
  kBlockLines = kAlongN ? 16 : 8,
  kStagedLines = kBlockLines * (kAlongN ? kWarpsM : kWarpsN),
  kStagedPitch = kFastExtent + (kAlongN ? 8 : 4),
};

using LoadingA = Loading<ElementA, kTileM, Config::a_width, Config::a_along_k, Config::a_plain>;
using LoadingB = Loading<ElementB, kTileN, Config::b_width, Config::b_along_k, Config::b_plain>;

struct Stage {
  alignas(128) u8 a[kParts * LoadingA::Tile::kSize];
  alignas(128) u8 b[kParts * LoadingB::Tile::kSize];
};

struct Shared {
  union {
    Stage stages[kStages];
    alignas(16) Sum staged[kStagedLines * kStagedPitch];
  };
  Key rows[kTileM], columns[kTileN];
  Key steps[kInParts ? 3 : 2][kTileK];
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the engine asks for as much");

struct LoadA : LoadingA {
  using Site = A;
  enum : bool { kRows = true };
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
  enum : bool { kRows = false };
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
enum : int {
  kMmaSteps = 32 / sizeof(ElementA),
  kMmas = kTileK / kMmaSteps,
  kItemsOfRound = kInParts ? 4 : 8,
};
template <class Load>
FUSOR_DEVICE constexpr int rounds_of() {
  return Load::kAsync || Load::Vectors::kItems < kItemsOfRound ? 1 : Load::Vectors::kItems / kItemsOfRound;
}
FUSOR_DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
enum : int {
  kRounds = larger(kMmas, larger(rounds_of<LoadA>(), rounds_of<LoadB>())),
  kRoundsOfMma = kRounds / kMmas,
};

/// A thread's vectors of one operand tile, on their way from global to shared memory.
template <class Load>
struct Transfer {
  using Element = typename Load::Element;
  using Loaded = typename Load::Loaded;
  using Vectors = typename Load::Vectors;
  using Item = Vec<Loaded, Vectors::kWidth>;
  enum : int {
    kWidth = Vectors::kWidth,
    kShares = Vectors::kItems < kRounds ? Vectors::kItems : kRounds,  // one a round
    kItems = Load::kAsync ? 1 : Vectors::kItems / kShares,
  };
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

  /// Elements that cp.async cannot copy: loads share `share` of a tile and applies the prologue.
  __device__ void fetch(const Params& p, Index entry, const Shared& shared, const Key* steps, int share) {
    if constexpr (!Load::kAsync) {
      if (kShares < kRounds && share >= kShares) return;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        Index at[Load::Site::kRank];
        const int across = Vectors::across(share * kItems + i), step = Vectors::step(share * kItems + i);
        const bool inside = Load::find(p, entry, Load::keys(shared)[across], steps[step], at);
        items[i] = elements(Load::args(p), at, inside);
      }
    }
  }

  __device__ void stash(Shared& shared, int stage, int share) const {
    if constexpr (!Load::kAsync) {
      if (kShares < kRounds && share >= kShares) return;
      u8* const tile = Load::tile(shared, stage);
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int across = Vectors::across(share * kItems + i), step = Vectors::step(share * kItems + i);
        if constexpr (Load::kVectorsInLines)
          *reinterpret_cast<Item*>(tile + Load::Tile::offset(across, step)) = items[i];
        else
#pragma unroll
          for (int v = 0; v < kWidth; ++v)
            *reinterpret_cast<Element*>(tile + Load::Tile::offset(across + v, step)) = items[i][v];
      }
    }
  }

  /// The same in parts, or in halves: each to the tile of its kind. What the parts leave of the numbers, or
  /// 0.
  template <class Split>
  __device__ u32 stash_parts(Shared& shared, int stage, int share, Split split) const {
    constexpr int kPairs = (kWidth + 1) / 2;
    u32 rest = 0;
    if (kShares < kRounds && share >= kShares) return rest;
    u8* const tile = Load::tile(shared, stage);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      Vec<u32, kPairs> parts[kParts];
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const PairOfParts both = split(widen(items[i][2 * pair]), widen(items[i][(2 * pair + 1) % kWidth]));
        rest |= both.rest;
#pragma unroll
        for (int part = 0; part < kParts; ++part) parts[part][pair] = both.part[part];
      }
      u8* const to =
          tile + Load::Tile::offset(Vectors::across(share * kItems + i), Vectors::step(share * kItems + i));
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        if constexpr (kWidth == 1)
          *reinterpret_cast<u16*>(to + part * Load::Tile::kSize) = u16(parts[part][0]);
        else
          *reinterpret_cast<Vec<u32, kPairs>*>(to + part * Load::Tile::kSize) = parts[part];
    }
    return rest;
  }

 private:
  // A vector outside the operand is zero. Behind a prologue it reads the first one instead, without a branch.
  template <class Args, int kRank>
  FUSOR_DEVICE Item elements(const Args& args, Index (&at)[kRank], bool inside) {
    Item item;
    if constexpr (Load::kPlain) {
      item = load_whole_where<kWidth>(Load::Site::address(args, at), inside);
    } else {
#pragma unroll
      for (int axis = 0; axis < kRank; ++axis) at[axis] = inside ? at[axis] : Index(0);
      item = narrow<Loaded>(Load::Site::template apply<kWidth>(args, at, kWidth));
      item = inside ? item : Item{};
    }
    if constexpr (kTf32)
#pragma unroll
      for (int v = 0; v < kWidth; ++v) item[v] = __uint_as_float(round_to_tf32(__float_as_uint(item[v])));
    return item;
  }
};

/// The sums of one warp.
struct WarpTile {
  Sum sum[kRowBlocks][kColumnBlocks][4];
  // Products of parts other than high and high, at most 2^-8 of these.
  Sum small[kInParts ? kRowBlocks : 1][kInParts ? kColumnBlocks : 1][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          sum[i][j][s] = Sum(0);
          if constexpr (kInParts) small[i][j][s] = Sum(0);
        }
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

  /// The same of parts: part `i` of a times part `j` of b, where i + j <= 2. The products of high and high
  /// are added to the sums in fp32, since the tensor cores' own additions cut off.
  __device__ void multiply_parts(Shared& shared, int stage, int step) {
    u32 b[kParts][kColumnBlocks / 2][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      read<LoadB>(shared_address(LoadB::tile(shared, stage) + part * LoadB::Tile::kSize), first_column(),
                  step, b[part]);
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int part_a = kParts - 1; part_a >= 0; --part_a) {
        u32 a[1][4];
        read<LoadA>(shared_address(LoadA::tile(shared, stage) + part_a * LoadA::Tile::kSize),
                    first_row() + 16 * i, step, a);
#pragma unroll
        for (int part_b = kParts - 1 - part_a; part_b >= 0; --part_b)
#pragma unroll
          for (int j = 0; j < kColumnBlocks; ++j) {
            const u32* const columns = b[part_b][j / 2] + j % 2 * 2;
            if (part_a + part_b > 0) {
              multiply_add(small[i][j], a[0], columns[0], columns[1]);
            } else {
              Sum large[4] = {};
              multiply_add(large, a[0], columns[0], columns[1]);
#pragma unroll
              for (int s = 0; s < 4; ++s) sum[i][j][s] += large[s];
            }
          }
      }
  }

  /// The same on the CUDA cores, of numbers in parts or in halves.
  __device__ void multiply_floats(Shared& shared, int stage, int first_step) {
    const u8 *const a_tile = LoadA::tile(shared, stage), *const b_tile = LoadB::tile(shared, stage);
#pragma unroll 1
    for (int step = first_step; step < first_step + kMmaSteps; ++step) {
      float b[kColumnBlocks][2];
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
#pragma unroll
        for (int s = 0; s < 2; ++s)
          b[j][s] = read_float<LoadB>(b_tile, first_column() + 8 * j + sum_column(lane(), s), step);
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
          const float a = read_float<LoadA>(a_tile, first_row() + 16 * i + sum_row(lane(), s), step);
#pragma unroll
          for (int j = 0; j < kColumnBlocks; ++j) {
            sum[i][j][s] = __fmaf_rn(a, b[j][0], sum[i][j][s]);
            sum[i][j][s + 1] = __fmaf_rn(a, b[j][1], sum[i][j][s + 1]);
          }
        }
    }
  }

  /// Adds the small sums to the others. Whether all of them are finite.
  __device__ bool add_small_sums() {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          sum[i][j][s] += small[i][j][s];
          finite &= sum[i][j][s] - sum[i][j][s] == 0;
        }
    return finite;
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

  enum : int { kPasses = kAlongN ? kRowBlocks : kColumnBlocks };

 private:
  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }
  FUSOR_DEVICE int warp_m() { return threadIdx.x / 32 / kWarpsN; }
  FUSOR_DEVICE int warp_n() { return threadIdx.x / 32 % kWarpsN; }
  FUSOR_DEVICE int first_row() { return warp_m() * kWarpRows; }
  FUSOR_DEVICE int first_column() { return warp_n() * kWarpColumns; }

  template <class Load>
  FUSOR_DEVICE float read_float(const u8* tile, int across, int step) {
    const u8* const place = tile + Load::Tile::offset(across, step);
    bf16 parts[3];
#pragma unroll
    for (int part = 0; part < 3; ++part)
      parts[part] = *reinterpret_cast<const bf16*>(place + part * Load::Tile::kSize);
    return float_of_parts(parts[0], parts[1], parts[2]);
  }

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

/// The same of fp32 in parts. A round stores a share of the next tile, loads one more and multiplies some
/// steps of this one: in that order, so that products hide the loads. Half of the warps are one round ahead
/// with their products, so that the tensor cores are busy while the others store. A tile with a number that
/// has no parts, or every one, is multiplied on the CUDA cores.
FUSOR_DEVICE void sum_tile_in_parts(const Params& p, const Part& part, Shared& shared, WarpTile& warp_tile,
                                    bool on_cuda_cores) {
  static_assert(kTileK <= kThreads / 2, "those behind write the keys");
  write_tile_keys(p.problem, part.place, shared.rows, shared.columns);
  const Index entry = part.place.entry;
  const bool ahead = threadIdx.x >= kThreads / 2;
  const auto exists = [&](Index k) { return k >= part.begin && k < part.end; };
  Transfer<LoadA> a;
  Transfer<LoadB> b;
  bool have_parts = true;  // the numbers that this thread has stored of the tile
  bool in_floats = false;  // the tile that is multiplied
  const auto meet = [&] {
    in_floats = __syncthreads_or(on_cuda_cores || !have_parts);
    have_parts = true;
  };
  if (ahead) meet();
  // The tile that is stored: its first step, and its number.
  Index k = part.begin - 2 * kTileK;
#pragma unroll 1
  for (u32 tile = 0; k < part.end + kTileK; ++tile, k += kTileK) {
    const int stage = tile & 1;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const bool last = round + 1 == kRounds;
      if (!ahead && round == 0) {
        meet();
        write_step_keys<kTileK>(p.problem, k + 2 * kTileK, part.end, shared.steps[(tile + 2) % 3]);
      }
      if (exists(k)) {
        const u32 rest_of_a = a.stash_parts(shared, stage, round, parts_of);
        const u32 rest_of_b = b.stash_parts(shared, stage, round, parts_of);
        if ((rest_of_a | rest_of_b) != 0) {
          have_parts = false;
          a.stash_parts(shared, stage, round, halves_of);
          b.stash_parts(shared, stage, round, halves_of);
        }
      }
      if (exists(last ? k + kTileK : k)) {
        const Key* const steps = shared.steps[(last ? tile + 1 : tile) % 3];
        a.fetch(p, entry, shared, steps, last ? 0 : round + 1);
        b.fetch(p, entry, shared, steps, last ? 0 : round + 1);
      }
      if (ahead && last) meet();
      const bool of_stored = ahead && last;
      const int multiplied = !ahead ? round : last ? 0 : round + 1;
      if (exists(of_stored ? k : k - kTileK) && multiplied % kRoundsOfMma == 0) {
        const int from = of_stored ? stage : stage ^ 1, step = multiplied / kRoundsOfMma * kMmaSteps;
        if (in_floats)
          warp_tile.multiply_floats(shared, from, step);
        else
          warp_tile.multiply_parts(shared, from, step);
      }
    }
  }
  if (!ahead) meet();
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
        const Vec<Sum, kFinishWidth> sums = sum_of_blocks<kFinishWidth, kBlocks>(staged);
        finish_vector(p, part, slow * kFastExtent + along, &sums[0]);
      } else {
        finish_vector(p, part, slow * kFastExtent + along, staged);
      }
    }
  }
  // Nobody leaves whose sums others still read.
  if constexpr (kBlocks > 1) meet_blocks();
}

// A launch that does nothing unless a flag is set by the last but one in front of it (sm90/parts). That one
// has ended: the launch in front waits for it before it lets this one begin.
template <class P>
FUSOR_DEVICE bool is_needed(const P& p) {
  if constexpr (!Config::guarded) {
    return true;
  } else {
    u32 flags = 0;
    for (i64 i = threadIdx.x; i < p.guards; i += kThreads) flags |= __ldcg(p.guard + i);
    return __syncthreads_or(flags != 0);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) mma(const __grid_constant__ Params p) {
  alignas(128) extern __shared__ u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (!is_needed(p)) {
    // The grid does not end before the launch in front of it has ended.
    if (block_number() == 0) wait_for_end_before();
    return;
  }
  enter_launch(p);
  const Part part = part_of_block(p);
  if (part.is_none()) return;
  WarpTile warp_tile;
  if constexpr (kInParts) {
    // A tile that overflowed in parts is summed once more.
#pragma unroll 1
    for (bool again = false;; again = true) {
      warp_tile.clear();
      sum_tile_in_parts(p, part, shared, warp_tile, again);
      const bool finite = warp_tile.add_small_sums();
      if (!__syncthreads_or(!finite) || again) break;
    }
  } else {
    warp_tile.clear();
    sum_tile(p, part, shared, warp_tile);
  }
  finish(p, part, shared, warp_tile);
  leave_launch(p);
}
