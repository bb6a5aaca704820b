// Owns the view of a convolution of patches as one of strides 1: windows that lie side by side and cover the
// input share no element, so where they begin is where images do.
//
//   x [image][channel][height = outputs * window][width = outputs * window]
//     [image, output row][column of the window, channel][row of the window][output column]
//
// Where an operand or a result has one element for all images, or images lie apart as in a part of a larger
// tensor, no stride walks images and output rows: these are an axis of their own then.
//
//     [image][column of the window, channel][output row][row of the window][output column]
#pragma once

#include <optional>

#include "core/fusion.h"

namespace fusor {

/// The fusion of such a convolution, of any pass and one group, as one whose input has the rows of a window
/// as its height; its ops before and after included. With output rows apart, for two spatial axes, it has
/// three. Nothing where strides differ from windows, taps lie apart or are flipped, there is padding, windows
/// leave elements out, or an access does not walk what becomes one axis by one stride.
std::optional<Fusion> as_convolution_of_patches(const Fusion& fusion);

}  // namespace fusor
