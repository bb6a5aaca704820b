// Owns the way from a graph to a plan; this file is the library's table of contents:
// validate, expand, fold, partition, choose (all in choose()), lower, lay out, compile.
#include "backend/build.h"

#include <algorithm>

#include "backend/choose.h"
#include "backend/engines/list.h"
#include "backend/replan.h"
#include "backend/schedule.h"
#include "codegen/kernel_cache.h"
#include "core/fail.h"

namespace fusor {

namespace {

// The choice with option `option` of fusion `varied`, and the cheapest options of all others.
Candidate make_candidate(const Choices& choices, const DeviceInfo& device, size_t varied, size_t option) {
  Candidate candidate;
  std::vector<ScheduledFusion> fusions;
  for (size_t i = 0; i < choices.fusions.size(); ++i) {
    const Choice& choice = choices.fusions[i];
    const EngineOption& chosen = choice.options[i == varied ? option : 0];
    candidate.fusions.push_back({choice.fusion.ops, chosen.config});
    candidate.seconds += chosen.seconds;
    candidate.notes.join(chosen.engine->notes_on(choice.fusion));
    fusions.push_back({choice.fusion, chosen.engine->lower(choice.fusion, chosen.config, device), {}});
  }
  candidate.workspace_bytes = make_schedule(choices.graph, std::move(fusions)).workspace_bytes;
  return candidate;
}

bool fits(const Candidate& candidate, const BuildOptions& options) {
  return options.max_workspace < 0 || candidate.workspace_bytes <= options.max_workspace;
}

std::vector<Candidate> all_candidates(const Choices& choices, const DeviceInfo& device,
                                      const BuildOptions& options) {
  const auto dearest =
      std::ranges::max_element(choices.fusions, {}, [](const Choice& c) { return c.options[0].seconds; });
  const auto varied = static_cast<size_t>(dearest - choices.fusions.begin());
  std::vector<Candidate> found;
  const size_t count = std::min(dearest->options.size(), static_cast<size_t>(options.max_candidates));
  for (size_t option = 0; option < count; ++option)
    found.push_back(make_candidate(choices, device, varied, option));
  return found;
}

[[noreturn]] void refuse_workspace(const std::vector<Candidate>& found, const BuildOptions& options) {
  const auto least = std::ranges::min_element(found, {}, &Candidate::workspace_bytes);
  fail("no candidate needs at most {} bytes of workspace; the smallest of {} needs {}", options.max_workspace,
       found.size(), least->workspace_bytes);
}

// Of a plan that was made here, or checked.
std::vector<PlannedKernel> lowered_kernels(const Plan& plan, std::span<const Engine* const> engine_list) {
  const auto list = engine_list.empty() ? engines() : engine_list;
  const FoldedGraph folded = fold_views(plan.graph);
  std::vector<PlannedKernel> found;
  for (size_t i = 0; i < plan.fusions.size(); ++i) {
    const EngineConfig& config = plan.fusions[i].config;
    const Engine* engine = find_engine(list, config.engine);
    const Fusion fusion = make_fusion(plan.graph, folded, plan.fusions[i].ops);
    for (Step& step : engine->lower(fusion, config, plan.device).steps)
      if (auto* launch = std::get_if<Launch>(&step))
        found.push_back({static_cast<int>(i), fusion, std::move(*launch)});
  }
  return found;
}

void compile_kernels(const Plan& plan, std::span<const Engine* const> list) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const PlannedKernel& kernel : lowered_kernels(plan, list)) sources.push_back(kernel.launch.source);
  compiled_kernels(sources);
}

Plan make_plan(const Choices& choices, const DeviceInfo& device, const Candidate& candidate,
               const BuildOptions& options) {
  Plan plan{choices.graph,   device, candidate.fusions, candidate.workspace_bytes, candidate.seconds,
            candidate.notes, {}};
  if (options.compile && !device.is_cpu()) compile_kernels(plan, options.engine_list);
  return plan;
}

}  // namespace

std::vector<Candidate> candidates(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  std::vector<Candidate> found = all_candidates(choose(graph, device, options), device, options);
  if (std::ranges::none_of(found, [&](const Candidate& c) { return fits(c, options); }))
    refuse_workspace(found, options);
  std::erase_if(found, [&](const Candidate& c) { return !fits(c, options); });
  return found;
}

Plan build(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  const Choices choices = choose(graph, device, options);
  Candidate best = make_candidate(choices, device, 0, 0);
  if (!fits(best, options)) {
    const std::vector<Candidate> found = all_candidates(choices, device, options);
    const auto fitting = std::ranges::find_if(found, [&](const Candidate& c) { return fits(c, options); });
    if (fitting == found.end()) refuse_workspace(found, options);
    best = *fitting;
  }
  return make_plan(choices, device, best, options);
}

Plan build(const Graph& graph, const DeviceInfo& device, const Candidate& candidate,
           const BuildOptions& options) {
  const Choices choices = choose(graph, device, options);
  return make_plan(choices, device, candidate, options);
}

std::vector<PlannedKernel> kernels(const Plan& plan, std::span<const Engine* const> engine_list) {
  return lowered_kernels(checked_plan(plan, engine_list), engine_list);
}

}  // namespace fusor
