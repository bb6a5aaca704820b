// Owns the arithmetic of stride phases: a wgrad of strides as one of strides 1, in which an input's positions
// of one remainder by the strides are a channel of their own.
#pragma once

#include <optional>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/repack/joined_pixels.h"
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

/// On the last axis, along which planes must begin on multiples of 16 bytes, every tap is a channel: the
/// columns that it meets, one for each output.
struct ColumnsOfTap {
  int64_t first_output = 0, outputs = 0;  ///< those that meet the image
  int64_t first_input = 0;
};

struct StridePhases {
  std::vector<PhaseAxis> axes;  ///< the last one: one phase, one tap
  /// The input's positions, a block of one of every phase, but along the last axis one for each output. The
  /// channels of one of the input's are neighbours: (phase, tap of the last axis).
  JoinedPixels input;
  int64_t count = 1;               ///< phases of a channel
  std::vector<ColumnsOfTap> taps;  ///< along the last axis
  int64_t stride = 1;              ///< likewise

  int64_t channels() const { return count * std::ssize(taps); }
  /// That of strides 1.
  Conv convolution(const Conv& of_strides) const;
};

/// For wgrad of strides, or of several taps along the last axis (up to kMaxCopiedTaps: each is a copy), whose
/// other axes have up to kMaxStridePhases phases, each of which some tap meets.
std::optional<StridePhases> stride_phases(const Contraction& view);
inline constexpr int64_t kMaxStridePhases = 16, kMaxCopiedTaps = 256;

/// The site before the input over the columns of a tap.
Expr of_tap(const Expr& image, const StridePhases& phases, const ColumnsOfTap& columns);
/// The site after a filter [output channel][channel][taps] over the taps of one phase, numbered as the
/// channels of the input are.
Expr of_phase(const Expr& filter, const StridePhases& phases, int64_t phase);
/// Where they lie of what is stored [output channel][phase of a channel][window].
Access of_phase(const Access& windows, const StridePhases& phases, int64_t phase);

}  // namespace fusor
