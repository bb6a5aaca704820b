// Owns the view of a matmul whose batch entries share their weights as one with more rows.
#pragma once

#include "core/fusion.h"

namespace fusor {

/// The fusion of a matmul, or of two siblings, with the batch axes that share the second operand walked as
/// rows: tiles then fill up whatever the entries' rows are.
///
///     a [16, 49, k] x b [k, n] + bias [n]   ->   a [784, k] x b [k, n] + bias [n]
///
/// Axes stay where no stride walks them as one, in the first operand, in the result or beside it (a gate
/// [16, 1, n]); the others are merged from the last one on.
Fusion with_merged_rows(Fusion fusion);

}  // namespace fusor
