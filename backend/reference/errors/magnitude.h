// Owns the size of a tensor's values, as the error analysis asks for it, and how it is gathered.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_set>
#include <vector>

#include "core/dims.h"

namespace fusor::reference {

/// Lines along an axis of fewer elements say more about single elements than about sums.
inline constexpr int64_t kLongLine = 32;
/// Numbers next to the end of fp32 stand for infinity: rows that attend to nothing have the least of them for
/// their largest score.
inline constexpr double kAsGoodAsInfinite = 0x1p126;

/// Size of a tensor's finite values.
struct Magnitude {
  double largest = 0;
  double rms = 0;
  /// Values that differ: equal ones have equal errors. Many where nobody has counted.
  double distinct = std::numeric_limits<double>::infinity();
  double nonzeros = 0;  ///< how many elements are not 0
  double smallest = 0;  ///< of the absolute values that are not 0
  double lowest = -1, highest = 1;
  /// By axis, over its lines: the largest root mean square, and the largest absolute mean. 0 where the axis
  /// is short, empty where nobody has looked.
  std::vector<double> lines = {}, drifts = {};
  /// By axis: how many slices across it have the same elements, at most. Empty where nobody has looked.
  std::vector<double> copies = {};
};

/// Gathers a Magnitude, but for its lines and copies, from finite values. Those that stand for infinity count
/// only where others are large, too.
class SizeOf {
 public:
  void take_in(double value) {
    if (!std::isfinite(value)) return;
    (std::abs(value) < kAsGoodAsInfinite ? usual_ : endmost_).take_in(value);
    zeros_ += value == 0 ? 1 : 0;
    if (values_.size() < kMostCounted) values_.insert(value);
  }
  Magnitude magnitude() const;

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Values {
    double largest = 0, smallest = kInfinity, lowest = kInfinity, highest = -kInfinity, squares = 0;
    int64_t count = 0;
    void take_in(double value) {
      const double size = std::abs(value);
      take_in({size, size == 0 ? kInfinity : size, value, value, value * value, 1});
    }
    void take_in(const Values& others) {
      largest = std::max(largest, others.largest);
      smallest = std::min(smallest, others.smallest);
      lowest = std::min(lowest, others.lowest);
      highest = std::max(highest, others.highest);
      squares += others.squares;
      count += others.count;
    }
  };
  // Where there are more values than 8 bits hold, errors are as good as independent.
  static constexpr size_t kMostCounted = 1024;
  Values usual_, endmost_;
  std::unordered_set<double> values_;
  int64_t zeros_ = 0;
};

/// Gathers root mean squares and means of a tensor's long lines, along each axis.
class LinesOf {
 public:
  explicit LinesOf(const Dims& dims);

  /// Elements in row-major order, from which some may be left out.
  void take_in(int64_t element, double value) {
    if (!std::isfinite(value) || std::abs(value) >= kAsGoodAsInfinite) return;
    if (element >= first_ + row_) begin_row(element);
    for (Axis& axis : axes_) {
      Line& line = axis.lines[static_cast<size_t>(axis.first + (axis.step == 1 ? 0 : element - first_))];
      line.squares += value * value;
      line.sum += value;
    }
  }
  /// Adds what was gathered to the size of the same tensor.
  void finish(Magnitude& size) const;

 private:
  struct Line {
    double squares = 0, sum = 0;
  };
  struct Axis {
    int axis;
    int64_t step, extent;
    std::vector<Line> lines;
    int64_t first = 0;  // line of the row's first element
  };

  void begin_row(int64_t element);

  int rank_;
  int64_t row_;  // elements of one
  int64_t first_ = 0;
  std::vector<Axis> axes_;
};

/// Finds slices of a tensor, along each axis, that have the same elements: what was computed of them has the
/// same errors.
class SlicesOf {
 public:
  explicit SlicesOf(const Dims& dims);

  /// Elements in row-major order, from which some may be left out.
  void take_in(int64_t element, double value) {
    if (element >= first_ + row_) end_row(element);
    const auto bits = value == 0 ? 0 : std::bit_cast<uint64_t>(value);
    columns_[static_cast<size_t>(element - first_)].take_in(bits);
    of_row_.take_in(bits);
  }
  /// Adds what was gathered to the size of the same tensor.
  void finish(Magnitude& size);

 private:
  struct Hash {
    uint64_t value = 0, first = 0;
    bool is_empty = true, varies = false;
    void take_in(uint64_t bits) {
      constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
      if (is_empty) first = bits;
      is_empty = false;
      varies = varies || bits != first;
      value = (value ^ bits) * kMultiplier;
      value ^= value >> 32;
    }
  };

  void end_row(int64_t next_element);
  static double most_equal(std::vector<Hash> slices);

  Dims dims_;
  int64_t row_;  // elements of one
  int64_t first_ = 0;
  Hash of_row_;
  std::vector<Hash> columns_;              // along the last axis
  std::vector<std::vector<Hash>> slices_;  // along the others
};

}  // namespace fusor::reference
