// Owns the view of a matmul whose batch entries share their weights as one with more rows.
#pragma once

#include "core/fusion.h"

namespace fusor {

/// The fusion of a matmul, or of two siblings, with the batch axes that share the second operand walked as
/// rows: tiles then fill up whatever the entries' rows are.
///
///     a [16, 49, k] x b [k, n] + bias [n]   ->   a [784, k] x b [k, n] + bias [n]
///     a [64, 8, 1, k] x b [8, k, n]         ->   a [8, 64, k] x b [8, k, n]
///
/// Axes stay where no stride walks them as one, in the first operand, in the result or beside it (a gate
/// [16, 1, n]); the first of the shared ones go first.
Fusion with_merged_rows(Fusion fusion);

}  // namespace fusor
