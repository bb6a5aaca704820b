// Owns the views of a pointwise convolution as a matmul, and of a matmul as one: without a window, pixels are
// rows as any others.
#pragma once

#include <optional>

#include "core/fusion.h"

namespace fusor {

/// The fusion of a convolution that is_pointwise() as one around a matmul; its
/// ops before and after included. Where channels lie side by side, all pixels are one axis. Otherwise every
/// image is an entry of the batch: what lies side by side in the result are the columns. Nothing where the
/// anchor is another, where an access does not walk the pixels by one stride, and for a wgrad whose images do
/// not follow one another by that stride.
std::optional<Fusion> as_matmul(const Fusion& fusion);

/// The fusion of a matmul whose batch entries share their weights, where no stride walks the entries' rows as
/// one beside what else the result meets, as one around a pointwise convolution: entries are images and rows
/// their positions, which tiles walk as one whatever an image has of them.
///
///     x [8, 257, k] x w [k, n] * gate [8, 1, n]   ->   x [8, k, 257], w [n, k, 1], gate [8, n, 1]
///
/// Weights whose columns lie side by side are those of a backward pass, w [k, n, 1].
/// Nothing where the anchor is another, where an entry has weights of its own or rows that fill whole tiles
/// (64, 1024), where the batch has more than three axes, or where k is not adjacent in the first operand or n
/// in the result.
std::optional<Fusion> as_pointwise_convolution(const Fusion& fusion);

}  // namespace fusor
