// Owns PreparedFusion: a fusion, and what every engine prepared for it.
#pragma once

#include <utility>
#include <vector>

#include "backend/engines/engine.h"

namespace fusor {

/// Asks an engine when its answer is first needed, and never twice. Refers to the device. For one thread at a
/// time.
class PreparedFusion {
 public:
  PreparedFusion(Fusion fusion, const DeviceInfo& device) : fusion_(std::move(fusion)), device_(device) {}
  PreparedFusion(const PreparedFusion&) = delete;
  PreparedFusion& operator=(const PreparedFusion&) = delete;

  const Fusion& fusion() const { return fusion_; }
  const DeviceInfo& device() const { return device_; }

  /// Null where the engine takes the fusion.
  const Refusal* refusal_of(const Engine& engine) { return std::get_if<Refusal>(&answer_of(engine)); }
  /// The fusion as prepared by an engine that takes it.
  const Prepared& by(const Engine& engine);

 private:
  const PreparedOr& answer_of(const Engine& engine);

  const Fusion fusion_;
  const DeviceInfo& device_;
  std::vector<std::pair<const Engine*, PreparedOr>> answers_;
};

}  // namespace fusor
