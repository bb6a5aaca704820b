// Owns the finding of largest probabilities: those of a softmax follow from what it knows of its rows.
#pragma once

#include <array>
#include <optional>

#include "core/graph.h"
#include "core/graph_index.h"

namespace fusor {

/// A maximum over probabilities exp(score - m) / sum. All steps rise with the score, so that of a row is
/// exp(largest - m) / sum.
struct SoftmaxMaximum {
  std::array<int, 3> steps = {};  ///< the ops sub, exp and div
  int largest = -1;               ///< the tensor of the rows' largest scores
};

/// `op` as a maximum over whole rows of a softmax; nothing where it is something else.
std::optional<SoftmaxMaximum> softmax_maximum(const Graph& graph, const GraphIndex& index, const Op& op);

}  // namespace fusor
