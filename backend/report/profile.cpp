// Owns what is made of the times of runs: sums, medians, estimates, limits, and the table.
#include "backend/report/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/choose.h"
#include "backend/report/fusion_summary.h"
#include "backend/report/profile_times.h"
#include "core/words.h"
#include "heuristics/statistics.h"

namespace fusor {

namespace {

/// The plan's choice for a fusion as the planner sees it today: its estimate, work and limit.
FusionProfile described(const Plan& plan, const Choices& choices, const PlannedFusion& planned) {
  const Choice choice = choose_one(choices, planned.ops, plan.device, {});
  const auto option = std::ranges::find(choice.options, planned.config, &EngineOption::config);
  const bool is_known = option != choice.options.end();
  const Notes notes = is_known ? choice.by(*option).notes() : Notes{};
  const FusionSummary work = fusion_work(plan.graph, planned, notes, plan.device);
  FusionProfile fusion;
  fusion.ops = work.ops;
  fusion.config = planned.config;
  fusion.estimated_seconds = is_known ? option->seconds : 0;
  fusion.bytes = work.bytes;
  fusion.flops = work.flops;
  fusion.bound = work.bound;
  fusion.limit_seconds = work.limit_seconds;
  return fusion;
}

/// The median over all runs of what `seconds` gives for a run.
template <class Seconds>
double median_of_runs(const ProfileTimes& times, Seconds seconds) {
  std::vector<double> each;
  each.reserve(times.steps.size());
  for (const std::vector<double>& run : times.steps) each.push_back(seconds(run));
  return summarise(std::move(each)).median;
}

void add_times(FusionProfile& fusion, int index, std::span<const StepLabel> labels,
               const ProfileTimes& times) {
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i].fusion == index)
      fusion.steps.push_back(
          {labels[i].name, median_of_runs(times, [&](const std::vector<double>& run) { return run[i]; })});
  fusion.seconds = median_of_runs(times, [&](const std::vector<double>& run) {
    double sum = 0;
    for (size_t i = 0; i < labels.size(); ++i)
      if (labels[i].fusion == index) sum += run[i];
    return sum;
  });
}

std::string row(const FusionProfile& fusion, size_t number, double all) {
  std::string text = fmt::format("{:>3}  {}\n", number, short_names(fusion.ops));
  text += fmt::format("     {}, {}, {:.0f} % of the run", fusion.config.engine,
                      words::duration(fusion.seconds), all > 0 ? 100 * fusion.seconds / all : 0);
  if (fusion.estimated_seconds > 0)
    text += fmt::format("; estimated {}", words::duration(fusion.estimated_seconds));
  text += fmt::format("; {:.0f} % of the limit by {}: {}", 100 * fusion.fraction_of_limit(), fusion.bound,
                      words::bytes(fusion.bytes));
  if (fusion.flops > 0) text += ", " + words::flops(fusion.flops);
  text += '\n';
  if (fusion.steps.size() > 1)
    for (const StepProfile& step : fusion.steps)
      text += fmt::format("       {:<32} {:>11}\n", step.name, words::duration(step.seconds));
  return text;
}

}  // namespace

Profile profile_of(const Plan& plan, std::span<const StepLabel> labels, const ProfileTimes& times) {
  Profile profile;
  profile.graph = plan.graph.name;
  profile.device = plan.device.name;
  profile.runs = static_cast<int>(times.runs.size());
  profile.seconds = summarise(times.runs).median;
  profile.estimated_seconds = plan.seconds;
  const Choices choices{plan.graph, fold_views(plan.graph), {}, {}};
  for (size_t i = 0; i < plan.fusions.size(); ++i) {
    profile.fusions.push_back(described(plan, choices, plan.fusions[i]));
    add_times(profile.fusions.back(), static_cast<int>(i), labels, times);
  }
  return profile;
}

std::string to_string(const Profile& profile) {
  double all = 0;
  for (const FusionProfile& fusion : profile.fusions) all += fusion.seconds;
  std::string text =
      fmt::format("graph '{}' on {}: {} a run (estimated {}), fusion by fusion {}; medians of {} runs\n",
                  profile.graph, profile.device, words::duration(profile.seconds),
                  words::duration(profile.estimated_seconds), words::duration(all), profile.runs);
  for (size_t i = 0; i < profile.fusions.size(); ++i) text += row(profile.fusions[i], i + 1, all);
  return text;
}

}  // namespace fusor
