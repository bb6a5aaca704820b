// Owns how windows are walked by im2col maps of TMA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor {

/// input = output * stride + tap * step + start turned into what an im2col map of the operand with the pixels
/// needs: position = pixel * stride + lower + offset, offset = tap * slope + origin. For a dgrad of a stride:
/// pixels of a class, and what its classes share (contraction/residue_classes.h); origins are theirs.
struct WindowWalk {
  int64_t pixels = 1, window = 1;
  int64_t stride = 1, lower = 0;
  int64_t slope = 0, origin = 0;
  int64_t reach = 0;  ///< the largest offset
};
WindowWalk window_walk(const Contraction& view, const WindowAxis& axis);
/// Along an axis of fprop or dgrad, positions of the operand with the pixels.
int64_t extent_under_window(const Contraction& view, const WindowAxis& axis);
/// How far beyond the last position the last of a walk's windows begins.
int64_t upper_corner(const WindowWalk& walk, int64_t extent);
/// Whether an im2col map of so many spatial axes holds a walk over `extent` positions.
bool fits_window_map(const WindowWalk& walk, int64_t extent, size_t axes);
/// Why an im2col map cannot walk the windows over what the site reads, or nothing.
std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view, const Expr& site);

}  // namespace fusor
