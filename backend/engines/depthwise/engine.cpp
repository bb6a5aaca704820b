// Owns the depthwise engine: convolutions of one input and one output channel a group whose channels, or
// pixels, are adjacent, bound by memory. Its knobs and candidates; its rules are in depthwise/rules.h, what
// it lowers to in depthwise/lowering.h, and the kernels are codegen/device/depthwise/strips.cuh and
// depthwise/wgrad.cuh, depthwise/march.cuh and depthwise/march_wgrad.cuh, depthwise/mma_march.cuh and
// depthwise/mma_wgrad.cuh, and depthwise/finish.cuh.
#include <algorithm>
#include <memory>

#include "backend/engines/depthwise/lowering.h"
#include "backend/engines/depthwise/mma_march.h"
#include "backend/engines/depthwise/mma_wgrad.h"
#include "backend/engines/depthwise/rules.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "core/ceil_div.h"
#include "heuristics/time_model.h"

namespace fusor {

using namespace depthwise;

namespace {

// Columns and sums beyond this many registers leave too few threads to hide the way to memory.
constexpr int64_t kMaxValues = 112, kMaxMarchValues = 190;
// Multiply-adds of a marching thread's row: text is compile time.
constexpr int64_t kMaxUnrolled = 900;

// Rows of a strip: those that are held at once, and parts of the axis to be marched down.
std::vector<int64_t> rows_offered(const Schedule& one) {
  std::vector<int64_t> values{1};
  const bool shares_rows = one.axes[1].taps() > one.axes[1].advance() && one.axes[1].results > 1;
  if (shares_rows && !one.is_wgrad()) values.push_back(2);
  if (one.can_march())
    for (const int64_t parts : {16, 12, 8, 6, 4, 3, 2, 1}) {
      const int64_t rows = ceil_div(one.longest_march(), parts);
      if (rows > std::max(kMostHeldRows, values.back())) values.push_back(rows);
    }
  return values;
}

// Parts of the pixels: powers of two, and those that fill the device once, twice and four times; 0 leaves
// it to the schedule.
std::vector<int64_t> splits_offered(const Schedule& one) {
  // Lanes have a few strips each, but where the device would be idle.
  const int64_t few = std::max<int64_t>(1, one.strips() / (one.deal.lanes * 4));
  const bool idle = one.channel_tiles() * one.row_tiles() * few < one.problem.device.sm_count;
  const int64_t most = idle ? ceil_div(one.strips(), one.deal.lanes) : few;
  const int64_t places = int64_t{one.problem.device.sm_count} * one.blocks_per_sm();
  std::vector<int64_t> values{1};
  while (values.back() * 2 <= std::min<int64_t>(most, 4096)) values.push_back(values.back() * 2);
  for (const int64_t waves : {1, 2, 4})
    values.push_back(std::clamp<int64_t>(waves * places / (one.channel_tiles() * one.row_tiles()), 1, most));
  if (one.can_march() || can_multiply(one.problem)) values.push_back(0);
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Strips long enough to share columns and short enough for registers; in wgrad, blocks that fill the device
// once or twice.
bool is_promising(const Schedule& schedule) {
  if (schedule.strip < 4 || schedule.values() > kMaxValues) return false;
  const int64_t places = int64_t{schedule.problem.device.sm_count} * schedule.blocks_per_sm();
  const int64_t blocks = schedule.blocks();
  return !schedule.is_wgrad() || (blocks * 10 >= places * 8 && blocks <= places * 2);
}

class PreparedDepthwise final : public Prepared {
 public:
  PreparedDepthwise(const Fusion& fusion, const DeviceInfo& device) : problem_(fusion, device) {}

  std::vector<Knob> knobs() const override {
    const Schedule plain(problem_, {.vector = problem_.widest_vector});
    Knob vector{"vector", {problem_.widest_vector}};
    for (int64_t width = problem_.widest_vector / 2; width >= 2; width /= 2)
      vector.values.insert(vector.values.begin(), width);
    Knob strip{"strip", {2, 4, 7, 8}};
    if (problem_.in_planes()) strip.values.push_back(14);
    std::vector<Knob> knobs{vector, strip, {"rows", rows_offered(plain)}};
    if (problem_.is_wgrad()) knobs.push_back({"split", splits_offered(plain)});
    if (problem_.in_planes()) knobs.push_back({"load", {0, 1, 2, 4, 8}});
    if (multiplies_) knobs.push_back({"mma", {0, 1}});
    return knobs;
  }

  std::vector<EngineCandidate> candidates() const override {
    const std::vector<Knob> offered = knobs();
    std::vector<EngineCandidate> list = candidates_on_tensor_cores();
    const size_t multiplying = list.size();
    for (const int64_t vector : offered[0].values)
      for (const int64_t strip : offered[1].values) {
        const std::vector<EngineCandidate> marches = best_marches(offered, vector, strip);
        list.insert(list.end(), marches.begin(), marches.end());
        // In wgrad, others would read everything once for every row of the window.
        const int64_t most_rows = marches.empty() ? kMostHeldRows : problem_.is_wgrad() ? 0 : 1;
        for (const int64_t rows : offered[2].values) {
          if (rows > most_rows || vector * 2 < offered[0].values.back()) continue;
          for (const int64_t split : splits_of(offered)) {
            if (split == 0) continue;
            const Knobs knobs = setting(vector, strip, rows, split);
            const Schedule schedule(problem_, knobs);
            if (is_promising(schedule)) list.push_back(candidate(knobs, schedule));
          }
        }
      }
    if (list.size() > multiplying) return list;
    // Small ones leave the device idle however they are split; wide windows with large strides share no
    // columns.
    for (const int64_t split : splits_of(offered)) {
      if (split == 0) continue;
      const Knobs knobs = setting(offered[0].values.back(), problem_.is_wgrad() ? 4 : 2, 1, split);
      list.push_back(candidate(knobs, Schedule(problem_, knobs)));
    }
    return list;
  }

  Notes notes() const override { return {}; }

  Lowered lower(const EngineConfig& config) const override {
    const Knobs knobs = knobs_of<Knobs>(config);
    if (multiplies_ && knobs.mma.value_or(0) != 0)
      return problem_.is_wgrad() ? depthwise::lower(MmaWgrad(problem_, knobs))
                                 : depthwise::lower(MmaMarch(problem_));
    return depthwise::lower(Schedule(problem_, knobs));
  }

 private:
  Knobs setting(int64_t vector, int64_t strip, int64_t rows, int64_t split) const {
    Knobs knobs{.vector = vector, .strip = strip, .rows = rows};
    if (problem_.is_wgrad()) knobs.split = split;
    if (problem_.in_planes()) knobs.load = 0;
    if (multiplies_) knobs.mma = 0;
    return knobs;
  }

  static EngineCandidate candidate(const Knobs& knobs, const auto& schedule) {
    return {config_of(depthwise_engine(), knobs), cost(schedule)};
  }

  static std::vector<int64_t> splits_of(const std::vector<Knob>& offered) {
    const auto split = std::ranges::find(offered, "split", &Knob::name);
    return split == offered.end() ? std::vector<int64_t>{1} : split->values;
  }

  // Blocks take a vector of 8, whatever the other knobs say; in wgrad, as many rows as the split leaves them.
  std::vector<EngineCandidate> candidates_on_tensor_cores() const {
    if (!multiplies_) return {};
    Knobs knobs = setting(8, 8, 1, 0);
    knobs.mma = 1;
    if (problem_.is_wgrad()) return {candidate(knobs, MmaWgrad(problem_, knobs))};
    return {candidate(knobs, MmaMarch(problem_))};
  }

  void sort_by_estimate(std::vector<EngineCandidate>& list) const {
    std::ranges::stable_sort(
        list, {}, [&](const EngineCandidate& one) { return estimate_seconds(one.work, problem_.device); });
  }

  // The longer the march, the fewer rows are read twice; the shorter, the more threads there are. The best
  // lengths by estimate.
  std::vector<EngineCandidate> best_marches(const std::vector<Knob>& offered, int64_t vector,
                                            int64_t strip) const {
    std::vector<EngineCandidate> marches;
    for (const int64_t rows : offered[2].values) {
      if (strip < 4) continue;
      const Knobs knobs = setting(vector, strip, rows, 0);
      const Schedule schedule(problem_, knobs);
      if (!schedule.marches() || schedule.values() > kMaxMarchValues || schedule.unrolled() > kMaxUnrolled)
        continue;
      marches.push_back(candidate(knobs, schedule));
    }
    sort_by_estimate(marches);
    // One setting with narrow vectors is enough.
    marches.resize(std::min<size_t>(marches.size(), vector * 2 < offered[0].values.back() ? 1 : 2));
    return marches;
  }

  const Problem problem_;
  const bool multiplies_ = can_multiply(problem_);
};

class DepthwiseEngine final : public Engine {
 public:
  std::string_view name() const override { return "depthwise"; }
  int number() const override { return 40; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    if (auto refusal = refuse_other_anchor(fusion)) return std::move(*refusal);
    if (auto refusal = refuse_phases(fusion)) return std::move(*refusal);
    if (auto refusal = refuse_depthwise(fusion)) return std::move(*refusal);
    return std::make_unique<const PreparedDepthwise>(fusion, device);
  }
};

}  // namespace

const Engine& depthwise_engine() {
  static const DepthwiseEngine engine;
  return engine;
}

}  // namespace fusor
