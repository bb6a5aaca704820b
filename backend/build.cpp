// Owns the way from a graph to a plan; this file is the library's table of contents. The passes, in order:
// validate, expand, fold views, partition, form fusions, prepare, price and cut (choose_fusions), order, then
// select, lower and lay out (Fitting), compile, plan.
#include "backend/build.h"

#include <algorithm>

#include "backend/choose.h"
#include "backend/engines/recurrent/stays_whole.h"
#include "backend/engines/sm90/wgmma/experts.h"
#include "backend/fitting.h"
#include "backend/replan.h"
#include "backend/report/trace.h"
#include "backend/report/type_remarks.h"
#include "backend/side_by_side.h"
#include "codegen/kernel_cache.h"
#include "core/fail.h"
#include "core/infer.h"
#include "core/words.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace {

void expect_sensible(const BuildOptions& options) {
  if (options.max_workspace < kNoWorkspaceLimit)
    fail("max_workspace is {}; it is a number of bytes, or {} for no limit", options.max_workspace,
         kNoWorkspaceLimit);
  if (options.max_candidates < 1)
    fail("max_candidates is {}; it is a number of 1 or more", options.max_candidates);
}

// The composite ops that engines carry out whole.
StaysWhole whole_composites(const DeviceInfo& device, const PlannerOptions& options) {
  std::vector<StaysWhole> all;
  for (StaysWhole each : {recurrences_of(device, options), wgmma::matmuls_by_experts(device, options)})
    if (each) all.push_back(std::move(each));
  if (all.empty()) return {};
  return [all = std::move(all)](const Graph& graph, const Op& op) {
    return std::ranges::any_of(all, [&](const StaysWhole& each) { return each(graph, op); });
  };
}

void expect_device(const DeviceInfo& device) {
  if (const auto problem = problem_with(device))
    fail("device '{}': {}: {}", device.name, problem->key, problem->why);
}

int64_t limit_of(const BuildOptions& options) {
  return options.max_workspace == kNoWorkspaceLimit ? INT64_MAX : options.max_workspace;
}

// Where no limit is said, a GPU keeps most of its memory for the user, if it can.
Selection select(Fitting& fitting, const BuildOptions& options, const DeviceInfo& device) {
  constexpr int64_t kShare = 4;
  int64_t least = 0;
  const bool is_said = options.max_workspace != kNoWorkspaceLimit;
  if (!is_said && !device.is_cpu() && device.memory_bytes > 0)
    for (const int64_t most : {device.memory_bytes / kShare, device.memory_bytes})
      if (auto selection = fitting.within(most, least)) return std::move(*selection);
  if (auto selection = fitting.within(limit_of(options), least)) return std::move(*selection);
  fail("no candidate needs at most {} bytes of workspace; the smallest needs {}", options.max_workspace,
       least);
}

// `graph`: the choices' graph, for candidates that are handed out.
Candidate candidate_of(const Choices& choices, const DeviceInfo& device, Fitting& fitting,
                       const Selection& selection, std::shared_ptr<const Graph> graph = nullptr) {
  Candidate candidate;
  candidate.graph = std::move(graph);
  for (size_t i = 0; i < selection.size(); ++i) {
    const Choice& choice = choices.fusions[i];
    const EngineOption& chosen = choice.options[selection[i]];
    candidate.fusions.push_back({choice.fusion().ops, chosen.config});
    candidate.seconds += chosen.seconds;
    candidate.notes.join(choice.by(chosen).notes());
  }
  candidate.seconds = seconds_in_turn(candidate.seconds, selection.size(), device);
  candidate.workspace_bytes = fitting.workspace_bytes(selection);
  return candidate;
}

std::vector<std::shared_ptr<const KernelSource>> sources_of(std::span<const ScheduledFusion> fusions) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const ScheduledFusion& scheduled : fusions)
    for (const Step& step : scheduled.lowered.steps)
      if (const auto* launch = std::get_if<Launch>(&step)) sources.push_back(launch->source);
  return sources;
}

std::vector<std::string> remarks_on(const Graph& graph, const DeviceInfo& device, int64_t workspace_bytes) {
  if (device.is_cpu()) return {};
  std::vector<std::string> remarks = type_remarks(graph);
  if (device.memory_bytes > 0 && workspace_bytes > device.memory_bytes)
    remarks.push_back(fmt::format("it needs {} of workspace; {} has {} of memory",
                                  words::bytes(static_cast<double>(workspace_bytes)), device.name,
                                  words::bytes(static_cast<double>(device.memory_bytes))));
  return remarks;
}

Plan plan_of(const Graph& graph, const DeviceInfo& device, const Candidate& candidate) {
  return {graph,
          device,
          candidate.fusions,
          candidate.workspace_bytes,
          candidate.seconds,
          candidate.notes,
          remarks_on(graph, device, candidate.workspace_bytes)};
}

}  // namespace

std::string_view to_string(KernelChoice kernels) {
  switch (kernels) {
    case KernelChoice::best:
      return "best";
    case KernelChoice::best_effort:
      return "best_effort";
    case KernelChoice::only_compiled:
      return "only_compiled";
  }
  return "?";
}

Choices choose(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options,
               bool keep_decisions) {
  const Trace trace;
  validate(graph);
  expect_device(device);
  Choices choices;
  choices.overlap = launches_overlap(device);
  choices.graph = expand(graph, whole_composites(device, options));
  trace.expanded(choices.graph);
  choices.folded = fold_views(choices.graph);
  const std::vector<std::vector<int>> groups = partition(choices.graph, choices.folded);
  trace.partitioned(choices.graph, choices.folded, groups);
  choose_fusions(choices, groups, device, options, keep_decisions);
  trace.priced(choices);
  order_fusions(choices);
  trace.ordered(choices);
  return choices;
}

Best best_of(const Choices& choices, const DeviceInfo& device, const PlannerOptions& options) {
  expect_sensible(options.build);
  Fitting fitting(choices);
  const Selection selection = select(fitting, options.build, device);
  return {candidate_of(choices, device, fitting, selection, std::make_shared<const Graph>(choices.graph)),
          fusions_beside(choices.graph, fitting.schedule(selection), device)};
}

std::vector<Candidate> candidates(const Graph& graph, const DeviceInfo& device,
                                  const PlannerOptions& options) {
  expect_sensible(options.build);
  const Choices choices = choose(graph, device, options);
  Fitting fitting(choices);
  const Selection best = select(fitting, options.build, device);
  const auto planned = std::make_shared<const Graph>(choices.graph);
  std::vector<Candidate> found = {candidate_of(choices, device, fitting, best, planned)};
  const auto seconds = [&](size_t i) { return choices.fusions[i].options[best[i]].seconds; };
  size_t dearest = 0;
  for (size_t i = 1; i < best.size(); ++i)
    if (seconds(i) > seconds(dearest)) dearest = i;
  for (size_t option = 0; option < choices.fusions[dearest].options.size(); ++option) {
    if (std::ssize(found) == options.build.max_candidates) break;
    if (option == best[dearest]) continue;
    Selection varied = best;
    varied[dearest] = option;
    Candidate candidate = candidate_of(choices, device, fitting, varied, planned);
    if (candidate.workspace_bytes <= limit_of(options.build)) found.push_back(std::move(candidate));
  }
  return found;
}

Plan build(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options) {
  Trace trace;
  expect_sensible(options.build);
  const Choices choices = choose(graph, device, options);
  Fitting fitting(choices);
  const Selection selection = select(fitting, options.build, device);
  Plan plan = plan_of(choices.graph, device, candidate_of(choices, device, fitting, selection));
  if (options.build.compile && !device.is_cpu())
    trace.compiled(compiled_kernels(sources_of(fitting.schedule(selection).fusions)));
  trace.built(plan);
  return plan;
}

Plan build(const Graph& graph, const DeviceInfo& device, const Candidate& candidate,
           const PlannerOptions& options) {
  Trace trace;
  expect_sensible(options.build);
  validate(graph);
  expect_device(device);
  const Graph planned = expand(graph, whole_composites(device, options));
  if (candidate.graph != nullptr && *candidate.graph != planned)
    fail("the candidate is one of another graph ('{}') than '{}'", candidate.graph->name, graph.name);
  LoweredPlan lowered = lowered_plan(plan_of(planned, device, candidate), options.engine_list);
  if (options.build.compile && !device.is_cpu())
    trace.compiled(compiled_kernels(sources_of(lowered.fusions)));
  trace.built(lowered.plan);
  return std::move(lowered.plan);
}

std::vector<Candidate> candidates(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  return candidates(graph, device, PlannerOptions{options});
}

Plan build(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  return build(graph, device, PlannerOptions{options});
}

Plan build(const Graph& graph, const DeviceInfo& device, const Candidate& candidate,
           const BuildOptions& options) {
  return build(graph, device, candidate, PlannerOptions{options});
}

std::vector<PlannedKernel> kernels_of(std::vector<ScheduledFusion> fusions) {
  std::vector<PlannedKernel> found;
  for (size_t i = 0; i < fusions.size(); ++i)
    for (Step& step : fusions[i].lowered.steps)
      if (auto* launch = std::get_if<Launch>(&step))
        found.push_back({static_cast<int>(i), fusions[i].fusion, std::move(*launch)});
  return found;
}

std::vector<PlannedKernel> kernels(const Plan& plan) { return kernels_of(lowered_plan(plan).fusions); }

}  // namespace fusor
