// Owns what tests ask of an engine about one fusion, in one call each.
#pragma once

#include "backend/engines/engine.h"

namespace fusor::test {

inline Support supports(const Engine& engine, const Fusion& fusion, const DeviceInfo& device) {
  PreparedOr answer = engine.prepare(fusion, device);
  if (auto* const refusal = std::get_if<Refusal>(&answer)) return Support::no(std::move(*refusal));
  return Support::yes();
}

/// Asks about a fusion that the engine takes, like everything below: otherwise this throws.
inline std::unique_ptr<const Prepared> prepared(const Engine& engine, const Fusion& fusion,
                                                const DeviceInfo& device) {
  return std::get<std::unique_ptr<const Prepared>>(engine.prepare(fusion, device));
}

inline Notes notes(const Engine& engine, const Fusion& fusion, const DeviceInfo& device) {
  return prepared(engine, fusion, device)->notes();
}
inline std::vector<Knob> knobs(const Engine& engine, const Fusion& fusion, const DeviceInfo& device) {
  return prepared(engine, fusion, device)->knobs();
}
inline std::vector<EngineCandidate> candidates(const Engine& engine, const Fusion& fusion,
                                               const DeviceInfo& device) {
  return prepared(engine, fusion, device)->candidates();
}
inline Lowered lower(const Engine& engine, const Fusion& fusion, const EngineConfig& config,
                     const DeviceInfo& device) {
  return prepared(engine, fusion, device)->lower(config);
}

}  // namespace fusor::test
