// Owns the convolutions: forward, and the gradients of both operands.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

enum class ConvPass : uint8_t { fprop, dgrad, wgrad };
/// cross_correlation: the filter as stored (deep learning's "convolution"); convolution: the filter mirrored.
enum class ConvMode : uint8_t { cross_correlation, convolution };
FUSOR_API std::string_view to_string(ConvPass pass);
FUSOR_API std::string_view to_string(ConvMode mode);

/// Convolution with 1-3 spatial dims; tensors x [N, C, spatial...], w [K, C / groups, window...], y [N, K,
/// spatial...]. fprop: x, w -> y. dgrad: dy, w -> dx. wgrad: dy, x -> dw. groups = C of x / C of w. One entry
/// per spatial dim below.
struct Conv {
  ConvPass pass = ConvPass::fprop;
  Dims pre_padding, post_padding, stride, dilation;
  ConvMode mode = ConvMode::cross_correlation;
  int64_t groups = 0;  ///< 0: what the channels say; else checked against them
  DataType compute = DataType::f32;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("pre_padding", self.pre_padding);
    field("post_padding", self.post_padding);
    field("stride", self.stride);
    field("dilation", self.dilation);
    field("mode", self.mode);
    field("groups", self.groups);
    field("compute", self.compute);
  }

  static constexpr Nature nature = Nature::contracts;
  std::string_view kind() const;
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  /// One for each pass.
  static std::vector<Conv> kinds();
  /// Files may leave out the lists that hold one entry per spatial dim.
  void fill_omitted(int rank);
  friend bool operator==(const Conv&, const Conv&) = default;
};

/// Groups of a convolution: C of x / C of w.
int64_t conv_groups(const Conv& conv, const Dims& x, const Dims& w);

}  // namespace fusor
