// Owns shrink(): the smallest graph that can be reached from a failing one by simple steps while it still
// fails.
#pragma once

#include <functional>

#include "core/graph.h"

namespace fusor::fuzz {

/// Whether a graph fails as the first one did. Only valid graphs are asked about.
using StillFails = std::function<bool(const Graph&)>;

/// Drops ops and outputs, shrinks extents, simplifies strides, types and attributes. Every graph on the way
/// is valid and well-conditioned (values.h). Asks at most `trials` times.
Graph shrink(const Graph& graph, const StillFails& still_fails, int trials = 2000);

}  // namespace fusor::fuzz
