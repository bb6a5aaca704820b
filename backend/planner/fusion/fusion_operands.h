// Owns FusionOperands: the numbers by which accesses of a fusion name the buffers behind tensors.
#pragma once

#include "backend/planner/planner.h"

namespace fusor {

/// The operands of a growing fusion: each is added, with its name, when it is first asked for. Refers to the
/// graphs and the fusion.
class FusionOperands {
 public:
  FusionOperands(const Graph& graph, const FoldedGraph& folded, Fusion& fusion)
      : graph_(graph), folded_(folded), fusion_(fusion) {}

  /// The operand in which the tensor's elements lie.
  int operand_of(int tensor) { return operand_of_buffer(folded_.placements[tensor].buffer); }
  /// The operand that this tensor's own buffer is.
  int operand_of_buffer(int buffer);
  /// The type of a tensor's elements where they lie.
  DataType stored_type(int tensor) const;

 private:
  const Graph& graph_;
  const FoldedGraph& folded_;
  Fusion& fusion_;
};

}  // namespace fusor
