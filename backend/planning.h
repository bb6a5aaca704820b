// Owns what the library's own rooms, tools and tests ask of a build beyond the public surface: given engines,
// and the kernels of a plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/engines/engine.h"
#include "backend/executable.h"
#include "backend/report/explain.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

struct PlannerOptions {
  BuildOptions build = {};
  /// The engines asked, in order; empty: backend/engines/list.h.
  std::span<const Engine* const> engine_list = {};
};

std::vector<Candidate> candidates(const Graph& graph, const DeviceInfo& device,
                                  const PlannerOptions& options);
Plan build(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options);
Plan build(const Graph& graph, const DeviceInfo& device, const Candidate& candidate,
           const PlannerOptions& options);
Explanation explain_data(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options);
std::string explain(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options,
                    Detail detail = Detail::all);
Executable load(const Plan& plan, std::span<const Engine* const> engine_list);

/// One kernel of a plan.
struct PlannedKernel {
  int fusion = 0;  ///< index into Plan::fusions
  Fusion description;
  Launch launch;
};
/// Every distinct kernel that the plan's steps launch, in order. Choices of the plan that do not hold are
/// made anew first, as load() does.
std::vector<PlannedKernel> kernels(const Plan& plan);

/// A kernel as a person reads it, with the user's names as comments.
struct KernelText {
  int fusion = 0;  ///< index into Plan::fusions
  std::string entry;
  std::string root;       ///< the device file that includes the generated header: "codegen/device/..."
  std::string header;     ///< comments: the kernel, its fusion and engine
  std::string command;    ///< that compiles `text` alone, as "kernel.cu"
  std::string generated;  ///< the generated header: configuration, parameters, sites
  std::string text;       ///< the device files with the generated header in its place
};
/// Every distinct kernel of the plan. Names no file of this machine.
std::vector<KernelText> kernel_texts(const Plan& plan);
/// The header, the command and the text: a file that compiles alone.
std::string file_text(const KernelText& kernel);

}  // namespace fusor
