// Owns the tests of the window engine on the GPU in which every value of every knob is forced.
#include <gtest/gtest.h>

#include "backend/engines/list.h"
#include "tests/backend/engines/window/settings.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

using namespace window_cases;

TEST(WindowSettingsGpu, EveryValueOfEveryKnob) {
  FUSOR_NEEDS_GPU();
  static const Engine* const only[] = {&window_engine()};
  PlannerOptions options;
  options.engine_list = only;
  const DeviceInfo device = DeviceInfo::current();
  for (const auto& [name, graph] : graphs_of_all_settings())
    for (const Candidate& candidate : covering_settings(graph, device)) {
      const Plan plan = build(graph, device, candidate, options);
      SCOPED_TRACE(name + ": " + to_string(plan.fusions.front().config));
      EXPECT_EQ(plan.fusions.front().config, candidate.fusions.front().config);
      DeviceRun run(graph, plan);
      run.run();
      EXPECT_TRUE(run.gaps_are_untouched());
      const VerifyReport report = run.check();
      EXPECT_TRUE(report.passed()) << to_string(report);
    }
}

}  // namespace
}  // namespace fusor
