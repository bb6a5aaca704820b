// Owns Engine and Prepared: what every engine is, and what it knows of one fusion. The ordered list of
// engines is backend/engines/list.h.
#pragma once

#include <memory>
#include <string_view>
#include <variant>
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

/// A fusion as one engine sees it on one device: whatever it derives from them is derived once.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;

  /// The knobs and their values: a setting of a plan is one of these.
  virtual std::vector<Knob> knobs() const = 0;
  /// At least one, in no order.
  virtual std::vector<EngineCandidate> candidates() const = 0;
  /// The engine's, with what differs from fusion to fusion.
  virtual Notes notes() const = 0;
  virtual Lowered lower(const EngineConfig& config) const = 0;
};

/// Says whether an engine's kernels load and store packed elements, several of which share a byte.
struct PackedAccess {
  bool loads = false;
  bool stores = false;
};

using PreparedOr = std::variant<Refusal, std::unique_ptr<const Prepared>>;

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
  /// Fusions with other accesses to packed elements are refused before prepare() is asked.
  virtual PackedAccess packed_access() const { return {}; }

  /// Fusions with an operand whose site counts blocks along an axis (Port::whole) are refused for other
  /// engines before prepare() is asked.
  virtual bool takes_blocks() const { return false; }
  /// Fusions around an op that stays whole, such as a recurrence, are refused for other engines before
  /// prepare() is asked.
  virtual bool takes_composite(const Attributes&) const { return false; }

  /// A refusal, or the fusion prepared. The fusion and the device outlive what was prepared of them.
  virtual PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const = 0;
};

}  // namespace fusor
