// Owns the question which concatenations are parts of others.
#pragma once

#include <map>

#include "core/graph.h"

namespace fusor {

/// A concatenation whose operands are neighbours among those of another one.
struct Nest {
  int outer;  ///< the op of the other one, which is part of none itself
  int first;  ///< the place of the first operand there
};

/// By op, the concatenations that need no memory of their own, since their operands are written side by side
/// for a later, larger one along the same axis. Layers that read the results of all layers in front of them
/// (DenseNet's) concatenate so:
///
///     x0, x1     -> concatenate -> a -> layer -> x2         x0 | x1 | x2
///     x0, x1, x2 -> concatenate -> b                        '- a -'
///                                                           '--- b ---'
///
/// Only those that are virtual, that no view and no concatenation reads, and whose rows in the outer one are
/// as long as memory moves, and as well aligned.
std::map<int, Nest> nested_concatenations(const Graph& graph);

}  // namespace fusor
