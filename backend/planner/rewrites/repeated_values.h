// Owns the repetition of values that several fusions read.
#pragma once

#include "core/graph.h"

namespace fusor {

/// Computes cheap pointwise values once for each fusion that reads them, where that moves fewer bytes than to
/// store and to read them:
///
///     x, mean, inv_std -> normalize -> scale -> y          x, mean, inv_std -> normalize  -> scale -> y
///                             v                                           `-> normalize' -> dscale
///                           dscale
///
/// To be asked of a graph that is complete otherwise: it is grouped to see which fusions read what. Tensors
/// keep their indices.
void repeat_values(Graph& graph);

}  // namespace fusor
