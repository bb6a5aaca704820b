// Owns the pricing of fusions and what is remembered of it.
#include "backend/planner/prices.h"

#include <algorithm>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "backend/engines/list.h"
#include "core/hash.h"
#include "heuristics/time_model.h"
#include "heuristics/tuning.h"

namespace fusor {

namespace {

using Answers = std::shared_ptr<const std::vector<PricedAnswer>>;

constexpr size_t kMostRemembered = 512;

// Everything that an answer may depend on: the fusion without names, where its buffers are promised to lie,
// and the device.
std::string key_of(const Fusion& fusion, const DeviceInfo& device) {
  Hasher hasher;
  hasher.add(std::string_view(fusion_key(fusion)));
  // A refusal names an op by its place; ops that leave nothing to compute are no part of the key.
  hasher.add(static_cast<int64_t>(fusion.ops.size()));
  for (const Operand& operand : fusion.operands) hasher.add(operand.memory).add(operand.zero_gaps ? 1 : 0);
  DeviceInfo::visit(device, [&](std::string_view, const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::string>)
      hasher.add(std::string_view(field));
    else
      hasher.add(field);
  });
  return hasher.hex();
}

class RememberedAnswers {
 public:
  Answers find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = answers_.find(key);
    return found == answers_.end() ? nullptr : found->second;
  }
  void keep(const std::string& key, Answers answers) {
    const std::lock_guard lock(mutex_);
    if (answers_.size() >= kMostRemembered) answers_.clear();
    answers_.emplace(key, std::move(answers));
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Answers> answers_;
};

RememberedAnswers& remembered() {
  static RememberedAnswers answers;
  return answers;
}

}  // namespace

PricedAnswer ask_engine(const Engine& engine, PreparedFusion& prepared) {
  PricedAnswer answer{&engine, {}, -1};
  if (const Refusal* const refusal = prepared.refusal_of(engine)) {
    const std::vector<int>& ops = prepared.fusion().ops;
    const auto at = std::ranges::find(ops, refusal->op);
    if (at != ops.end()) answer.refused_at = static_cast<int>(at - ops.begin());
    return answer;
  }
  for (EngineCandidate& candidate : prepared.by(engine).candidates())
    answer.options.emplace_back(std::move(candidate.config),
                                estimate_seconds(candidate.work, prepared.device()));
  return answer;
}

Answers priced(PreparedFusion& prepared) {
  const std::string key = key_of(prepared.fusion(), prepared.device());
  if (Answers known = remembered().find(key)) return known;
  auto answers = std::make_shared<std::vector<PricedAnswer>>();
  for (const Engine* engine : engines()) answers->push_back(ask_engine(*engine, prepared));
  remembered().keep(key, answers);
  return answers;
}

}  // namespace fusor
