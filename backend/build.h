// Owns build: the way from a Graph to a Plan. Its .cpp shows the passes in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"
#include "core/plan.h"
#include "core/tuning_table.h"

namespace fusor {

/// The value of BuildOptions::max_workspace that sets no limit.
inline constexpr int64_t kNoWorkspaceLimit = -1;

/// Which kernels a build chooses from. A server that meets many shapes would compile one at many of them.
enum class KernelChoice : uint8_t {
  best,           ///< the cheapest, by measurement or estimate
  best_effort,    ///< those in the cache, where they cost at most 10 % more than the cheapest
  only_compiled,  ///< those in the cache: Error{bad_input} where a fusion has none
};
FUSOR_API std::string_view to_string(KernelChoice kernels);

struct BuildOptions {
  std::vector<std::string> forbid = {};  ///< engines that must not be used
  /// Bytes. Without a limit a plan for a GPU still keeps to a quarter of its memory, where it can.
  int64_t max_workspace = kNoWorkspaceLimit;
  int max_candidates = 16;  ///< the most that candidates() returns; below 1 is Error{bad_input}
  bool compile = true;      ///< compile into the kernel cache now (in parallel); a GPU is not needed
  KernelChoice kernels = KernelChoice::best;
  /// Measured times that go before estimates; null: the user's table (backend/user_tuning.h).
  const TuningTable* tuning = nullptr;
};

/// Ways to run the whole graph, best estimate first, then variations of its dearest fusion.
FUSOR_API std::vector<Candidate> candidates(const Graph& graph, const DeviceInfo& device,
                                            const BuildOptions& options = {});

/// Plans the graph: candidates().front() within the options' limits, its kernels compiled.
/// Throws Error{bad_input} for an invalid graph or limits that nothing meets, Error{missing} where kernels
/// must be compiled and there is no NVRTC.
FUSOR_API Plan build(const Graph& graph, const DeviceInfo& device, const BuildOptions& options = {});
/// The plan of one chosen candidate of this graph.
FUSOR_API Plan build(const Graph& graph, const DeviceInfo& device, const Candidate& candidate,
                     const BuildOptions& options = {});

/// The generated CUDA of every kernel of the plan, with the user's names as comments and the command that
/// compiles it alone. Names no file of this machine.
FUSOR_API std::string source(const Plan& plan);

}  // namespace fusor
