// Owns the short questions of what kind an op is.
#pragma once

#include <variant>

#include "core/graph.h"

namespace fusor {

inline bool is_pointwise(const Op& op) { return std::holds_alternative<Pointwise>(op.attributes); }
inline bool is_reduction(const Op& op) { return std::holds_alternative<Reduction>(op.attributes); }
inline bool is_gather(const Op& op) { return std::holds_alternative<Gather>(op.attributes); }
inline bool is_scatter(const Op& op) { return std::holds_alternative<Scatter>(op.attributes); }
inline bool is_matmul(const Op& op) { return std::holds_alternative<Matmul>(op.attributes); }
inline bool is_reshape(const Op& op) { return std::holds_alternative<Reshape>(op.attributes); }
inline bool is_transpose(const Op& op) { return std::holds_alternative<Transpose>(op.attributes); }

}  // namespace fusor
