// Owns the view of a pointwise convolution as a matmul: without a window, pixels are rows as any others.
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

}  // namespace fusor
