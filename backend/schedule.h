// Owns what is derived from a plan's choices: the fusions' steps and the layout of the workspace.
#pragma once

#include <span>
#include <vector>

#include "backend/engines/engine.h"
#include "backend/planner/planner.h"
#include "core/lowered.h"

namespace fusor {

/// One fusion, lowered.
struct ScheduledFusion {
  Fusion fusion;
  Lowered lowered;
  std::vector<int64_t> scratch_offsets;  ///< bytes into the workspace, parallel to lowered.scratch
};

/// Everything that runs, in order.
struct Schedule {
  std::vector<ScheduledFusion> fusions;
  std::vector<int64_t> tensor_offsets;  ///< per tensor of the graph: bytes into the workspace, or -1
  int64_t workspace_bytes = 0;
};

/// Lays out intermediates and scratch; memory is used again as soon as its last reader is done. 256-byte
/// aligned.
Schedule make_schedule(const Graph& graph, std::vector<ScheduledFusion> fusions);

}  // namespace fusor
