// Owns the arithmetic of stride phases: a wgrad of strides as one of strides 1, in which an input's positions
// of one remainder by the strides are a channel of their own.
#pragma once

#include <optional>
#include <vector>

#include "backend/engines/contraction.h"
#include "backend/engines/joined_pixels.h"
#include "core/attributes.h"

namespace fusor {

/// Along one axis, the filter's taps that meet one remainder: first + i * stride, i < count. They are taps
/// first_of_window + i * tap_step of the window over that phase.
struct PhaseTaps {
  int64_t first = 0, count = 0;
  int64_t first_of_window = 0;
};

struct PhaseAxis {
  std::vector<PhaseTaps> phases;  ///< by remainder, as many as the stride
  int64_t tap_step = 1;
  int64_t window = 1;                         ///< over every phase
  int64_t pre_padding = 0, post_padding = 0;  ///< may be negative
};

struct StridePhases {
  std::vector<PhaseAxis> axes;
  /// The input's positions, a block of one of every phase; the phases of a channel are neighbours.
  JoinedPixels input;
  int64_t count = 1;  ///< phases of a channel

  /// That of strides 1.
  Conv convolution(const Conv& of_strides) const;
};

/// For wgrad of strides that have up to kMaxStridePhases phases, each of which some tap meets.
std::optional<StridePhases> stride_phases(const Contraction& view);
inline constexpr int64_t kMaxStridePhases = 16;

/// The site after a filter [output channel][channel][taps] over the taps of one phase, numbered as the
/// channels of the input are.
Expr of_phase(const Expr& filter, const StridePhases& phases, int64_t phase);
/// Where they lie of what is stored [output channel][phase of a channel][window].
Access of_phase(const Access& windows, const StridePhases& phases, int64_t phase);

}  // namespace fusor
