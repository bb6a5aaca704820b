// Owns the direct engine: matmul and convolutions of any layout and type on the CUDA cores. Its rules, knobs
// and costs; the kernel is codegen/device/tiled/direct.cuh.
#include <algorithm>
#include <memory>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/tiled/part.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

constexpr int64_t kTileK = 16;       // of codegen/device/tiled/micro_tile.cuh
constexpr int64_t kTurnsOfPart = 8;  // of the main loop, in a part of a split at least
constexpr int64_t kWidths[] = {4};

struct Knobs {
  int64_t tile_m = 64, tile_n = 64, split = 1;

  static void visit(auto& self, auto&& knob) {
    knob("tile_m", self.tile_m);
    knob("tile_n", self.tile_n);
    knob("split", self.split);
  }
};

using Problem = TiledProblem;
using Schedule = TiledSchedule;

Schedule schedule_of(const Problem& problem, const Knobs& knobs) {
  return {problem, {knobs.tile_m, knobs.tile_n, kTileK}, knobs.split};
}

Lowered lower(const Problem& problem, const Schedule& schedule) {
  KernelSite a = site_a(problem), b = site_b(problem);
  a.addressed = is_plain(problem.fusion, problem.sites.a, problem.view.compute);
  b.addressed = is_plain(problem.fusion, problem.sites.b, problem.view.compute);
  return tiled_steps(
      problem, schedule,
      tiled_launch(problem, schedule, "direct", {{"a_plain", a.addressed}, {"b_plain", b.addressed}}, a, b));
}

// --- Costs ---

// The share of the peak that the inner loop's multiply-adds reach. On an H200, of fp32 without prologues:
// four matmuls and four convolutions (bench/RESULTS.md). Behind a prologue each load is waited for: 128 x 64
// tiles reach 0.40 in a matmul of 4096 and 0.42 in a 3x3 convolution of 64 channels (bench/HISTORY.md);
// smaller ones are scaled by what they load for each product.
double efficiency(const Problem& problem, const Schedule& schedule) {
  const int64_t elements = schedule.tile.elements();
  const bool plain = is_plain(problem.fusion, problem.sites.a, problem.view.compute) &&
                     is_plain(problem.fusion, problem.sites.b, problem.view.compute);
  const double tile = elements >= 128 * 128  ? 0.63
                      : elements >= 128 * 64 ? (plain ? 0.5 : 0.41)
                      : elements >= 64 * 64  ? (plain ? 0.45 : 0.37)
                      : elements >= 64 * 32  ? (plain ? 0.35 : 0.3)
                                             : (plain ? 0.24 : 0.22);
  return tile * (schedule.index_bits == 64 ? 0.7 : 1.0);
}

// Blocks that an SM holds at once by ptxas' count of registers for sm_90a: 96, 56 and 40 a thread.
int tiles_per_sm(int64_t tile_elements, DataType compute) {
  const int blocks = tile_elements >= 128 * 64 ? 2 : tile_elements >= 64 * 64 ? 4 : 6;
  return byte_size(compute) == 8 ? blocks / 2 : blocks;
}

Work cost(const Problem& problem, const Schedule& schedule, const DeviceInfo& device) {
  Work work = tiled_cost(problem, schedule);
  const DataType compute = problem.view.compute;
  (compute == DataType::f64 ? work.fp64_flops : work.fp32_flops) += inner_flops(problem, schedule);
  work.tiles_per_sm = tiles_per_sm(schedule.tile.elements(), compute);
  work.stages = 2;
  work.efficiency = efficiency(problem, schedule);
  // Until the first step, and from one step to the next where nothing else is on the SM: by 220 candidates of
  // small layers on an H200; of wgrads of 16 bits, whose operands both lie across k, by 22.
  constexpr double kStart = 2.8e-6, kOfSplit = 2.5e-6, kStepOfOthers = 6e-8, kStepOfWgrad = 2.5e-7;
  const bool half = byte_size(yielded_node(problem.sites.a).type) == 2;
  const double step = half && problem.view.op == ContractionOp::wgrad ? kStepOfWgrad : kStepOfOthers;
  const int64_t slots = int64_t{device.sm_count} * work.tiles_per_sm;
  work.start_s += kStart + (schedule.is_split() ? kOfSplit : 0) +
                  step * static_cast<double>(work.k_steps * ceil_div(schedule.items(), slots));
  return work;
}

// --- The engine ---

class PreparedDirect final : public Prepared {
 public:
  PreparedDirect(const Fusion& fusion, const DeviceInfo& device)
      : problem_(fusion, device, {kWidths, kWidths, kWidths}), device_(device) {}

  std::vector<Knob> knobs() const override {
    const Contraction& view = problem_.view;
    // 8-byte sums take twice the registers and shared memory.
    std::vector<int64_t> tile_m = tiles_up_to(view.m, {32, 64, 128}),
                         tile_n = tiles_up_to(view.n, {32, 64, 128});
    for (std::vector<int64_t>* const tiles : {&tile_m, &tile_n})
      if (byte_size(view.compute) == 8 && tiles->back() == 128) tiles->pop_back();
    return {{"tile_m", tile_m}, {"tile_n", tile_n}, {"split", splits_of(view, kTileK)}};
  }

  std::vector<EngineCandidate> candidates() const override {
    const std::vector<Knob> offered = knobs();
    std::vector<EngineCandidate> list;
    const auto add = [&](int64_t tile_m, int64_t tile_n, int64_t split) {
      const Knobs knobs{std::min(tile_m, offered[0].values.back()),
                        std::min(tile_n, offered[1].values.back()), split};
      add_candidate(list, config_of(direct_engine(), knobs),
                    [&] { return cost(problem_, schedule_of(problem_, knobs), device_); });
    };
    add(64, 64, 1);
    add(128, 64, 1);
    add(128, 128, 1);
    add(32, 32, 1);
    if (const int64_t split = split_for(list.front().work, offered[2].values, kTurnsOfPart, device_);
        split > 1)
      add(64, 64, split);
    return list;
  }

  Notes notes() const override { return {}; }

  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, schedule_of(problem_, knobs_of<Knobs>(config)));
  }

 private:
  const Problem problem_;
  const DeviceInfo& device_;
};

class DirectEngine final : public Engine {
 public:
  std::string_view name() const override { return "direct"; }
  int number() const override { return 20; }

  PackedAccess packed_access() const override { return {.loads = true}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_tiling(fusion, device)) return std::move(*refusal);
    return std::make_unique<const PreparedDirect>(fusion, device);
  }
};

}  // namespace

const Engine& direct_engine() {
  static const DirectEngine engine;
  return engine;
}

}  // namespace fusor
