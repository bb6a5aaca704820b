// Owns the question whether a text can count the places of an Expr: by numbers that it counts at all, of few
// enough bits, and inside the elements where it takes them to be.
#pragma once

#include "core/expr.h"
#include "core/fusion.h"

namespace fusor {

/// A number that 32 bits may not hold, or null: a text counts with so many. Sums of two stay within them,
/// too.
const Node* wide_number(const Fusion& fusion, const Expr& expr);

/// Elements that are chosen where a place is one, at which there are none all the same: or null.
const Node* choice_beyond(const Fusion& fusion, const Expr& expr);

/// The node that a load takes elements through and that no text counts, or null.
const Node* uncounted_index(const Fusion& fusion, const Expr& expr);

}  // namespace fusor
