// Owns expect_fusions: what tests of rewrites ask of a graph.
#pragma once

#include <gmock/gmock.h>

#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor::test {

/// The graph is planned in so many fusions, has one form, and is right on the CPU device.
inline void expect_fusions(const Graph& graph, size_t count) {
  planned_once(graph);
  EXPECT_THAT(groups_by_name(graph), testing::SizeIs(count));
  expect_right_on_cpu(graph);
}

}  // namespace fusor::test
