// Owns the removal of a softmax's own shift where its operand is shifted already.
#pragma once

#include "core/graph.h"

namespace fusor {

/// Takes the second of two shifts by a row's maximum out, as it takes off nothing:
///
///     x -> sub max(x) -> sub max(that) -> exp -> div sum       x -> sub max(x) -> exp -> div sum
///
/// A graph writes the first to keep 16 bits from overflow. The maximum of what is shifted is 0 exactly, or no
/// number where a row has an infinity or a NaN, which its sum of exponentials then is as well. Only of
/// differences that are not rounded: the engines' own shift is in fp32. Tensors keep their indices. Whether
/// anything changed.
bool drop_repeated_maxima(Graph& graph);

}  // namespace fusor
