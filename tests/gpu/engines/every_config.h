// Owns what GPU tests of a Hopper engine share: every candidate of a graph by that engine alone, held against
// the oracle.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "tests/gpu/device_run.h"
#include "tests/support/sample.h"

#define FUSOR_NEEDS_HOPPER() \
  FUSOR_NEEDS_GPU();         \
  if (DeviceInfo::current().compute_capability != 90) GTEST_SKIP() << "needs a Hopper GPU"

namespace fusor {

/// The candidate runs as it is, is right, and writes nothing beside its results.
inline void expect_config_correct(const Graph& graph, const Candidate& candidate,
                                  std::span<const Engine* const> engines, const std::string& what) {
  const std::string config = to_string(candidate.fusions.front().config);
  const Plan plan = build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = engines});
  DeviceRun run(graph, plan);
  EXPECT_EQ(run.executable().plan().remarks, plan.remarks) << "planned anew: " << config;
  run.run();
  const VerifyReport report = run.check();
  EXPECT_TRUE(report.passed()) << what << " " << config << "\n" << to_string(report);
  EXPECT_TRUE(run.gaps_are_untouched()) << what << " " << config;
}

/// The first candidate and one in three of the others (tests/support/sample.h).
inline void expect_every_config_correct(const Graph& graph, std::span<const Engine* const> engines,
                                        const std::string& what) {
  bool first = true;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines})) {
    if (first || test::is_sampled(what + to_string(candidate.fusions.front().config), 3))
      expect_config_correct(graph, candidate, engines, what);
    first = false;
  }
}

}  // namespace fusor
