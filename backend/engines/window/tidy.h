// Owns the tidying of an Expr before it is read as windows.
#pragma once

#include "core/expr.h"
#include "core/fusion.h"

namespace fusor {

/// The same results over fewer axes and of fewer nodes: small whole constants are numbers of the text, no
/// node is there twice, and elements of 16 bits are compared with infinities as they are stored.
Expr tidied(const Fusion& fusion, const Expr& given);

}  // namespace fusor
