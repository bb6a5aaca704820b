// Owns the checks of an Expr's computed indices for the window kernel: made of coordinates and constants,
// within 32 bits, inside the tensor.
#pragma once

#include "core/expr.h"
#include "core/fusion.h"

namespace fusor {

/// The first computed index that may lie outside of [-2^30, 2^30], or null: the kernel computes with 32 bits,
/// and adds two of them. Scalars passed by value are not looked at.
const Node* wide_number(const Fusion& fusion, const Expr& expr);

/// The first select between a gathered element and a scalar whose condition does not keep the gather's index
/// inside the tensor, or null.
const Node* choice_beyond(const Fusion& fusion, const Expr& expr);

/// The first node that a gather's index depends on and that is not made of coordinates and constants, or
/// null.
const Node* uncounted_index(const Fusion& fusion, const Expr& expr);

}  // namespace fusor
