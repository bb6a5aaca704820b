// Owns the attention engine: two matmuls on Hopper's tensor cores, and a softmax or any ops on single scores
// between them, in one kernel that writes no score to memory. Its knobs; the kernel is
// codegen/device/sm90/attention/forward.cuh.
#include <memory>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/attention/problem.h"

namespace fusor {

using namespace attention;

namespace {

constexpr Notes kNotes{.tensor_cores = true, .late_division = true};
constexpr Notes kPlainNotes{.tensor_cores = true};
constexpr Notes kShortNotes{.tensor_cores = true, .short_sums = true, .late_division = true};

const std::vector<int64_t> kConsumerCounts{2, 3};
// Computed scores of heads of 256 leave no registers for more than kFewKeys.
constexpr int64_t kFewKeys = 32;
const std::vector<int64_t> kKeyTiles{kFewKeys, 64, 80, 96, 112, 128, 144, 160, 176};

class PreparedAttention final : public Prepared {
 public:
  explicit PreparedAttention(Problem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    return {
        {"consumers", kConsumerCounts}, {"tile_k", kKeyTiles}, {"ping_pong", {0, 1}}, {"persistent", {0, 1}}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t consumers : kConsumerCounts)
      for (const int64_t tile_k : kKeyTiles)
        if (tile_k != kFewKeys && fits(consumers, tile_k)) add_variants(consumers, tile_k, list);
    if (list.empty() && fits(2, kFewKeys)) add_variants(2, kFewKeys, list);
    return list;
  }

  Notes notes() const override {
    return problem_.of_bytes() ? kShortNotes : problem_.scores.softens ? kNotes : kPlainNotes;
  }

  Lowered lower(const EngineConfig& config) const override {
    return attention::lower(Schedule(problem_, knobs_of<Knobs>(config)));
  }

 private:
  bool fits(int64_t consumers, int64_t tile_k) const {
    return Schedule(problem_, {.consumers = consumers, .tile_k = tile_k}).fits();
  }

  // Two consumers may take turns, three have no registers to wait in. In fp8 turns were 2 to 6 % slower on an
  // H200 (2026-11), without a softmax up to 7 % (2026-12): of candidates that cost the same the first is
  // chosen.
  void add_variants(int64_t consumers, int64_t tile_k, std::vector<EngineCandidate>& list) const {
    const int64_t first = problem_.of_bytes() || !problem_.scores.softens ? 0 : 1;
    for (const int64_t ping_pong : {first, 1 - first})
      for (const int64_t persistent : {1, 0}) {
        if (consumers == 3 && ping_pong != 0) continue;
        const Knobs knobs{consumers, tile_k, ping_pong, persistent};
        list.push_back({config_of(attention_engine(), knobs), cost(Schedule(problem_, knobs))});
      }
  }

  const Problem problem_;
};

class AttentionEngine final : public Engine {
 public:
  std::string_view name() const override { return "attention"; }
  int number() const override { return 35; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_other_than_hopper(device)) return std::move(*refusal);
    auto problem = problem_of(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&problem)) return std::move(*refusal);
    auto prepared = std::make_unique<const PreparedAttention>(std::move(std::get<Problem>(problem)));
    if (!prepared->candidates().empty()) return prepared;
    return refuse_attention(fusion, "shared-tiles", "", "tiles that shared memory holds", "larger heads");
  }
};

}  // namespace

const Engine& attention_engine() {
  static const AttentionEngine engine;
  return engine;
}

}  // namespace fusor
