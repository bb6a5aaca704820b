// Owns wgrad over planes - channels that lie apart, positions side by side: which can be walked so by the
// TMA, and in which steps.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/support.h"

namespace fusor {

/// A pointwise wgrad of images whose channels lie apart: k is walked image by image, along the positions.
bool sums_planes(const Fusion& fusion, const Contraction& view);
/// Why an operand of a wgrad cannot be copied as (position, channel, image), a channel's positions as one
/// run, or nothing.
std::optional<Refusal> refuse_whole_planes(const Fusion& fusion, const Contraction& view, bool second);
/// Any other wgrad of unit strides whose operands' channels are planes, positions side by side; nothing where
/// it is not, or where channels lie side by side as well, which wgrad prefers.
std::optional<PlaneWalk> plane_walk(const Fusion& fusion, const Contraction& view);
/// Positions that planes of `type` need for every one along the axis before, so that whole planes may be
/// walked (PlaneWalk::flat): by axis, that of the first being 1.
Dims flat_rows(const Contraction& view, DataType type);
/// Why an operand's planes cannot be walked, or nothing.
std::optional<Refusal> refuse_planes(const Fusion& fusion, const Contraction& view, const Expr& site);
/// TMA begins to read on multiples of 16 bytes, so that is where every tap must lead along the
/// last axis; planes that are walked as a whole have rows that are such multiples.
std::optional<Refusal> refuse_taps(const Fusion& fusion, const Contraction& view);
/// Positions from the first of a plane to the last.
int64_t plane_length(const Expr& site);

}  // namespace fusor
