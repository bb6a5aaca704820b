// Owns the remarks on operands whose type keeps a contraction from the tensor cores.
#pragma once

#include <string>
#include <vector>

#include "core/graph.h"

namespace fusor {

/// One line for each operand of an fp32 contraction that is wider than the 16- or 8-bit operand beside it, or
/// of the other 16-bit type, where the graph's precision does not allow TF32: tensor, type, and what to say
/// instead.
std::vector<std::string> type_remarks(const Graph& graph);

}  // namespace fusor
