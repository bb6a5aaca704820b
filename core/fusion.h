// Owns Fusion: a part of the graph that one engine carries out.
#pragma once

#include <string>
#include <vector>

#include "core/expr.h"
#include "core/graph.h"

namespace fusor {

/// A buffer that a fusion reads or writes; every Access names one. Its address is a slot (user memory), a
/// place in the workspace, or, for scalars, a host value.
struct Operand {
  int tensor = -1;  ///< index into Graph::tensors: names it in messages and finds its address
  DataType type = DataType::f32;
  Memory memory = Memory::device;
  int64_t alignment = 16;  ///< bytes promised for the start of the buffer
  int64_t elements = 0;    ///< span of the buffer, for choosing the index width
  Scalar value = 0.0;      ///< Memory::constant
  bool zero_gaps = false;  ///< scratch: what no access reaches is zero
};

/// The op around which neighbours were absorbed. Its operand and result shapes are the domains of the sites.
struct Anchor {
  int op = -1;  ///< index into Graph::ops
  Attributes attributes;
};

/// Anchors: none (a pointwise DAG, with or without reductions), one op, or two siblings: the same attributes
/// and result dims, one first operand, and no way from one to the other (a gated pair). `before[i]` yields
/// operand i of the anchor, over that operand's axes (always present, if only one load), and before[2] the
/// second operand of the second sibling; `after[0]` is over the axes of the result (without an anchor: over
/// the fusion's domain). Self-contained: engines need no Graph.
struct Fusion {
  std::vector<int> ops;  ///< indices into Graph::ops, ascending
  Precision precision = Precision::exact;
  std::vector<Anchor> anchors;
  std::vector<Operand> operands;
  std::vector<Expr> before;
  std::vector<Expr> after;
  std::vector<std::string>
      operand_names;  ///< the user's names, for messages and comments; not part of the structure
  std::vector<std::string> op_names;  ///< by position in `ops`

  bool is_pair() const { return anchors.size() == 2; }
  const std::string& name_of(int operand) const { return operand_names[static_cast<size_t>(operand)]; }
  /// The user's name of graph op `op`.
  const std::string& op_name(int op) const;
};

}  // namespace fusor
