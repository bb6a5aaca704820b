// Owns the tests' way to a plan of the rows engine with a setting that it would not choose itself.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/engines/list.h"
#include "codegen/text/expr_emitter.h"
#include "tests/backend/engines/rows/cases.h"
#include "tests/gpu/device_run.h"

namespace fusor::rows_cases {

/// The graph as one fusion with these knobs; of what cannot be had, the nearest.
inline Plan forced_plan(const Graph& graph, std::vector<KnobSetting> knobs) {
  static const Engine* const only[] = {&rows_engine()};
  PlannerOptions options;
  options.engine_list = only;
  Candidate candidate = candidates(graph, DeviceInfo::current(), options).front();
  EXPECT_EQ(candidate.fusions.size(), 1u) << graph.name;
  const Fusion fusion = whole(graph);
  const PreparedOr prepared = rows_engine().prepare(fusion, DeviceInfo::current());
  for (const Knob& known : std::get<std::unique_ptr<const Prepared>>(prepared)->knobs()) {
    const auto asked = std::ranges::find(knobs, known.name, &KnobSetting::name);
    asked->value = *std::ranges::min_element(known.values, {},
                                             [&](int64_t value) { return std::abs(value - asked->value); });
  }
  candidate.fusions.front().config.knobs = knobs;
  return build(graph, DeviceInfo::current(), candidate, options);
}

inline bool launches(const Plan& plan, std::string_view entry) {
  const std::vector<PlannedKernel> all = kernels(plan);
  return std::ranges::any_of(all, [&](const PlannedKernel& kernel) { return kernel.launch.entry == entry; });
}

/// The plan's launches as text: settings that come to the same are told so.
inline std::string launched(const Plan& plan) {
  std::string all;
  for (const PlannedKernel& kernel : kernels(plan))
    all += fmt::format("{} {} x {} of {} {}; ", kernel.launch.entry, kernel.launch.grid[0],
                       kernel.launch.grid[1], kernel.launch.block[0], structure_hash(*kernel.launch.source));
  return all;
}

/// Runs the plan, which launches such a kernel, and expects agreement with the oracle and untouched poison.
/// Gives the launches as text.
inline std::string expect_forced_correct(const Graph& graph, const std::string& what, std::string_view entry,
                                         const std::vector<KnobSetting>& knobs) {
  const Plan plan = forced_plan(graph, knobs);
  SCOPED_TRACE(what + ": " + to_string(plan.fusions.front().config));
  DeviceRun run(graph, plan);
  run.run();
  EXPECT_TRUE(launches(plan, entry));
  EXPECT_TRUE(run.gaps_are_untouched());
  const VerifyReport report = run.check();
  EXPECT_TRUE(report.passed()) << to_string(report);
  return launched(plan);
}

}  // namespace fusor::rows_cases
