// Owns the distribution of a product over a sum of softmaxes.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Values that are multiplied by a sum of several softmaxes need all their probabilities in memory. Each
/// softmax alone is a chain that keeps its probabilities on chip:
///
///     sub(softmax(a), mul(softmax(b), x)) -> matmul(v)
///
///     sub(matmul(softmax(a), v), mul(matmul(softmax(b), v), x))
///
/// x is one number, or one a row. Each softmax is rounded by itself then, which `strict` graphs forbid. Heads
/// must be short, as attention's kernels have them: another product costs less than the probabilities' way
/// to memory. Tensors keep their indices. Whether anything changed.
bool distribute_products(Graph& graph, Additions& additions);

}  // namespace fusor
