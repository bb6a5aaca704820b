// Owns NVTX ranges: names that profilers (Nsight Systems, Nsight Compute) show beside the kernels launched in
// them.
#pragma once

namespace fusor::nvtx {

/// Names what the calling thread does while it lives. Costs a few nanoseconds where no profiler listens, and
/// nothing in a build without NVTX's headers, which come with the CUDA toolkit. Allocates nothing.
class Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

/// Looks for a profiler once, so that no run has to.
void start();

}  // namespace fusor::nvtx
