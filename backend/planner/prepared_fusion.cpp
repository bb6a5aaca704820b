// Owns the memory of what engines prepared for one fusion.
#include "backend/planner/prepared_fusion.h"

#include <algorithm>

#include "backend/engines/rules.h"
#include "core/fail.h"

namespace fusor {

const PreparedOr& PreparedFusion::answer_of(const Engine& engine) {
  const auto known = std::ranges::find(answers_, &engine, &std::pair<const Engine*, PreparedOr>::first);
  if (known != answers_.end()) return known->second;
  if (auto refusal = refuse_packed(fusion_, engine.packed_access()))
    return answers_.emplace_back(&engine, std::move(*refusal)).second;
  if (auto refusal = refuse_blocks(fusion_, engine.takes_blocks()))
    return answers_.emplace_back(&engine, std::move(*refusal)).second;
  if (auto refusal = refuse_composites(fusion_, engine))
    return answers_.emplace_back(&engine, std::move(*refusal)).second;
  return answers_.emplace_back(&engine, engine.prepare(fusion_, device_)).second;
}

const Prepared& PreparedFusion::by(const Engine& engine) {
  const PreparedOr& answer = answer_of(engine);
  if (const auto* refusal = std::get_if<Refusal>(&answer))
    fail(ErrorKind::internal, "engine '{}' is to carry out what it refuses: {}", engine.name(),
         to_string(*refusal));
  return *std::get<std::unique_ptr<const Prepared>>(answer);
}

}  // namespace fusor
