// Owns fusion_of: a test's whole graph as one fusion.
#pragma once

#include <numeric>
#include <vector>

#include "backend/planner/planner.h"
#include "core/fusion.h"
#include "core/graph.h"

namespace fusor::test {

/// The fusion of all ops of a graph.
inline Fusion fusion_of(const Graph& graph) {
  std::vector<int> ops(graph.ops.size());
  std::iota(ops.begin(), ops.end(), 0);
  return make_fusion(graph, fold_views(graph), ops);
}

}  // namespace fusor::test
