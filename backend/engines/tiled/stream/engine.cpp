// Owns the mma_stream engine: matmul and convolutions of few channels, whose second operand fits into shared
// memory, on the tensor cores of sm_80 and later. Its rules, knobs and costs; the kernel is
// codegen/device/tiled/mma_stream.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/pointwise_convolution.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/tiled/part.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// codegen/device/tiled/mma_stream.cuh
constexpr int64_t kWarps = 8, kThreads = 32 * kWarps, kChunk = 8;
constexpr int64_t kManyRows = 32, kFewRows = 16;

// More products for each element than these are bound by the tensor cores, which wgmma feeds better.
constexpr int64_t kMostColumns = 256, kMostSteps = 320;
constexpr int64_t kMostStages = 6;

constexpr std::array<int64_t, 2> kLoadWidths{8, 1};
constexpr std::array<int64_t, 3> kStoreWidths{8, 4, 2};

struct Knobs {
  int64_t stages = 4;

  static void visit(auto& self, auto&& knob) { knob("stages", self.stages); }
};

// Facts of a fusion.
struct Problem : TiledProblem {
  const DeviceInfo& device;
  int64_t chunks;            // of a line
  int64_t panel;             // columns that are summed at a time
  int64_t columns;           // of the tile, in whole panels
  int64_t rows = kManyRows;  // of a warp's tile

  Problem(const Fusion& fusion_, const DeviceInfo& device_)
      : TiledProblem(fusion_, device_, {kLoadWidths, kLoadWidths, kStoreWidths}),
        device(device_),
        chunks(view.k / kChunk) {
    constexpr int64_t kWidest = 96, kBlock = 16;
    const int64_t panels = ceil_div(view.n, kWidest);
    panel = ceil_div(ceil_div(view.n, panels), kBlock) * kBlock;
    columns = panels * panel;
    // Where each warp has only a few tiles, smaller tiles share the rows out more evenly.
    constexpr int64_t kEnoughStages = 3, kFewTiles = 3, kBlocks = 2;
    const bool few = view.m < kFewTiles * rows * kBlocks * kWarps * device.sm_count;
    if (few || bytes_of(kEnoughStages) > device.shared_per_block) rows = kFewRows;
  }

  // The shared memory of a block with so many stages, without the keys of steps.
  int64_t bytes_of(int64_t stages) const {
    constexpr int64_t kSum = 4;
    const int64_t staged = 16 * (panel + 8) * kSum;
    const int64_t line = (chunks % 2 == 0 ? chunks + 1 : chunks) * 16;
    return columns * line + kWarps * (stages * rows * line + staged);
  }
};

// A setting.
struct Schedule : TiledSchedule {
  int64_t stages, blocks_per_sm, blocks, shared_bytes;

  Schedule(const Problem& problem, int64_t stages_)
      : TiledSchedule(problem, {problem.rows, problem.columns, problem.view.k}, 1),
        stages(stages_),
        shared_bytes(shared_bytes_of(problem, stages_, index_bits)) {
    const DeviceInfo& device = problem.device;
    // By the registers of a thread, which hold a panel's sums.
    const int64_t most = problem.panel <= 64 ? 3 : 2;
    blocks_per_sm = std::clamp<int64_t>(device.shared_per_sm / (shared_bytes + kReservedBytes), 1, most);
    blocks = std::min(ceil_div(tiles, kWarps), device.sm_count * blocks_per_sm);
  }

  // sizeof(Shared) in the kernel, which checks it.
  static int64_t shared_bytes_of(const Problem& problem, int64_t stages, int64_t index_bits) {
    const int64_t key = index_bits / 2, alignment = std::max<int64_t>(key, 16);
    const auto aligned = [&](int64_t bytes) { return ceil_div(bytes, alignment) * alignment; };
    return aligned(aligned(problem.bytes_of(stages)) + problem.chunks * key);
  }
  bool fits(const DeviceInfo& device) const { return shared_bytes <= device.shared_per_block; }
};

Lowered lower(const Problem& problem, const Schedule& schedule) {
  KernelSite a = site_a(problem), b = site_b(problem);
  a.addressed = b.addressed = true;
  const DataType element = yielded_node(problem.sites.a).type;
  Launch launch = tiled_launch(problem, schedule, "mma_stream",
                               {{"stages", schedule.stages},
                                {"chunks", problem.chunks},
                                {"panel", problem.panel},
                                {"blocks_per_sm", schedule.blocks_per_sm},
                                {"ElementA", element},
                                {"ElementB", element},
                                {"shared_bytes", schedule.shared_bytes}},
                               a, b);
  set_grid(launch, schedule.blocks, kThreads);
  launch.shared_bytes = schedule.shared_bytes;
  return tiled_steps(problem, schedule, std::move(launch));
}

// --- Costs ---

// Instructions of a lane for each chunk that is copied (of a convolution's window: one layer), for each
// vector that leaves, and for each multiply-add. They are more than the text has, as schedulers issue in half
// of all cycles. Fitted to 80 layers and products of 6 to 288 channels on an H200, within 10 % (RMS;
// bench/HISTORY.md).
constexpr double kInstructionsOfChunk = 54, kInstructionsOfTap = 120, kInstructionsOfVector = 133,
                 kInstructionsOfProduct = 0.235;
// Until the first tile: the kernel's text, keys, and each round of loads of the second operand.
constexpr double kStart = 2.3e-6, kRoundOfLoads = 0.23e-6;

Work cost(const Problem& problem, const Schedule& schedule) {
  const Fusion& fusion = problem.fusion;
  const SiteCost a = cost_of(problem.sites.a, fusion), b = cost_of(problem.sites.b, fusion),
                 y = cost_of(problem.sites.y, fusion);
  const Contraction& view = problem.view;
  const auto rows = static_cast<double>(schedule.tiles * problem.rows), k = static_cast<double>(view.k),
             columns = static_cast<double>(problem.columns);
  const double loaded = rows * k, results = rows * static_cast<double>(view.n);
  Work work;
  work.dram_bytes = dram_bytes(fusion);
  work.l2_bytes =
      loaded * a.bytes + results * y.bytes + static_cast<double>(schedule.blocks * view.n * view.k) * b.bytes;
  const double of_chunk = view.is_convolution() ? kInstructionsOfTap : kInstructionsOfChunk;
  const double of_sum =
      kInstructionsOfVector / static_cast<double>(problem.store.width) + k * kInstructionsOfProduct;
  work.fp32_flops = 2 * (loaded / kChunk * of_chunk + results * y.instructions + rows * columns * of_sum);
  work.special = results * y.special;
  work.tiles = schedule.blocks;
  work.tiles_per_sm = static_cast<int>(schedule.blocks_per_sm);
  const double loads = columns * k / static_cast<double>(problem.load_b.width * kThreads);
  work.start_s = kStart + kRoundOfLoads * std::ceil(loads);
  return work;
}

// --- The engine ---

std::optional<Refusal> refuse_stream(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  const Contraction& view = problem.view;
  if (view.entries != 1)
    return refusal_at_anchor(fusion, "one-product", "one product, without groups or a batch",
                             fmt::format("{}", view.entries));
  for (const Expr* const site : {&problem.sites.a, &problem.sites.b}) {
    const DataType type = yielded_node(*site).type;
    if ((type != DataType::f16 && type != DataType::bf16) || !is_plain(fusion, *site, type) ||
        type != yielded_node(problem.sites.a).type)
      return refusal_at_anchor(fusion, "half-operands",
                               "operands of fp16 or bf16 without ops in front of them",
                               std::string(to_string(type)));
  }
  if (view.op == ContractionOp::wgrad)
    return refusal_at_anchor(fusion, "no-wgrad", "a matmul, fprop or dgrad", "wgrad");
  if (!problem.load_a.along_k)
    return refusal_at_anchor(fusion, "rows-along-k", "a first operand adjacent along k",
                             "one adjacent across k");
  if (view.k % kChunk != 0 || problem.load_a.width != kChunk)
    return refusal_at_anchor(fusion, "chunks-of-8",
                             "lines of the first operand in aligned chunks of 8 elements",
                             fmt::format("{} steps, vectors of {}", view.k, problem.load_a.width));
  if (!problem.store.along_n)
    return refusal_at_anchor(fusion, "rows-of-results", "results adjacent along n",
                             "results adjacent along m");
  if (view.n > kMostColumns || view.k > kMostSteps || !Schedule(problem, 2).fits(problem.device))
    return refusal_at_anchor(
        fusion, "few-channels",
        "a second operand of up to 256 columns and 320 steps that fits into shared memory",
        fmt::format("{} columns, {} steps", view.n, view.k));
  return std::nullopt;
}

constexpr Notes kNotes{.tensor_cores = true};

class PreparedMmaStream final : public Prepared {
 public:
  PreparedMmaStream(const Fusion& fusion, std::optional<Fusion> matmul, const DeviceInfo& device)
      : matmul_(std::move(matmul)), problem_(matmul_ ? *matmul_ : fusion, device) {}

  const Problem& problem() const { return problem_; }

  std::vector<Knob> knobs() const override {
    std::vector<int64_t> stages;
    for (int64_t count = 2; count <= kMostStages && Schedule(problem_, count).fits(problem_.device); ++count)
      stages.push_back(count);
    return {{"stages", stages}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    // For each number of blocks on an SM, the setting with the most stages.
    const std::vector<int64_t> offered = knobs().front().values;
    for (size_t i = 0; i < offered.size(); ++i) {
      const Schedule schedule(problem_, offered[i]);
      if (i + 1 < offered.size() &&
          Schedule(problem_, offered[i + 1]).blocks_per_sm == schedule.blocks_per_sm)
        continue;
      list.push_back({config_of(mma_stream_engine(), Knobs{offered[i]}), cost(problem_, schedule)});
    }
    // The cost does not tell these settings apart. With few tiles for each warp, more stages were faster;
    // with many, more blocks.
    if (problem_.rows == kFewRows) std::ranges::reverse(list);
    return list;
  }

  Notes notes() const override { return kNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, Schedule(problem_, knobs_of<Knobs>(config).stages));
  }

 private:
  const std::optional<Fusion> matmul_;  ///< that a convolution without a window is
  const Problem problem_;
};

class MmaStreamEngine final : public Engine {
 public:
  std::string_view name() const override { return "mma_stream"; }
  int number() const override { return 26; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_tiling(fusion, device)) return std::move(*refusal);
    if (device.compute_capability < 80)
      return Refusal{"sm-80", "", "", "an Ampere GPU (sm_80) or later", device.name, "plan for one", -1};
    if (const DataType compute = contraction_of(fusion).value().compute; compute != DataType::f32)
      return refusal_at_anchor(fusion, "fp32-sums", "compute type fp32", std::string(to_string(compute)));
    auto prepared = std::make_unique<const PreparedMmaStream>(fusion, as_matmul(fusion), device);
    if (auto refusal = refuse_stream(prepared->problem())) return std::move(*refusal);
    return prepared;
  }
};

}  // namespace

const Engine& mma_stream_engine() {
  static const MmaStreamEngine engine;
  return engine;
}

}  // namespace fusor
