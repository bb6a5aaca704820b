// Owns the attention_latent engine: attention of a few queries to many keys whose first elements are the
// values, on Hopper's tensor cores. Its knobs; the kernel is codegen/device/sm90/attention/latent.cuh.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/sm90/attention/latent.h"

namespace fusor {

using namespace latent_attention;

namespace {

constexpr Notes kLatentNotes{.tensor_cores = true, .late_division = true};

class PreparedAttentionLatent final : public Prepared {
 public:
  explicit PreparedAttentionLatent(DecodeProblem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    const std::set<int64_t> all = splits();
    return {{"split", {all.begin(), all.end()}}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    if (LatentSchedule(problem_, {}).stages == 0) return list;
    for (const int64_t split : splits()) {
      const LatentKnobs knobs{.split = split};
      list.push_back({config_of(attention_latent_engine(), knobs), cost(LatentSchedule(problem_, knobs))});
    }
    return list;
  }

  Notes notes() const override { return kLatentNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return latent_attention::lower({problem_, knobs_of<LatentKnobs>(config)});
  }

 private:
  // Parts with which each SM has a block, or a few one after the other.
  std::set<int64_t> splits() const {
    const int64_t sms = problem_.problem.device.sm_count, tiles = LatentSchedule(problem_, {}).all_tiles();
    const int64_t most = std::max<int64_t>(1, problem_.problem.keys / kTileKeys);
    std::set<int64_t> splits{1};
    for (const int64_t blocks : {sms, 2 * sms, 4 * sms})
      splits.insert(std::clamp<int64_t>(blocks / tiles, 1, most));
    return splits;
  }

  const DecodeProblem problem_;
};

class AttentionLatentEngine final : public Engine {
 public:
  std::string_view name() const override { return "attention_latent"; }
  int number() const override { return 44; }
  Notes notes() const override { return kLatentNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    auto problem = latent_problem_of(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&problem)) return std::move(*refusal);
    auto prepared =
        std::make_unique<const PreparedAttentionLatent>(std::move(std::get<DecodeProblem>(problem)));
    if (!prepared->candidates().empty()) return prepared;
    return attention::refuse_attention(fusion, "shared-tiles", "", "tiles that shared memory holds",
                                       "larger heads");
  }
};

}  // namespace

const Engine& attention_latent_engine() {
  static const AttentionLatentEngine engine;
  return engine;
}

}  // namespace fusor
