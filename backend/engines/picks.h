// Owns totals that are one element of each row: x[label] written as the sum over i of (i == label ? x[i] :
// 0).
//
//   row    | 0 | 0 | x[2] | 0 | ...      label = 2        instead of a total of the row, a load of x[label]
#pragma once

#include <cstdint>
#include <optional>

#include "core/fusion.h"

namespace fusor {

/// Makes loads of such totals, and tells the axes that they ran over. What has become needless stays.
uint32_t take_picked_elements(const Fusion& fusion, Expr& expr);

/// The fusion of one site, all of whose totals pick elements, without totals and without the axes that they
/// ran over; nothing where it is another.
std::optional<Fusion> with_picked_elements(const Fusion& fusion);

}  // namespace fusor
