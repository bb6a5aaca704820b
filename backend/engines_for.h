// Owns engines_for: who could carry out each fusion of a graph, with which settings.
#pragma once

#include <string>
#include <vector>

#include "backend/report/explain.h"
#include "core/api.h"
#include "core/engine_config.h"

namespace fusor {

/// One setting of an engine's knobs.
struct EngineSetting {
  EngineConfig config;
  double seconds = 0;  ///< estimated, or its measured time
  bool measured = false;
};

/// One engine's answer to one fusion, and where it accepts, what it offers.
struct EngineOffer {
  EngineAnswer answer;                  ///< a refusal is data: rule, op, tensor, expected, actual, remedy
  std::vector<Knob> knobs;              ///< and the values that each may take
  std::vector<EngineSetting> settings;  ///< the combinations that are worth a try, best first
};

/// A fusion of the partition that build() chooses.
struct FusionEngines {
  std::vector<std::string> ops;      ///< names
  std::vector<EngineOffer> engines;  ///< in the order in which they are asked
};

/// Fusions in run order. Compiles nothing and needs no GPU. Throws as build() does.
FUSOR_API std::vector<FusionEngines> engines_for(const Graph& graph, const DeviceInfo& device,
                                                 const BuildOptions& options = {});

}  // namespace fusor
