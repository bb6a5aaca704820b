// Owns the remarks on operands whose type keeps a contraction off the tensor cores, or makes it dear there.
#pragma once

#include <string>
#include <vector>

#include "core/graph.h"

namespace fusor {

/// One line for each operand of a contraction whose type costs tensor cores: fp32 beside 16 or 8 bits and the
/// other 16-bit type, where the precision does not allow TF32; fp64, int64 and int32 beside a narrower type.
/// Each names the tensor, its type, what becomes of the contraction, and what to declare instead.
std::vector<std::string> type_remarks(const Graph& graph);

}  // namespace fusor
