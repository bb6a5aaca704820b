// Owns the step from a graph to attention's gradients as the backward engine sees them, in tests without a
// GPU.
#pragma once

#include <gmock/gmock.h>

#include <utility>
#include <variant>
#include <vector>

#include "backend/engines/sm90/attention/backward.h"
#include "backend/planner/planner.h"

namespace fusor::test {

/// The graph's fusions that have anchors.
inline std::vector<Fusion> products_of(const Graph& graph) {
  const Graph expanded = expand(graph);
  const FoldedGraph folded = fold_views(expanded);
  std::vector<Fusion> found;
  for (const std::vector<int>& ops : partition(expanded, folded))
    if (Fusion fusion = make_fusion(expanded, folded, ops); !fusion.anchors.empty())
      found.push_back(std::move(fusion));
  return found;
}

/// The only one of them.
inline Fusion backward_of(const Graph& graph) {
  std::vector<Fusion> found = products_of(graph);
  EXPECT_THAT(found, testing::SizeIs(1));
  return found.front();
}

/// Stays valid as long as the fusion.
inline attention::backward::Problem gradients_of(const Fusion& fusion, const DeviceInfo& device) {
  auto answer = attention::backward::problem_of(fusion, device);
  if (const auto* refusal = std::get_if<Refusal>(&answer)) ADD_FAILURE() << to_string(*refusal);
  return std::get<attention::backward::Problem>(std::move(answer));
}

}  // namespace fusor::test
