// Owns how far a tensor's elements may be off, as the error analysis carries it from op to op.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace fusor::reference {

/// Standard deviations of errors that are independent of each other, and of those that elements have in
/// common.
struct Spread {
  double own = 0, common = 0;
  double total() const { return std::hypot(own, common); }
  void add(const Spread& other, double factor) {
    own = std::hypot(own, other.own * factor);
    common = std::hypot(common, other.common * factor);
  }
  void raise_to(const Spread& other) {
    own = std::max(own, other.own);
    common = std::max(common, other.common);
  }
  Spread shared() const { return {0, total()}; }
};

/// Errors of single elements: `steps` is that of any element by its roundings, `jump` that of the rare one
/// that falls on the other side of a boundary, and `common` the error that all readers of a broadcast
/// element have together, in a typical one of them.
struct Peak {
  double steps = 0, jump = 0, common = 0;
  double total() const { return steps + jump; }
  void add(const Peak& other, double factor, double common_factor) {
    steps += other.steps * factor;
    jump += other.jump * factor;
    common += other.common * common_factor;
  }
  void raise_to(const Peak& other) {
    steps = std::max(steps, other.steps);
    jump = std::max(jump, other.jump);
    common = std::max(common, other.common);
  }
  Peak shared() const { return {steps, jump, std::max(jump, common)}; }
};

/// In absolute terms, and in parts of each element's own value: an element v is off by both.
struct Deviation {
  Spread absolute = {}, relative = {};
  Peak peak = {}, relative_peak = {};
  /// Set by the last rounding: the type's spacing at the tensor's largest element, which is what the peak
  /// counts for that rounding. 0 behind any other step.
  double top_spacing = 0;
  bool any() const { return absolute.total() + relative.total() + peak.total() + relative_peak.total() > 0; }
  /// An infinite error times zero, or less another infinite one, is NaN: it counts as infinite.
  void unbound_unknown() {
    for (double* const part :
         {&absolute.own, &absolute.common, &relative.own, &relative.common, &peak.steps, &peak.jump,
          &peak.common, &relative_peak.steps, &relative_peak.jump, &relative_peak.common})
      if (std::isnan(*part)) *part = std::numeric_limits<double>::infinity();
  }
  void add(const Deviation& other, double spread_factor, double peak_factor) {
    absolute.add(other.absolute, spread_factor);
    peak.add(other.peak, peak_factor, spread_factor);
  }
  void add_relative(const Deviation& other, double factor) {
    relative.add(other.relative, factor);
    relative_peak.add(other.relative_peak, factor, factor);
  }
};

/// The root mean square, and the mean, of a tensor's elements that are summed to one, where they are largest.
struct Line {
  double rms = 0, drift = 0;
};

/// How steep a step is: over the worst of the lines that a later sum may run along, and where it is steepest.
struct Slope {
  double line = 0, largest = 0;
};

}  // namespace fusor::reference
