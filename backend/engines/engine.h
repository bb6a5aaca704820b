// Owns Engine: what every engine is. The ordered list of them is backend/engines/list.h.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/device_info.h"
#include "core/engine_config.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/plan.h"
#include "core/support.h"
#include "core/work.h"

namespace fusor {

/// A setting of an engine's knobs and what it costs.
struct EngineCandidate {
  EngineConfig config;
  Work work;
};

/// A stateless way to carry out fusions. Every function is pure: no driver, no compilation, microseconds.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  /// Stable and never reused, beside the name.
  virtual int number() const = 0;
  /// Raised when a knob's meaning changes: plans of another revision are planned anew.
  virtual int revision() const { return 1; }
  virtual Notes notes() const { return {}; }
  /// What differs from fusion to fusion besides.
  virtual Notes notes_on(const Fusion& /*fusion*/) const { return notes(); }

  virtual Support supports(const Fusion& fusion, const DeviceInfo& device) const = 0;
  /// The knobs and their values; only for fusions that it supports, like everything below.
  virtual std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& device) const = 0;
  /// At least one, in no order.
  virtual std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const = 0;
  virtual Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const = 0;
};

}  // namespace fusor
