// Owns the attributes of every op. One visit() per struct names each field once: JSON, hash, equality and
// printing follow.
#pragma once

#include <limits>
#include <string_view>
#include <variant>

#include "core/api.h"
#include "core/data_type.h"
#include "core/dims.h"

namespace fusor {

enum class PointwiseMode : uint8_t {
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) mode,
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
};

enum class PointwiseDomain : uint8_t { real, any, compare, logical, index };

/// One row of core/pointwise.def.
struct PointwiseInfo {
  std::string_view name;
  int inputs;
  PointwiseDomain domain;
  int alu;  ///< fp32 instructions an element (short form)
  int sfu;  ///< special-function instructions an element (short form)
};

enum class ReductionMode : uint8_t { add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros };
enum class ConvPass : uint8_t { fprop, dgrad, wgrad };
/// cross_correlation: the filter as stored (deep learning's "convolution"); convolution: the filter mirrored.
enum class ConvMode : uint8_t { cross_correlation, convolution };

FUSOR_API const PointwiseInfo& info(PointwiseMode mode);
FUSOR_API std::string_view to_string(PointwiseMode mode);
FUSOR_API std::string_view to_string(ReductionMode mode);
FUSOR_API std::string_view to_string(ConvPass pass);
FUSOR_API std::string_view to_string(ConvMode mode);
/// Every mode in the order of its table, for look-ups by name and for tests that go through all.
int pointwise_mode_count();
int reduction_mode_count();

/// y = formula(a, b, c) elementwise with broadcasting. Inputs: the operands in the order of the table;
/// backward modes take (dy, x), binary_select takes (a, b, t). Formula: core/pointwise.def.
struct Pointwise {
  PointwiseMode mode = PointwiseMode::identity;
  DataType compute = DataType::f32;
  double lower_clip = 0;                                        // relu, relu_bwd
  double upper_clip = std::numeric_limits<double>::infinity();  // relu, relu_bwd
  double lower_clip_slope = 0;                                  // relu, relu_bwd
  double elu_alpha = 1;
  double softplus_beta = 1;
  double swish_beta = 1;
  int64_t axis = 0;  // gen_index

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("mode", self.mode);
    field("compute", self.compute);
    field("lower_clip", self.lower_clip);
    field("upper_clip", self.upper_clip);
    field("lower_clip_slope", self.lower_clip_slope);
    field("elu_alpha", self.elu_alpha);
    field("softplus_beta", self.softplus_beta);
    field("swish_beta", self.swish_beta);
    field("axis", self.axis);
  }
  friend bool operator==(const Pointwise&, const Pointwise&) = default;
};

/// y = x reduced to y's dims: an axis whose extent in y is 1 is reduced whole; one whose extent d divides x's
/// D is reduced in d groups of D / d neighbours.
struct Reduction {
  ReductionMode mode = ReductionMode::add;
  DataType compute = DataType::f32;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("mode", self.mode);
    field("compute", self.compute);
  }
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

/// c[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; leading axes broadcast both ways.
struct Matmul {
  DataType compute = DataType::f32;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("compute", self.compute);
  }
  friend bool operator==(const Matmul&, const Matmul&) = default;
};

/// Convolution with 1-3 spatial dims; tensors x [N, C, spatial...], w [K, C / groups, window...], y [N, K,
/// spatial...]. fprop: x, w -> y. dgrad: dy, w -> dx. wgrad: dy, x -> dw. groups = C of x / C of w. One entry
/// per spatial dim below.
struct Conv {
  ConvPass pass = ConvPass::fprop;
  Dims pre_padding, post_padding, stride, dilation;
  ConvMode mode = ConvMode::cross_correlation;
  DataType compute = DataType::f32;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("pre_padding", self.pre_padding);
    field("post_padding", self.post_padding);
    field("stride", self.stride);
    field("dilation", self.dilation);
    field("mode", self.mode);
    field("compute", self.compute);
  }
  friend bool operator==(const Conv&, const Conv&) = default;
};

/// The same elements in row-major order under other dims (those of y).
struct Reshape {
  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}
  friend bool operator==(const Reshape&, const Reshape&) = default;
};

/// y's axis i is x's axis permutation[i].
struct Transpose {
  Dims permutation;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("permutation", self.permutation);
  }
  friend bool operator==(const Transpose&, const Transpose&) = default;
};

/// y[i] = x[start + i * step] for start + i * step < limit, per axis; steps of 1 or more.
struct Slice {
  Dims start, limit, step;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("start", self.start);
    field("limit", self.limit);
    field("step", self.step);
  }
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// The inputs one behind the other along `axis`.
struct Concatenate {
  int64_t axis = 0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
  }
  friend bool operator==(const Concatenate&, const Concatenate&) = default;
};

using Attributes = std::variant<Pointwise, Reduction, Matmul, Conv, Reshape, Transpose, Slice, Concatenate>;

/// "pointwise", "reduction", "matmul", "conv_fprop", "conv_dgrad", "conv_wgrad", "reshape", "transpose",
/// "slice", "concatenate".
FUSOR_API std::string_view kind_name(const Attributes& attributes);
/// "relu", "add" (reduction), else kind_name: what a reader calls the op.
FUSOR_API std::string_view short_name(const Attributes& attributes);
/// The compute type, or nothing for ops that only move elements.
FUSOR_API const DataType* compute_type(const Attributes& attributes);
/// Whether the op only renames coordinates (reshape, transpose, slice).
FUSOR_API bool is_view(const Attributes& attributes);
/// Whether the op contracts two operands (matmul, convolution): the anchors of fusions.
FUSOR_API bool is_contraction(const Attributes& attributes);

}  // namespace fusor
