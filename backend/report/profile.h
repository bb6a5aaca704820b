// Owns Profile: where the time of a run goes, by fusion and by kernel, beside the estimate and the device's
// limit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/plan.h"

namespace fusor {

struct ProfileOptions {
  int runs = 20;     ///< that are timed; their medians are reported
  int warm_ups = 3;  ///< before them
  /// Called before each timed run, by the thread that profiles: to empty caches, for example. What it queues
  /// on the stream is not timed, and gives the driver a lead that hides the cost of launching short kernels.
  std::function<void()> before_run = {};
};

/// One kernel launch, fill, or (CPU device) evaluation of a fusion.
struct StepProfile {
  std::string name;    ///< the kernel's entry, "fill" or "evaluate"
  double seconds = 0;  ///< median
};

struct FusionProfile {
  std::vector<std::string> ops;  ///< names
  EngineConfig config;
  double seconds = 0;              ///< median of its steps' sum
  double estimated_seconds = 0;    ///< by the time model, or a tuning table; 0 where neither knows
  double bytes = 0;                ///< read and written at least: every tensor once
  double flops = 0;                ///< of its contractions
  std::string bound;               ///< "memory", "tensor cores", "CUDA cores" or "arithmetic"
  double limit_seconds = 0;        ///< that what bounds it would take alone
  std::vector<StepProfile> steps;  ///< in run order

  /// 1 where nothing could be faster; 0 where there is no limit.
  double fraction_of_limit() const { return seconds > 0 ? limit_seconds / seconds : 0; }
};

struct Profile {
  std::string graph, device;
  int runs = 0;
  double seconds = 0;            ///< of a whole run, timed apart from its steps: median
  double estimated_seconds = 0;  ///< the plan's
  std::vector<FusionProfile> fusions;
};

/// A table for people: one line a fusion, and one a kernel where a fusion has several.
FUSOR_API std::string to_string(const Profile& profile);

}  // namespace fusor
