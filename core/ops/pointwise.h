// Owns the pointwise family: y = formula(a, b, c) elementwise. Rows in core/pointwise.def.
#pragma once

#include <limits>

#include "core/api.h"
#include "core/ops/family.h"

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

FUSOR_API const PointwiseInfo& info(PointwiseMode mode);
FUSOR_API std::string_view to_string(PointwiseMode mode);
/// Every mode in the order of the table, for look-ups by name and for tests that go through all.
int pointwise_mode_count();

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

  static constexpr Nature nature = Nature::computes;
  std::string_view kind() const { return "pointwise"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  /// Whether the mode reads that attribute: relu has clips, gelu has none.
  bool has(std::string_view field) const;
  bool needs_reals() const { return info(mode).domain == PointwiseDomain::real; }
  friend bool operator==(const Pointwise&, const Pointwise&) = default;
};

/// Whether the mode gives random words.
bool gives_words(PointwiseMode mode);
/// The integer type of gen_index along an axis of that extent.
DataType index_type(int64_t extent);

}  // namespace fusor
