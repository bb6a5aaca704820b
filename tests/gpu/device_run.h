// Owns DeviceRun: a graph run on the GPU with everything around it poisoned, and held against the oracle.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "backend/planning.h"
#include "backend/verify.h"
#include "codegen/cuda_driver.h"

namespace fusor {

/// Skips the test, with the reason, where no GPU can be used.
#define FUSOR_NEEDS_GPU()                                                \
  do {                                                                   \
    std::string fusor_problem;                                           \
    if (!cuda::available(&fusor_problem)) GTEST_SKIP() << fusor_problem; \
    cuda::make_current();                                                \
  } while (false)

/// Host and device copies of every bound tensor, with guard bands around them; outputs, stride gaps and
/// workspace full of poison.
class DeviceRun {
 public:
  explicit DeviceRun(const Graph& graph, uint64_t seed = 1)
      : DeviceRun(graph, build(graph, DeviceInfo::current()), seed) {}
  DeviceRun(const Graph& graph, const Plan& plan, uint64_t seed = 1);

  /// Gives an input that lies in row-major order, or a scalar by value, other values; `write` is handed its
  /// bytes.
  void edit(const std::string& tensor, const std::function<void(std::byte*)>& write);
  /// Runs once and fetches the outputs.
  void run(Stream stream = nullptr);
  /// Runs without fetching (for captures).
  void launch(Stream stream);
  void fetch();
  /// Poison is where it was wherever no element lies.
  testing::AssertionResult gaps_are_untouched() const;
  VerifyReport check(uint64_t seed = 1);
  const std::vector<std::byte>& host(const std::string& tensor) const;
  const Executable& executable() const { return executable_; }
  std::vector<void*> slots() const;

 private:
  struct Buffer {
    int tensor = -1;
    bool written = false;
    cuda::DeviceBuffer device;
    std::vector<std::byte> bytes;  // guard band, tensor, guard band
  };
  void poison(Buffer& buffer) const;
  void* device_pointer(const Buffer& buffer) const;

  Graph graph_;
  Executable executable_;
  std::vector<Buffer> buffers_;  // one per tensor of the graph; empty for virtual ones
  cuda::DeviceBuffer workspace_;
};

/// Runs the graph and expects agreement with the oracle and untouched poison.
void expect_correct(const Graph& graph, const std::string& what);
/// The same for the first candidate within the options and one in three of the others
/// (tests/support/sample.h).
void expect_every_candidate_correct(const Graph& graph, const std::string& what,
                                    const PlannerOptions& options = {});

}  // namespace fusor
