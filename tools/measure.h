// Owns the timing of runs: caches emptied by reading before each, several subjects in turn.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "codegen/cuda_driver.h"
#include "tools/commands.h"
#include "tools/run_buffers.h"

namespace fusor::command {

using Seconds = double;

/// The device that is to be measured. Without --device there must be a GPU: a CPU would be busy for hours.
DeviceInfo measured_device(const Options& options);

/// Sums a buffer larger than any cache, so that nothing of the next run's data is near. It only reads: dirty
/// lines that a write leaves behind would be paid for by the run that follows.
class Flusher {
 public:
  Flusher(const DeviceInfo& device, int64_t bytes);
  void operator()() const;

 private:
  bool on_gpu_;
  HostBuffer host_;
  int64_t host_words_ = 0;
  cuda::DeviceBuffer x_, y_, workspace_;
  std::unique_ptr<Executable> sum_;
  std::vector<void*> slots_;
};

struct MeasureOptions {
  int runs = 50;         ///< of each subject
  int warm_ups = 3;      ///< of each, not counted
  Seconds budget = 1e9;  ///< no further round is begun after so long, but five are
  bool on_gpu = true;
  std::function<void()> after_round = {};
  /// Whether enough is known; asked after each round from the third on.
  std::function<bool(std::span<const std::vector<Seconds>>)> done = {};
};

/// One run: between two events of a timer, or the call itself where there is none (the CPU's runs).
Seconds timed(const std::function<void()>& run, cuda::Timer* timer);

/// Times every subject once a round, so that what drifts drifts for all. A GPU's times are those between two
/// events; the CPU's those of the call. Returns each subject's times.
std::vector<std::vector<Seconds>> measure_in_turn(std::span<const std::function<void()>> subjects,
                                                  const Flusher& flush, const MeasureOptions& options);

}  // namespace fusor::command
