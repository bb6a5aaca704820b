// Owns the question which ops of a set wait for which others, answered for a whole set in one sweep.
#pragma once

#include <span>
#include <vector>

#include "backend/planner/planner.h"

namespace fusor {

/// Place of `op` in the ascending `ops`, or -1.
int position_in(std::span<const int> ops, int op);

/// By position in the ascending `ops`: those that one of `targets` waits for, directly or through others of
/// them. A target is among them only where another target waits for it.
std::vector<bool> upstream_of(const FoldedGraph& folded, std::span<const int> ops,
                              std::span<const int> targets);

/// By position in the ascending `ops`: `source` itself, and those that wait for it, directly or through
/// others of them.
std::vector<bool> downstream_of(const FoldedGraph& folded, std::span<const int> ops, int source);

}  // namespace fusor
