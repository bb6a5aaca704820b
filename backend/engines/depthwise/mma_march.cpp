// Owns the schedule of depthwise fprop and dgrad on tensor cores.
#include "backend/engines/depthwise/mma_march.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "backend/engines/contraction/epilogue.h"

namespace fusor::depthwise {

MmaMarch::MmaMarch(const Problem& problem_)
    : problem(problem_),
      a(in_groups(problem_.fusion, problem_.a)),
      b(problem_.b),
      y(in_groups(problem_.fusion, problem_.y)),
      deal(problem_) {
  settle_runs();
}

int64_t MmaMarch::blocks_per_sm() const {
  constexpr int64_t kOthers = 56;
  const int64_t registers = vertical().window * last().window + 4 * (vertical().window + 1) + kOthers;
  return registers <= 96 ? 5 : registers <= 128 ? 4 : 3;
}

MmaMarch::Steps MmaMarch::steps_of_turn() const {
  Steps sum;
  for (int64_t pair = 0; pair < pairs(); pair += steps) {
    const int64_t end = std::min(steps, pairs() - pair) + lead();
    const int64_t position = 2 * pair + start_row();
    const int64_t begin = position < 0 ? std::min(-position / 2, lead()) : 0;
    const int64_t filled = std::clamp((vertical().positions - position + 1) / 2, begin, end);
    sum.all += end - begin;
    sum.multiplied += filled - begin;
  }
  return sum;
}

// In steps of a block that has an SM for itself.
double MmaMarch::steps_of_busiest(double of_run) const {
  // Until a block has its filters and the first rows; fewer blocks leave an SM idle in part.
  constexpr double kStartSteps = 8, kFewestBlocks = 2.5;
  const int64_t sms = problem.device.sm_count;
  const int64_t rounds = ceil_div(blocks(), sms * blocks_per_sm());
  const auto resident = static_cast<double>(std::min(blocks_per_sm(), ceil_div(blocks(), sms)));
  const double of_block = of_run * static_cast<double>(runs_per_block);
  return static_cast<double>(rounds) * (kStartSteps + of_block * std::max(kFewestBlocks, resident));
}

// Parts of images, or several images, so that the busiest SM is done first; of equals the longest runs.
void MmaMarch::settle_runs() {
  constexpr int64_t kMostParts = 64, kMostRuns = 8;
  int64_t best_steps = 1, best_runs = 1;
  double least = std::numeric_limits<double>::max();
  for (int64_t count = 1; count <= std::min(kMostParts, pairs()); ++count) {
    steps = ceil_div(pairs(), count);
    const double of_run = static_cast<double>(steps_of_turn().all) / static_cast<double>(parts());
    for (runs_per_block = 1; runs_per_block <= std::min(kMostRuns, runs()); ++runs_per_block) {
      const double needed = steps_of_busiest(of_run);
      if (needed >= least) continue;
      least = needed;
      best_steps = steps;
      best_runs = runs_per_block;
    }
  }
  steps = best_steps;
  runs_per_block = best_runs;
}

Lowered MmaMarch::lowered() const {
  const DataType element = yielded_node(a).type;
  KernelSource source = {.root = "depthwise/mma_march.cuh",
                         .sites = {addressed_site("A", a, 1), addressed_site("B", b, 0),
                                   KernelSite{"Y", y, 1, fits_short_forms(y)}},
                         .config = {{"index_bits", 32},
                                    {"ElementA", element},
                                    {"ElementB", element},
                                    {"taps", last().window},
                                    {"lines", vertical().window},
                                    {"mirrored", last().mirrored},
                                    {"mirrored_lines", vertical().mirrored},
                                    {"groups", deal.width},
                                    {"blocks", blocks_per_sm()}},
                         .target = problem.target};
  Parameters p(32);
  p.divisor("octets", deal.octets_of_row);
  p.divisor("parts", parts());
  p.divisor("tiles", deal.tiles());
  p.wide("runs", runs());
  p.wide("runs_per_block", runs_per_block);
  p.wide("steps", steps);
  p.wide("pairs", pairs());
  p.wide("columns", deal.columns);
  p.wide("groups", deal.groups);
  p.wide("results", last().results);
  p.wide("result_rows", vertical().results);
  p.wide("positions", last().positions);
  p.wide("rows", vertical().positions);
  p.wide("start", last().start);
  p.wide("start_row", start_row());
  Lowered lowered;
  lowered.steps.emplace_back(
      launch_of(problem.fusion, "depthwise_mma_march", std::move(source), std::move(p), blocks(), kThreads));
  lowered.guards = guards_of(problem.fusion, {{a, kGroupChannels}, {b, 1}, {y, kGroupChannels}});
  return lowered;
}

// Two neighbouring taps at once; the last one of an odd number in both rows at once.
double MmaMarch::products_of_step() const {
  const int64_t lines = vertical().window, paired = last().window - last().window % 2;
  return static_cast<double>(paired * lines + last().window % 2 * (lines + 1));
}

double MmaMarch::issued_of_step() const {
  // The wait, the copies and the trade between lanes.
  constexpr double kStepInstructions = 120, kVectorInstructions = 5;
  const SiteCost store = cost_of(y, problem.fusion);
  const double fragments = static_cast<double>(last().window);
  return kStepInstructions + products_of_step() + fragments + kVectorInstructions +
         static_cast<double>(kGroupChannels) * (store.instructions + 1);
}

// An eighth of the 16 x 16 x 8 products of an mma counts. 7 x 7 takes 1.17 to 1.21 times these limits, 5 x 5
// 1.53 times (8 and 2 layers on an H200, 2026-12).
Work MmaMarch::work() const {
  constexpr double kSharedShare = 0.8, kIssueShare = 0.6, kStart = 3e-6;
  constexpr int64_t kSmallWindow = 36;
  const bool small = vertical().window * last().window <= kSmallWindow;
  const double margin = small ? 1.55 : 1.2, dram_share = small ? 0.81 : 0.85;
  const Steps of_turn = steps_of_turn();
  const auto warps = static_cast<double>(kWarps * deal.tiles() * deal.turns());
  const double all = warps * static_cast<double>(of_turn.all),
               multiplied = warps * static_cast<double>(of_turn.multiplied);
  const double copied = multiplied * static_cast<double>(2 * chunks_of_pixels(last()) * kChunkBytes);
  const double read = multiplied * static_cast<double>(kWarpThreads * last().window * kChunkBytes);
  Work work;
  work.tensor_flops = margin * multiplied * products_of_step() * static_cast<double>(2 * kMultiplyAddsOfMma) /
                      share_of_mma(problem.device);
  work.fp32_flops = margin * 2 * all * issued_of_step() * static_cast<double>(kWarpThreads) / kIssueShare;
  work.shared_bytes = margin * (copied + read) / kSharedShare;
  work.l2_bytes = margin * (copied + problem.dram_bytes);
  work.dram_bytes = problem.dram_bytes / dram_share;
  work.start_s = margin * kStart;
  work.tiles = blocks();
  work.tiles_per_sm = static_cast<int>(blocks_per_sm());
  return work;
}

}  // namespace fusor::depthwise
