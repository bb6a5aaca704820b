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

/// Workspace that one fusion uses: its operands that are intermediates, and its scratch, in bytes.
struct WorkspaceUse {
  const Fusion* fusion = nullptr;
  std::span<const int64_t> scratch;
};
/// Where everything lies, in bytes.
struct WorkspaceLayout {
  std::vector<int64_t> tensor_offsets;                ///< per tensor of the graph, or -1
  std::vector<std::vector<int64_t>> scratch_offsets;  ///< per use
  int64_t bytes = 0;
};
/// `overlap`: launches overlap, so that what is small is used again only behind its last reader's stage
/// (side_by_side.h).
WorkspaceLayout lay_out_workspace(const Graph& graph, std::span<const WorkspaceUse> uses, bool overlap);
/// Bytes that a block takes in the workspace.
int64_t aligned_workspace(int64_t bytes);

/// Lays out intermediates and scratch; memory is used again as soon as its last reader is done, or, where
/// launches overlap, the stage of that. 256-byte aligned.
Schedule make_schedule(const Graph& graph, std::vector<ScheduledFusion> fusions, bool overlap);

}  // namespace fusor
