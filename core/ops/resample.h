// Owns pooling and interpolation, forward and backward.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class ResampleMode : uint8_t {
  maxpool,
  avgpool_include_padding,
  avgpool_exclude_padding,
  bilinear,
  nearest
};
FUSOR_API std::string_view to_string(ResampleMode mode);
constexpr int enum_count(ResampleMode) { return 5; }

/// The attributes of both directions; x [N, C, spatial...], one entry per spatial dim in each list.
/// Pooling: window, stride, pre_padding, post_padding. The padding of avgpool_include_padding counts as
/// zeros. Interpolation: results of output_size; bilinear between the two neighbours along every dim, nearest
/// at the one below. Result i comes from the coordinate (step * i + shift) / denominator of x, kept inside of
/// x: three lists of integers, so that coordinates are exact. Without them they follow from align_corners, as
/// in PyTorch's interpolate: false maps centres to centres, i -> (i + 1/2) * from / to - 1/2 (nearest:
/// i * from / to), true the outermost elements, i -> i * (from - 1) / (to - 1).
struct ResampleAttributes {
  ResampleMode mode = ResampleMode::maxpool;
  Dims window = {}, stride = {}, pre_padding = {}, post_padding = {};
  Dims output_size = {};
  bool align_corners = false;
  Dims step = {}, shift = {}, denominator = {};

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("mode", self.mode);
    field("window", self.window);
    field("stride", self.stride);
    field("pre_padding", self.pre_padding);
    field("post_padding", self.post_padding);
    field("output_size", self.output_size);
    field("align_corners", self.align_corners);
    field("step", self.step);
    field("shift", self.shift);
    field("denominator", self.denominator);
  }
  bool pools() const { return mode != ResampleMode::bilinear && mode != ResampleMode::nearest; }
  /// Strides may be left out (the window's), and paddings of 0.
  void fill_omitted(int rank);
  bool says_coordinates() const { return !(step.empty() && shift.empty() && denominator.empty()); }
  /// With the coordinates of interpolation said, those of align_corners where none are.
  ResampleAttributes with_coordinates(const Dims& x) const;
  friend bool operator==(const ResampleAttributes&, const ResampleAttributes&) = default;
};

/// y, and of maxpool the place of the first maximum in its window, row-major.
struct ResampleForward : ResampleAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "resample_fwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const ResampleForward&, const ResampleForward&) = default;
};

/// dx, whose dims are x's. maxpool: an element of dx is the sum of dy over the windows whose first maximum is
/// that element; the places of the maxima are the operand `index`, or are computed again from the operand x.
struct ResampleBackward : ResampleAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "resample_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const ResampleBackward&, const ResampleBackward&) = default;
};

}  // namespace fusor
