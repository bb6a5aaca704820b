// Owns the mma_weights engine: the matmul of few rows by weights that are stored in 8 or 4 bits, on the
// tensor cores of sm_80 and later. Its rules, knobs and costs; the kernel is
// codegen/device/tiled/mma_weights.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/guards.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/tiled/part.h"
#include "backend/engines/tiled/weights/stored_weights.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// codegen/device/tiled/mma_weights.cuh
constexpr int64_t kWarps = 8, kRunAcross = 8, kRowBlock = 8;
// Rows that are multiplied at once, and rows up to which weights are read again rather than stored dense.
constexpr int64_t kMostTileRows = 64, kMostRows = 256;
constexpr int64_t kMostStages = 6;

constexpr std::array<int64_t, 1> kRowWidths{8};
constexpr std::array<int64_t, 4> kWeightWidths{32, 16, 8, 4};
constexpr std::array<int64_t, 3> kStoreWidths{8, 4, 2};

struct Knobs {
  int64_t tile_m = 16, tile_n = 128, warp_columns = 32, tile_k = 256, split = 1, cluster = 1;

  static void visit(auto& self, auto&& knob) {
    knob("tile_m", self.tile_m);
    knob("tile_n", self.tile_n);
    knob("warp_columns", self.warp_columns);
    knob("tile_k", self.tile_k);
    knob("split", self.split);
    knob("cluster", self.cluster);
  }
};

// Facts of a fusion.
struct Problem : TiledProblem {
  const Fusion& whole;  ///< with the prologue
  const DeviceInfo& device;
  const StoredWeights& weights;
  int64_t bits;    ///< of a stored weight
  int64_t vector;  ///< the longest of weights, in elements
  int64_t run;     ///< steps of k that a lane has side by side
  std::optional<PairedOps> paired;

  Problem(const Fusion& whole_, const Fusion& plain, const StoredWeights& weights_, const DeviceInfo& device_)
      : TiledProblem(plain, device_, {kRowWidths, kWeightWidths, kStoreWidths}),
        whole(whole_),
        device(device_),
        weights(weights_),
        bits(is_packed(weights_.type) ? 4 : 8),
        paired(paired_ops(weights_, device_.compute_capability)) {
    constexpr int64_t kCopyBits = 128;
    vector = std::min(load_b.width, kCopyBits / bits);
    if (along_k())
      while (weights.block > 0 && vector > 1 && weights.block % vector != 0) vector /= 2;
    run = along_k() ? vector : kRunAcross;
  }

  bool along_k() const { return load_b.along_k; }
  int64_t rows() const { return ceil_div(view.m, kRowBlock) * kRowBlock; }
};

// A setting.
struct Schedule : TiledSchedule {
  int64_t warp_columns, across, blocks_per_sm, stages, shared_bytes;

  Schedule(const Problem& problem, const Knobs& knobs)
      : TiledSchedule(problem, {knobs.tile_m, knobs.tile_n, knobs.tile_k},
                      knobs.cluster > 1 ? knobs.cluster : knobs.split, knobs.cluster > 1),
        warp_columns(knobs.warp_columns),
        across(problem.along_k() ? 1 : knobs.warp_columns / 8) {
    blocks_per_sm = registers(problem) > 128 ? 1 : 2;
    const DeviceInfo& device = problem.device;
    const auto fits = [&](int64_t depth) {
      return bytes_of(problem, depth) <=
             std::min(device.shared_per_block, device.shared_per_sm / blocks_per_sm - kReservedBytes);
    };
    const int64_t useful = ceil_div(k_per_split, tile.k) + 1;
    for (stages = std::clamp<int64_t>(useful, 2, kMostStages); stages > 2 && !fits(stages);) --stages;
    shared_bytes = bytes_of(problem, stages);
  }

  // sizeof(Shared) in the kernel, which checks it.
  int64_t bytes_of(const Problem& problem, int64_t depth) const {
    const auto aligned = [](int64_t bytes) { return ceil_div(bytes, 128) * 128; };
    const int64_t stage = aligned(tile.m * tile.k * 2) + aligned(tile.n * tile.k * problem.bits / 8);
    const int64_t sums = tile.m * (tile.n + 4) * 4, of_block = in_cluster ? sums : 16;
    return aligned(std::max(depth * stage, warps_k() * sums + of_block));
  }
  bool fits(const DeviceInfo& device) const { return shared_bytes <= device.shared_per_block; }

  int64_t warps_n() const { return tile.n / warp_columns; }
  int64_t warps_k() const { return kWarps / warps_n(); }

 private:
  // Sums, a block of rows, stored vectors and what they become; the others by the text.
  int64_t registers(const Problem& problem) const {
    const int64_t row_blocks = tile.m / kRowBlock;
    const int64_t sums = warp_columns / 16 * row_blocks * 4, rows = row_blocks * 4;
    const int64_t held =
        static_cast<int64_t>(problem.weights.held.size()) * (problem.along_k() ? warp_columns / 8 : across);
    const int64_t stored = problem.along_k() ? warp_columns / 8 * problem.run * problem.bits / 32 + 16
                                             : 8 * 32 / problem.bits + 16;
    return sums + rows + 2 * held + stored + 40;
  }
};

// --- Sources ---

KernelSite site_of(const char* name, Expr expr, int64_t vector) {
  const int axis = expr.domain.rank() - (vector > 1 ? 1 : 2);
  return {name, std::move(expr), axis};
}

std::vector<FurtherSite> further_sites(const Problem& problem, const Schedule& schedule) {
  std::vector<FurtherSite> further;
  KernelSite stored = site_of("W", problem.weights.stored, 1);
  stored.addressed = true;
  further.push_back({"w", std::move(stored)});
  for (size_t i = 0; i < problem.weights.held.size(); ++i) {
    Expr held = problem.weights.held[i];
    const int last = held.domain.rank() - 1;
    if (!problem.along_k()) mark_whole_vectors(problem.whole, held, last, schedule.across);
    KernelSite site{fmt::format("H{}", i), std::move(held), last};
    further.push_back({fmt::format("h{}", i), std::move(site)});
  }
  return further;
}

bool moves(const Problem& problem) {
  return problem.weights.block > 0 && std::ranges::any_of(problem.weights.held, [](const Expr& held) {
           return varies_along(held, held.domain.rank() - 3);
         });
}

std::vector<ConfigValue> config_of(const Problem& problem, const Schedule& schedule) {
  const StoredWeights& weights = problem.weights;
  std::vector<ConfigValue> values{{"tile_k", schedule.tile.k},
                                  {"stages", schedule.stages},
                                  {"run", problem.run},
                                  {"across", schedule.across},
                                  {"warp_columns", schedule.warp_columns},
                                  {"whole_chunks", problem.view.k % schedule.tile.k == 0},
                                  {"whole_columns", problem.view.n % schedule.tile.n == 0},
                                  {"blocked", weights.block > 0},
                                  {"held", static_cast<int64_t>(weights.held.size())},
                                  {"held_moves", moves(problem)},
                                  {"in_pairs", problem.paired.has_value()},
                                  {"zero", problem.paired ? int64_t{problem.paired->zero} : -1},
                                  {"scale", problem.paired ? int64_t{problem.paired->scale} : -1},
                                  {"blocks_per_sm", schedule.blocks_per_sm},
                                  {"shared_bytes", schedule.shared_bytes},
                                  {"ElementA", weights.element},
                                  {"ElementB", weights.element},
                                  {"StoredB", weights.type}};
  for (size_t i = 0; i < kMostHeld; ++i) {
    const bool per_column =
        i < weights.held.size() && varies_along(weights.held[i], weights.held[i].domain.rank() - 1);
    values.push_back({fmt::format("per_column{}", i), per_column});
  }
  return values;
}

Lowered lower(const Problem& problem, const Schedule& schedule) {
  KernelSite a = site_a(problem);
  a.addressed = true;
  KernelSite b = site_of("B", problem.weights.ops, problem.along_k() ? 1 : schedule.across);
  b.rounds_value = false;  // pairs are
  const std::vector<FurtherSite> further = further_sites(problem, schedule);
  Launch launch = tiled_launch(problem, schedule, "mma_weights", config_of(problem, schedule), a, b, further,
                               problem.weights.block);
  launch.shared_bytes = schedule.shared_bytes;
  Lowered lowered = tiled_steps(problem, schedule, std::move(launch));
  for (const FurtherSite& held : further)
    for (const Guard& each : guards_of(problem.whole, {{held.site.expr, schedule.across}}))
      guard(lowered.guards, each);
  return lowered;
}

// --- Costs ---

// Instructions of a lane for a vector that is copied, for a product, for a row's fragment that is read, and
// for a held value; all by the kernel's text.
constexpr double kOfVector = 8, kOfProduct = 1, kOfFragment = 1.5, kOfHeld = 8;
// By 529 settings of 13 matmuls on an H200 (2026-12), within 12 % (RMS): the share of the schedulers' pace
// with one block on an SM and with two; seconds for a byte of the first operand that an SM copies, which all
// SMs ask for at once, for a sum that goes through shared memory, and for a stage; a kernel's first copies
// and last results; another block in a cluster.
constexpr double kPaceAlone = 0.471, kPace = 0.531, kOfRowByte = 63e-12, kOfSum = 0.3e-9, kOfStage = 0.018e-6,
                 kStart = 4.5e-6, kOfCluster = 0.28e-6;

// Instructions of a weight until it is one of a pair: in pairs, or by way of fp32.
double of_weight(const Problem& problem) {
  const DataType type = problem.weights.type;
  if (problem.paired) {
    const double ops = (problem.paired->zero >= 0 ? 0.5 : 0) + (problem.paired->scale >= 0 ? 0.5 : 0);
    const double decoding = type == DataType::f4_e2m1                      ? 2.2
                            : is_packed(type)                              ? 1.3
                            : problem.weights.element == DataType::bf16    ? 2
                            : type == DataType::i8 || type == DataType::u8 ? 1.1
                                                                           : 0.5;
    return decoding + ops + (problem.along_k() ? 0 : 0.5);
  }
  constexpr double kPair = 0.5;
  const double decoding = type == DataType::f4_e2m1 ? 3.6 : is_packed(type) ? 2.2 : 2;
  return decoding + cost_of(problem.weights.ops, problem.whole).instructions + kPair;
}

// Instructions of a weight, all told.
double instructions_of(const Problem& problem, const Schedule& schedule) {
  const auto row_blocks = static_cast<double>(schedule.tile.m / kRowBlock);
  const double of_vector = static_cast<double>(problem.along_k() ? problem.run : schedule.across);
  const double sharing = problem.along_k() ? static_cast<double>(schedule.warp_columns) / 8
                                           : static_cast<double>(schedule.across);
  double instructions = of_weight(problem) + kOfVector / of_vector +
                        row_blocks * (kOfProduct / 8 + kOfFragment / (8 * sharing));
  if (moves(problem)) {
    const auto held = static_cast<double>(problem.weights.held.size());
    instructions += held * kOfHeld / static_cast<double>(problem.along_k() ? problem.run : 8 * kRunAcross);
  }
  return instructions;
}

// Seconds of the SM with the most blocks: all of them are there from the start, or nearly so.
double seconds_on_sm(const Problem& problem, const Schedule& schedule) {
  const DeviceInfo& device = problem.device;
  const int64_t sms = schedule.in_cluster ? sms_of_clusters(device, schedule.split) : device.sm_count;
  const int64_t blocks = ceil_div(schedule.items(), sms);
  const double pace = std::min(blocks, schedule.blocks_per_sm) > 1 ? kPace : kPaceAlone;
  const auto steps = static_cast<double>(std::min(schedule.k_per_split, problem.view.k));
  const double weights = static_cast<double>(schedule.tile.n) * steps;
  const double row_bytes = 2 * static_cast<double>(std::min(problem.view.m, schedule.tile.m)) * steps;
  const auto sums = static_cast<double>(schedule.tile.elements() * schedule.warps_k());
  constexpr double kLanes = 128;
  return static_cast<double>(blocks) *
         (weights * instructions_of(problem, schedule) / (kLanes * device.clock_hz * pace) +
          row_bytes * kOfRowByte + sums * kOfSum + steps / static_cast<double>(schedule.tile.k) * kOfStage);
}

Work cost(const Problem& problem, const Schedule& schedule) {
  const Contraction& view = problem.view;
  const SiteCost ops = cost_of(problem.weights.ops, problem.whole),
                 y = cost_of(problem.sites.y, problem.whole);
  const double results = static_cast<double>(view.entries * view.m) * static_cast<double>(view.n);
  // Products and what L2 delivers are part of what was fitted.
  Work work;
  work.dram_bytes = dram_bytes(problem.whole);
  work.fp32_flops = 2 * results * y.instructions;
  work.special = elements_of_b(problem, schedule) * ops.special + results * y.special;
  work.tiles = schedule.tiles;
  work.split = static_cast<int>(schedule.split);
  work.tiles_per_sm = static_cast<int>(schedule.blocks_per_sm);
  work.k_steps = schedule.k_per_split / schedule.tile.k;
  work.start_s = kStart + seconds_on_sm(problem, schedule);
  if (schedule.in_cluster) work.start_s += kOfCluster * static_cast<double>(schedule.split - 1);
  // The launch that adds up parts waits beside the first, and adds nothing that was measured.
  if (schedule.is_split())
    work.scratch_bytes = schedule.items() * schedule.tile.elements() * byte_size(view.compute);
  return work;
}

// --- The engine ---

std::optional<Refusal> refuse_problem(const Problem& problem) {
  const Fusion& fusion = problem.whole;
  const Contraction& view = problem.view;
  const auto refuse = [&](const char* rule, std::string expected, std::string actual) {
    return refusal_at_anchor(fusion, rule, std::move(expected), std::move(actual));
  };
  if (view.m > kMostRows)
    return refuse("few-rows", fmt::format("up to {} rows", kMostRows), fmt::format("{}", view.m));
  if (!is_plain(problem.fusion, problem.sites.a, problem.weights.element))
    return refuse("plain-rows", "a first operand in the type of the weights' values, without ops",
                  std::string(to_string(yielded_node(problem.sites.a).type)));
  if (!problem.load_a.along_k || problem.load_a.width != kRowWidths[0])
    return refuse("rows-in-eights", "rows of the first operand in aligned chunks of 8 elements",
                  fmt::format("{} along {}", problem.load_a.width, problem.load_a.along_k ? "k" : "m"));
  const int64_t least = problem.along_k() ? 8 : std::max<int64_t>(4, 32 / problem.bits);
  if (problem.vector < least || problem.vector * problem.bits < 32)
    return refuse("vectors-of-weights", fmt::format("{} or more adjacent weights, aligned", least),
                  fmt::format("{}", problem.vector));
  if (!problem.along_k() && problem.weights.block % kRunAcross != 0)
    return refuse("blocks-of-eights", "blocks of a multiple of 8 steps",
                  fmt::format("{}", problem.weights.block));
  if (!problem.store.along_n)
    return refuse("rows-of-results", "results adjacent along n", "results adjacent along m");
  return std::nullopt;
}

constexpr Notes kNotes{.tensor_cores = true};

class PreparedMmaWeights final : public Prepared {
 public:
  PreparedMmaWeights(const Fusion& fusion, StoredWeights weights, const DeviceInfo& device)
      : weights_(std::move(weights)),
        plain_(with_plain_weights(fusion, weights_)),
        problem_(fusion, plain_, weights_, device) {}

  const Problem& problem() const { return problem_; }

  std::vector<Knob> knobs() const override {
    return {{"tile_m", tile_rows()},
            {"tile_n", tile_columns()},
            {"warp_columns", warp_columns()},
            {"tile_k", tile_steps()},
            {"split", splits_of(problem_.view, 4 * problem_.run)},
            {"cluster", clusters()}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t tile_m : tile_rows())
      for (const int64_t columns : warp_columns())
        for (const int64_t tile_n : tile_columns())
          for (const int64_t tile_k : tile_steps()) add_splits({tile_m, tile_n, columns, tile_k}, list);
    return list;
  }

  Notes notes() const override { return kNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, Schedule(problem_, knobs_of<Knobs>(config)));
  }

 private:
  // As many rows as there are, or half of them twice.
  std::vector<int64_t> tile_rows() const {
    int64_t rows = kRowBlock;
    while (rows < kMostTileRows && rows < problem_.view.m) rows *= 2;
    return {rows};
  }
  std::vector<int64_t> warp_columns() const {
    if (problem_.along_k()) return {16, 32};
    // Wider ones leave an SM one block.
    constexpr int64_t kMostCopied = 8;  // bytes
    std::vector<int64_t> columns;
    for (int64_t across = std::min(problem_.vector, 8 * kMostCopied / problem_.bits);
         across >= std::max<int64_t>(4, 32 / problem_.bits); across /= 2)
      columns.push_back(8 * across);
    std::ranges::reverse(columns);
    return columns;
  }
  std::vector<int64_t> tile_columns() const { return {32, 64, 128, 256}; }
  std::vector<int64_t> tile_steps() const {
    std::vector<int64_t> steps;
    for (int64_t k = 4 * problem_.run; k <= 1024; k *= 2) steps.push_back(k);
    return steps;
  }
  std::vector<int64_t> clusters() const {
    if (problem_.device.compute_capability < 90) return {1};
    return {1, 2, 4, 8};
  }

  // A warp has sums that its registers hold, and the warps of a block share out a stage's steps.
  bool is_sensible(const Knobs& knobs) const {
    constexpr int64_t kMostSums = 128;
    const int64_t warps_n = knobs.tile_n / knobs.warp_columns;
    if (knobs.tile_n % knobs.warp_columns != 0 || warps_n > kWarps) return false;
    if (knobs.warp_columns * knobs.tile_m / 32 > kMostSums) return false;
    const int64_t chunk = 4 * problem_.run * (kWarps / warps_n);
    // Of bytes across k, two chunks a stage took up to a fifth longer than one.
    const int64_t most = problem_.along_k() || problem_.bits < 8 ? 2 : 1;
    return knobs.tile_k % 64 == 0 && knobs.tile_k % chunk == 0 && knobs.tile_k / chunk <= most;
  }

  void add_splits(Knobs knobs, std::vector<EngineCandidate>& list) const {
    constexpr int64_t kLeastSteps = 1, kRounds = 2;
    if (!is_sensible(knobs)) return;
    const auto add = [&](int64_t split, int64_t cluster) {
      knobs.split = split;
      knobs.cluster = cluster;
      const Schedule schedule(problem_, knobs);
      if (!schedule.fits(problem_.device)) return;
      add_candidate(list, config_of(mma_weights_engine(), knobs), [&] { return cost(problem_, schedule); });
    };
    const Schedule whole(problem_, knobs);
    const int64_t turns = ceil_div(problem_.view.k, knobs.tile_k);
    const int64_t slots = problem_.device.sm_count * whole.blocks_per_sm;
    add(1, 1);
    const std::vector<int64_t> in_cluster = clusters();
    for (const int64_t parts : {2, 4, 8, 16})
      if (turns / parts >= kLeastSteps && whole.tiles * parts <= kRounds * slots) {
        if (std::ranges::find(in_cluster, parts) != in_cluster.end())
          add(1, parts);
        else
          add(parts, 1);
      }
  }

  const StoredWeights weights_;
  const Fusion plain_;
  const Problem problem_;
};

class MmaWeightsEngine final : public Engine {
 public:
  std::string_view name() const override { return "mma_weights"; }
  int number() const override { return 44; }
  Notes notes() const override { return kNotes; }

  PackedAccess packed_access() const override { return {.loads = true}; }
  bool takes_blocks() const override { return true; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    if (auto refusal = refuse_phases(fusion)) return std::move(*refusal);
    if (auto refusal = refuse_pair(fusion)) return std::move(*refusal);
    if (fusion.anchors.size() != 1 || !std::holds_alternative<Matmul>(fusion.anchors[0].attributes))
      return Refusal{"matmul-anchor", "", "", "one matmul", "another anchor or none", "", -1};
    if (auto refusal = refuse_epilogue_reductions(fusion)) return std::move(*refusal);
    if (device.compute_capability < 80)
      return Refusal{"sm-80", "", "", "an Ampere GPU (sm_80) or later", device.name, "plan for one", -1};
    if (std::get<Matmul>(fusion.anchors[0].attributes).compute != DataType::f32)
      return refusal_at_anchor(fusion, "fp32-sums", "compute type fp32", "another");
    const Dims result = result_site(fusion).domain;
    Dims batch;
    for (int i = 0; i < result.rank() - 2; ++i) batch.push_back(result[i]);
    auto weights = stored_weights_of(fusion, batch);
    if (auto* refusal = std::get_if<Refusal>(&weights)) return std::move(*refusal);
    StoredWeights& found = std::get<StoredWeights>(weights);
    if (!contraction_of(with_plain_weights(fusion, found))) return refuse_other_domain(fusion);
    auto prepared = std::make_unique<const PreparedMmaWeights>(fusion, std::move(found), device);
    if (auto refusal = refuse_problem(prepared->problem())) return std::move(*refusal);
    if (prepared->candidates().empty())
      return refusal_at_anchor(fusion, "shared-tiles", "tiles that shared memory holds", "none");
    return prepared;
  }
};

}  // namespace

const Engine& mma_weights_engine() {
  static const MmaWeightsEngine engine;
  return engine;
}

}  // namespace fusor
