// Owns the memory of what engines offered for a fusion, so that a layer of a network is priced once, however
// often it occurs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/planner/prepared_fusion.h"

namespace fusor {

/// What one engine answered to a fusion: its settings and their estimated seconds; none where it refuses.
struct PricedAnswer {
  const Engine* engine = nullptr;
  std::vector<std::pair<EngineConfig, double>> options;
  int refused_at = -1;  ///< position in Fusion::ops of the op that the refusal names, or -1
};

/// The answers of the built-in engines, in their order; equal for fusions that differ in names alone. Shared
/// by all threads of the process; remembers the last few hundred fusions.
std::shared_ptr<const std::vector<PricedAnswer>> priced(PreparedFusion& prepared);

/// One engine, whatever is remembered.
PricedAnswer ask_engine(const Engine& engine, PreparedFusion& prepared);

}  // namespace fusor
