// Owns what FUSOR_DEBUG tells on stderr: a line for each build, load and run, and the passes of a build.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_cache.h"
#include "core/plan.h"

namespace fusor {

struct Choices;
struct FoldedGraph;

/// One build, load or run under observation. Where FUSOR_DEBUG is not set, every function returns at once.
class Trace {
 public:
  Trace();
  bool is_on() const { return level_ > 0; }

  // The passes of a build, each after it is done.
  void expanded(const Graph& graph) const;
  void partitioned(const Graph& graph, const FoldedGraph& folded,
                   const std::vector<std::vector<int>>& groups) const;
  void priced(const Choices& choices) const;
  void ordered(const Choices& choices) const;

  /// Where the kernels came from, for the line that follows.
  void compiled(std::span<const std::shared_ptr<const CompiledKernel>> kernels);
  void built(const Plan& plan) const { tell("build", plan); }
  void loaded(const Plan& plan) const { tell("load", plan); }

 private:
  void tell(const char* what, const Plan& plan) const;

  int level_;
  std::chrono::steady_clock::time_point start_;
  int from_memory_ = 0, from_disk_ = 0, compiled_ = 0;
};

/// The line of a run.
void trace_run(const Plan& plan, size_t steps);

}  // namespace fusor
