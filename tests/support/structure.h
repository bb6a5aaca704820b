// Owns what tests ask of a graph's kernels: the structure of the kernels of one engine's fusions.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/planner/planner.h"
#include "codegen/text/expr_emitter.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "tests/backend/engines/ask.h"

namespace fusor::test {

/// The structures of all kernels of the engine's first candidate, for each group of the graph's partition
/// that the engine supports on that device.
inline std::vector<std::string> structures_of(const Graph& graph, const Engine& engine,
                                              const DeviceInfo& device) {
  const Graph expanded = expand(graph);
  const FoldedGraph folded = fold_views(expanded);
  std::vector<std::string> found;
  for (const std::vector<int>& group : partition(expanded, folded)) {
    const Fusion fusion = make_fusion(expanded, folded, group);
    if (!supports(engine, fusion, device)) continue;
    const EngineConfig config = candidates(engine, fusion, device).front().config;
    for (const Step& step : lower(engine, fusion, config, device).steps)
      if (const auto* const launch = std::get_if<Launch>(&step))
        found.push_back(structure_hash(*launch->source));
  }
  return found;
}

}  // namespace fusor::test
