// Owns the arithmetic of joined pixels: a convolution of few result channels as one of many, in which blocks
// of neighbouring results are the channels of one position.
#pragma once

#include <optional>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/attributes.h"

namespace fusor {

/// Along one axis, the results position * block + r, r < block. All those of a block are sums over the same
/// window: source = position * stride + offset - pre_padding, offset < window. Window tap t is offset t, or
/// window - 1 - t where the window is flipped; result r meets it through the tap
/// first + r * tap_of_result + t * tap_of_window of a filter that zeros fill up, `zeros` of them before its
/// own first tap.
struct JoinedAxis {
  int64_t results = 1, block = 1, positions = 1;
  int64_t stride = 1, window = 1;
  int64_t pre_padding = 0, post_padding = 0;  ///< may be negative
  int64_t taps = 1, zeros = 0;                ///< of the filter that is filled up
  int64_t first = 0, tap_of_result = 0, tap_of_window = 0;
  bool flipped = false;
  int64_t channel_step = 1;  ///< channels of a position between neighbouring results
};

/// A run of blocks along one axis, whole ones or the beginning of one.
struct BlockRun {
  int64_t first = 0, positions = 0, block = 0;
};

struct JoinedPixels {
  std::vector<JoinedAxis> axes;
  int64_t channels = 1;      ///< of a position
  int64_t channel_step = 1;  ///< channels of a position between neighbouring channels of a result

  /// The convolution of the joined results: a fprop, whatever it was.
  Conv convolution(const Conv& of_pixels) const;
  /// Every result once, in boxes: a run of each axis.
  std::vector<std::vector<BlockRun>> boxes() const;
};

/// Channels of a result that are worth joining.
inline constexpr int64_t kMaxJoinedChannels = 16;

/// For fprop and dgrad of one group and few result channels, without dilation: blocks of `join` results, of
/// a dgrad times the strides, spread over the axes as evenly as `join`'s divisors allow, most of them along
/// the last; with channels of a result side by side, or those of neighbours. Nothing where there is nothing
/// to join, or too many channels come of it.
std::optional<JoinedPixels> joined_pixels(const Contraction& view, int64_t join, bool channels_adjacent);

/// The site after a result [image][channel][pixels] over one box: [image][channel], and of every axis
/// [position][result].
Expr in_box(const Expr& site, const JoinedPixels& joined, const std::vector<BlockRun>& box);
/// Where a box lies of what is stored [image][channel of a position][positions].
Access of_box(const Access& access, const JoinedPixels& joined, const std::vector<BlockRun>& box);

}  // namespace fusor
