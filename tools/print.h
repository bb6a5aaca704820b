// Owns the forms in which the command prints choices and documents.
#pragma once

#include <string>
#include <vector>

#include "backend/planning.h"
#include "codegen/kernel_cache.h"
#include "core/plan.h"
#include "serialization/report.h"

namespace fusor::command {

/// Writes to standard output; a full disk or a closed pipe is an Error.
void print(const std::string& text);
void print(const Report& report);

/// A compiled kernel of a plan.
struct ShownKernel {
  PlannedKernel planned;
  std::shared_ptr<const CompiledKernel> compiled;  ///< null where nothing was to be compiled
};
/// Every kernel of the plan, compiled (in parallel) where asked for.
std::vector<ShownKernel> shown_kernels(const Plan& plan, bool compile);

/// One choice for the whole graph: fusions, estimate, workspace, notes.
Report choice_report(const Candidate& candidate);
/// One line a fusion.
std::string choice_text(const Graph& graph, const std::vector<PlannedFusion>& fusions);
Report kernels_report(const std::vector<ShownKernel>& kernels);
std::string kernels_text(const std::vector<ShownKernel>& kernels);
/// "deterministic, tensor cores": what holds, in words.
std::string notes_text(const Notes& notes);

}  // namespace fusor::command
