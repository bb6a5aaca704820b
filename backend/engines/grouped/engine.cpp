// Owns the grouped engine: convolutions in groups of few channels, and their data gradients, on the tensor
// cores of sm_80 and later. Its knobs and candidates; its rules are in grouped/rules.h, what it lowers to in
// grouped/lowering.h, and the kernel is codegen/device/grouped/grouped.cuh.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "backend/engines/grouped/lowering.h"
#include "backend/engines/grouped/rules.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "heuristics/time_model.h"

namespace fusor {

using namespace grouped;

namespace {

constexpr Notes kNotes{.tensor_cores = true};
// Sums of a thread: more leave too few threads to hide the way to shared memory.
constexpr int64_t kMostSums = 64;
// Candidates of one number of groups.
constexpr int64_t kMostAlike = 4;

class PreparedGrouped final : public Prepared {
 public:
  PreparedGrouped(const Fusion& fusion, const DeviceInfo& device) : problem_(fusion, device) {}

  std::vector<Knob> knobs() const override {
    return {{"pixels", {16, 64, 128, 256, 512}},
            {"groups", {1, 2, 3, 4, 6, 8}},
            {"tiles", {1, 2, 4}},
            {"warps", {4, 8}},
            {"stages", {1, 2}}};
  }

  // The best ones by estimate; where few fit, the smallest.
  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    const std::vector<Knob> offered = knobs();
    for (const int64_t pixels : offered[0].values)
      for (const int64_t groups : offered[1].values)
        for (const int64_t tiles : offered[2].values)
          for (const int64_t warps : offered[3].values)
            for (const int64_t stages : offered[4].values) {
              const Knobs knobs{pixels, groups, tiles, warps, stages};
              const Schedule schedule(problem_, knobs);
              if (is_promising(schedule)) list.push_back(candidate(knobs, schedule));
            }
    std::ranges::stable_sort(
        list, {}, [&](const EngineCandidate& one) { return estimate_seconds(one.work, problem_.device); });
    keep_the_best(list);
    if (list.empty()) {
      const Knobs smallest{16, 1, 1, 4, 1};
      list.push_back(candidate(smallest, Schedule(problem_, smallest)));
    }
    return list;
  }

  Notes notes() const override { return kNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return Schedule(problem_, knobs_of<Knobs>(config)).lowered();
  }

 private:
  static EngineCandidate candidate(const Knobs& knobs, const Schedule& schedule) {
    return {config_of(grouped_engine(), knobs), schedule.work()};
  }

  // Keeps the first few of a list that is sorted by estimate, for each number of groups: these differ in how
  // much of what is read lies together.
  static void keep_the_best(std::vector<EngineCandidate>& list) {
    std::map<int64_t, int64_t> alike;
    std::erase_if(list, [&](const EngineCandidate& one) {
      return ++alike[knobs_of<Knobs>(one.config).groups] > kMostAlike;
    });
  }

  // It fits, every warp has work, and no larger setting means the same.
  bool is_promising(const Schedule& schedule) const {
    const Knobs& knobs = schedule.knobs;
    if (schedule.blocks_per_sm < 1 || knobs.pixels < 64) return false;
    if (knobs.groups > problem_.groups() || knobs.tiles * problem_.out * 4 > kMostSums) return false;
    if (schedule.items() < knobs.warps) return false;
    return knobs.stages == 1 || schedule.tiles_per_block > 1;
  }

  const Problem problem_;
};

class GroupedEngine final : public Engine {
 public:
  std::string_view name() const override { return "grouped"; }
  int number() const override { return 45; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    if (auto refusal = refuse_other_anchor(fusion)) return std::move(*refusal);
    if (auto refusal = refuse_phases(fusion)) return std::move(*refusal);
    if (device.compute_capability < 80)
      return Refusal{"sm-80", "", "", "an Ampere GPU (sm_80) or later", device.name, "plan for one", -1};
    if (auto refusal = refuse_grouped(fusion, device)) return std::move(*refusal);
    return std::make_unique<const PreparedGrouped>(fusion, device);
  }
};

}  // namespace

const Engine& grouped_engine() {
  static const GroupedEngine engine;
  return engine;
}

}  // namespace fusor
