// Owns the arithmetic of a dgrad of a stride as one product per class of input positions: the host's side of
// codegen/device/contraction/residue_classes.cuh.
#pragma once

#include <vector>

#include "backend/engines/contraction/product.h"

namespace fusor {

class Parameters;

/// Along one axis, the input positions p * stride + remainder. Those meet the taps first_tap + j * tap_step,
/// j < taps, and tap j at the output position p + lower + origin + j * slope.
struct AxisClass {
  int64_t remainder = 0;
  int64_t taps = 0, first_tap = 0;
  int64_t origin = 0;  ///< origin + j * slope is 0 or more, for every class and every tap
};
struct AxisClasses {
  int64_t positions = 1;  ///< of the largest class
  int64_t tap_step = 1;
  int64_t lower = 0, slope = 0;
  int64_t reach = 0;  ///< the largest origin + j * slope
  std::vector<AxisClass> classes;
};
/// The classes of a dgrad's axis; a stride of 1 makes one class of all positions.
AxisClasses axis_classes(const WindowAxis& axis);

/// A class of pixels: one of every axis.
struct ResidueClass {
  int64_t taps = 1, first_tap = 0;  ///< of all axes together; the latter row-major in the filter
  std::vector<AxisClass> axes;
};
struct ResidueClasses {
  int64_t rows = 1;  ///< of every class: (image, position), some of them beyond the input's end
  std::vector<AxisClasses> axes;
  std::vector<int64_t> tap_steps;     ///< along the axes; row-major in the filter
  std::vector<ResidueClass> classes;  ///< those with most taps first

  int64_t count() const { return static_cast<int64_t>(classes.size()); }
  int64_t taps() const;  ///< of all classes
  /// The argument bytes of `ResidueClasses` on the device, for channels in so many blocks.
  void append_to(Parameters& p, int64_t channel_blocks) const;
};

/// How many classes a contraction has: 0 where it is no dgrad of a stride.
int64_t residue_class_count(const Contraction& view);
/// Classes that the arguments of one launch have room for. More are not even counted, which would take as
/// long as a stride is wide.
inline constexpr int64_t kMaxResidueClasses = 16;
ResidueClasses residue_classes(const Contraction& view);

}  // namespace fusor
