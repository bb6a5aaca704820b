// Owns the depthwise engine: convolutions of one input and one output channel a group whose channels are
// adjacent, bound by memory. Its knobs and candidates; its rules are in depthwise/rules.h, what it lowers to
// in depthwise/lowering.h, and the kernels are codegen/device/depthwise/strips.cuh and depthwise/wgrad.cuh,
// depthwise/march.cuh and depthwise/march_wgrad.cuh, and depthwise/finish.cuh.
#include <algorithm>

#include "backend/engines/depthwise/lowering.h"
#include "backend/engines/depthwise/rules.h"
#include "backend/engines/engine.h"
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

class DepthwiseEngine final : public Engine {
 public:
  std::string_view name() const override { return "depthwise"; }
  int number() const override { return 40; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_other_anchor(fusion)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_phases(fusion)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_depthwise(fusion)) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& device) const override {
    const int64_t widest = widest_vector(fusion);
    const Lowering plain(fusion, config({{"vector", widest}}), device);
    Knob vector{"vector", {widest}};
    for (int64_t width = widest / 2; width >= 2; width /= 2)
      vector.values.insert(vector.values.begin(), width);
    const Knob strip{"strip", {2, 4, 7, 8}}, rows{"rows", rows_offered(plain)};
    if (plain.is_wgrad()) return {vector, strip, rows, {"split", splits(plain, device)}};
    return {vector, strip, rows};
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    const std::vector<Knob> offered = knobs(fusion, device);
    std::vector<EngineCandidate> list;
    for (const int64_t vector : offered[0].values)
      for (const int64_t strip : offered[1].values) {
        const std::vector<EngineCandidate> marches = best_marches(fusion, device, offered, vector, strip);
        list.insert(list.end(), marches.begin(), marches.end());
        // In wgrad, others would read everything once for every row of the window.
        const bool splits = offered.size() > 3;
        const int64_t most_rows = marches.empty() ? kMostHeldRows : splits ? 0 : 1;
        for (const int64_t rows : offered[2].values) {
          if (rows > most_rows || vector * 2 < offered[0].values.back()) continue;
          for (const int64_t split : splits_of(offered)) {
            if (split == 0) continue;
            EngineConfig setting = setting_of(offered, vector, strip, rows, split);
            const Lowering lowering(fusion, setting, device);
            if (is_promising(lowering, device)) list.push_back({std::move(setting), lowering.work(device)});
          }
        }
      }
    if (!list.empty()) return list;
    // Small ones leave the device idle however they are split; wide windows with large strides share no
    // columns.
    const bool splits = offered.size() > 3;
    EngineConfig setting =
        setting_of(offered, offered[0].values.back(), splits ? 4 : 2, 1, splits_of(offered).back());
    const Lowering lowering(fusion, setting, device);
    list.push_back({std::move(setting), lowering.work(device)});
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    return Lowering(fusion, config, device).lowered();
  }

 private:
  EngineConfig config(std::vector<KnobSetting> knobs) const {
    return {std::string(name()), revision(), std::move(knobs)};
  }

  EngineConfig setting_of(const std::vector<Knob>& offered, int64_t vector, int64_t strip, int64_t rows,
                          int64_t split) const {
    std::vector<KnobSetting> settings{{"vector", vector}, {"strip", strip}, {"rows", rows}};
    if (offered.size() > 3) settings.push_back({"split", split});
    return config(std::move(settings));
  }

  static std::vector<int64_t> splits_of(const std::vector<Knob>& offered) {
    return offered.size() > 3 ? offered[3].values : std::vector<int64_t>{1};
  }

  // Rows of a strip: those that are held at once, and parts of the axis to be marched down.
  static std::vector<int64_t> rows_offered(const Lowering& one) {
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

  // The longer the march, the fewer rows are read twice; the shorter, the more threads there are. The best
  // lengths by estimate.
  std::vector<EngineCandidate> best_marches(const Fusion& fusion, const DeviceInfo& device,
                                            const std::vector<Knob>& offered, int64_t vector,
                                            int64_t strip) const {
    std::vector<EngineCandidate> marches;
    for (const int64_t rows : offered[2].values) {
      if (rows <= kMostHeldRows || strip < 4) continue;
      EngineConfig setting = setting_of(offered, vector, strip, rows, 0);
      const Lowering lowering(fusion, setting, device);
      if (!lowering.marches() || lowering.values() > kMaxMarchValues || lowering.unrolled() > kMaxUnrolled)
        continue;
      marches.push_back({std::move(setting), lowering.work(device)});
    }
    std::ranges::stable_sort(marches, {}, [&](const EngineCandidate& candidate) {
      return estimate_seconds(candidate.work, device);
    });
    // Of narrow vectors one is enough.
    marches.resize(std::min<size_t>(marches.size(), vector * 2 < offered[0].values.back() ? 1 : 2));
    return marches;
  }

  // Parts of the pixels: powers of two, and those that fill the device once, twice and four times; 0 leaves
  // it to the lowering.
  static std::vector<int64_t> splits(const Lowering& one, const DeviceInfo& device) {
    const int64_t most = std::max<int64_t>(1, one.strips() / (one.deal.lanes * 4));
    const int64_t places = int64_t{device.sm_count} * one.blocks_per_sm();
    std::vector<int64_t> values{1};
    while (values.back() * 2 <= std::min<int64_t>(most, 4096)) values.push_back(values.back() * 2);
    for (const int64_t waves : {1, 2, 4})
      values.push_back(
          std::clamp<int64_t>(waves * places / (one.channel_tiles() * one.row_tiles()), 1, most));
    if (one.can_march()) values.push_back(0);
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  // Strips long enough to share columns and short enough for registers; in wgrad, blocks that fill the device
  // once or twice.
  static bool is_promising(const Lowering& lowering, const DeviceInfo& device) {
    if (lowering.strip < 4 || lowering.values() > kMaxValues) return false;
    const int64_t places = int64_t{device.sm_count} * lowering.blocks_per_sm();
    const int64_t blocks = lowering.blocks();
    return !lowering.is_wgrad() || (blocks * 10 >= places * 8 && blocks <= places * 2);
  }
};

}  // namespace

const Engine& depthwise_engine() {
  static const DepthwiseEngine engine;
  return engine;
}

}  // namespace fusor
