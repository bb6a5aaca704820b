// Owns random_graph(): the graph of a seed and an index, and nothing else decides about it.
#pragma once

#include <string_view>
#include <vector>

#include "tools/fuzz/draft.h"

namespace fusor::fuzz {

/// A valid graph of up to limits.ops ops.
Graph random_graph(uint64_t seed, int64_t index, const Limits& limits = {});

}  // namespace fusor::fuzz
