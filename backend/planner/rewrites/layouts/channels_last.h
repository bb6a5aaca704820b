// Owns the choice of channels last for what lies between convolutions.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Lays virtual activations that a convolution reads channels last, and with them what ops by element, totals
/// and views make of them or them of, as far as the next convolution. Tensor cores multiply lines of
/// channels: of planes, each such convolution would make a copy first.
///
///     x, planes -> convolution -> bias, ReLU -> convolution -> y, planes
///                                            ^ channels last
///
/// Activations that are tied so to a tensor of the user's which lies otherwise stay as they are: no kernel
/// reads one order and writes another that did not before. Planes of the user's that several convolutions
/// with windows read are copied once for all of them. Else strides alone change.
void lay_channels_last(Graph& graph, Additions& additions);

}  // namespace fusor
