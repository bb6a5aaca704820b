// Owns what a device profile says that no data sheet does: which constants are measured, and how they follow
// from times.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/build.h"
#include "core/device_info.h"
#include "core/graph.h"

namespace fusor::command {

/// The device that is asked; tests ask a model instead.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// Seconds of each candidate, with empty caches; nothing for one that does not run.
  virtual std::vector<std::optional<double>> times(const Graph& graph,
                                                   std::span<const Candidate> candidates) = 0;
  /// Seconds of so many runs of the candidate, one right behind the other.
  virtual double in_a_row(const Graph& graph, const Candidate& candidate, int runs) = 0;
};

struct MeasuredConstant {
  std::string name;  ///< a field of DeviceInfo
  double before = 0, after = 0;
  std::string how;
};

struct Calibration {
  DeviceInfo device;
  std::vector<MeasuredConstant> constants;
  std::vector<std::string> remarks;  ///< what could not be measured, and stays as it was
};

/// Told before each step: how many are done, of how many, and what comes.
using StepTold = std::function<void(size_t done, size_t all, const std::string& what)>;

/// The profile of a GPU, its rates measured as far as they can be. Rates of CUDA cores stay: clock and
/// multiprocessors give them.
Calibration calibrate(const DeviceInfo& described, Stopwatch& stopwatch, const StepTold& told = {});

}  // namespace fusor::command
