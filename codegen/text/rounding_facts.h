// Owns the question which values of a kernel are elements of their type as they are computed.
#pragma once

#include "core/lowered.h"

namespace fusor {

/// Whether a node chooses among elements of its own type, or changes their signs: what comes of it needs no
/// rounding. Scalars among those it chooses from are rounded themselves, once for all elements.
bool chooses_elements(const Expr& expr, const Node& node);

/// Whether argument number `i` of such a node is one of those scalars.
bool is_chosen_scalar(const Expr& expr, const Node& node, int i);

}  // namespace fusor
