// Owns planned_once: a graph as it is planned, which tests of rewrites hold to be valid and in one form.
#pragma once

#include <gtest/gtest.h>

#include "backend/planner/planner.h"
#include "core/infer.h"

namespace fusor::test {

/// The graph as it is planned; planning it again changes nothing.
inline Graph planned_once(const Graph& graph) {
  Graph planned = expand(graph);
  EXPECT_NO_THROW(validate(planned));
  EXPECT_EQ(expand(planned), planned);
  return planned;
}

}  // namespace fusor::test
