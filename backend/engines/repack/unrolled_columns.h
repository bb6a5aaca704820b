// Owns the arithmetic of unrolled columns: a convolution of few input channels as one of many, in which a
// window's columns, those along the last axis, are channels of its result's position.
#pragma once

#include <optional>

#include "backend/engines/contraction/product.h"
#include "core/attributes.h"

namespace fusor {

/// In scratch a row is columns one behind the other, padding among them, so that the windows of neighbouring
/// results are runs of memory that overlap: nothing is copied for every window. Column j of a row is that of
/// the image at j + first_column.
struct UnrolledColumns {
  int64_t channels = 1;            ///< of the convolution of unrolled columns: of `window` columns
  int64_t channels_of_column = 1;  ///< filled up, so that runs begin on multiples of 16 bytes
  int64_t window = 1;              ///< columns from a window's first to its last tap, skipped ones among them
  int64_t columns = 1;             ///< of a row, a multiple of the stride
  int64_t stride = 1;              ///< columns between neighbouring runs
  int64_t first_column = 0;        ///< may be negative: padding
  int64_t first_tap = 0, tap_step = 1;  ///< tap t meets column first_tap + t * tap_step of a run

  /// The columns of the image that a row holds: from `image_begin()` on, none or more.
  int64_t image_begin() const { return first_column > 0 ? first_column : 0; }
  int64_t image_columns(int64_t input) const;
  /// The convolution that is left: one tap along the last axis.
  Conv convolution(const Conv& of_columns) const;
};

/// For fprop of one group whose images lie in scratch as `type`, where the unrolled convolution has fewer
/// steps of k, and wgrad in 16 bits, where its result has fewer lines; else nothing.
std::optional<UnrolledColumns> unrolled_columns(const Contraction& view, DataType type);

}  // namespace fusor
