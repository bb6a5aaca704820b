// Owns ErrorAnalysis, which carries what roundings may do from op to op; error_bound.cpp says by which rules.
#pragma once

#include <limits>
#include <vector>

#include "backend/reference/errors/deviation.h"
#include "backend/reference/errors/error_bound.h"
#include "core/graph.h"

namespace fusor::reference {

/// Roundings inside one formula of core/pointwise.def: elementary functions of 2 ulp, a handful of steps.
inline constexpr double kStepsOfAFormula = 8;
/// Standard deviations that the worst of many elements is off by.
inline constexpr double kSpreads = 8;

inline double least_normal(DataType compute) {
  return compute == DataType::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

/// Whether numbers of `type` may have digits that `compute`, a real type, has no room for.
inline bool holds_more_digits(DataType type, DataType compute) {
  if (compute == DataType::f64) return type == DataType::i64;
  return type == DataType::f64 || type == DataType::i64 || type == DataType::i32;
}

class ErrorAnalysis {
 public:
  /// `measured`: magnitudes are those of the tensors; otherwise all are the output's and only ratios of 1 are
  /// known.
  ErrorAnalysis(const Graph& graph, std::vector<Magnitude> magnitudes, bool measured, const Notes& notes);
  Bound bound(int output, const std::vector<bool>& cone);

 private:
  Deviation& error(int tensor) { return errors_[static_cast<size_t>(tensor)]; }
  const Magnitude& size(int tensor) const { return magnitudes_[static_cast<size_t>(tensor)]; }
  const Deviation& error(int tensor) const { return errors_[static_cast<size_t>(tensor)]; }
  const Dims& dims(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].dims; }
  DataType type(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].type; }

  // --- Steps, roundings and the output: error_bound.cpp ---
  void follow_softmax(const Op& op);
  void follow_scale(const Op& op);
  bool rounds_otherwise(int tensor) const;
  bool keeps_digits(const Op& op) const;
  static bool picks(ReductionMode mode);
  void add_parts(Deviation& to, int tensor, double spread, double peak) const;
  Peak peak_of(int tensor, const Deviation& deviation) const;
  Deviation in_absolute_terms(int tensor, const Deviation& deviation) const;
  static double of_the_worst(const Spread& spread, const Slope& slope);
  static void carry(Deviation& total, const Deviation& operand, const Slope& slope);
  Slope as_slope(int tensor, const Dims& result) const;
  double beyond_cover(int tensor, double line) const;
  bool is_long(int tensor, int axis) const;
  bool rounds_once(const Op& op) const;
  void round(int tensor, bool once);
  void add_flips(Spread& spread, const Peak& peak, double quantum) const;
  void round_absolutely(int tensor);
  double largest_spacing(int tensor) const;
  void round_packed(int tensor);
  static double widest_step(DataType type);
  static double least_spacing(DataType type);
  Deviation after(const Op& op);
  Deviation as_computed(int tensor, DataType compute);
  Deviation moved(const Op& op);
  Deviation gathered(const Op& op);
  Bound at_output(int output) const;

  // --- Pointwise ops: pointwise_errors.cpp ---
  static bool picks(const Pointwise& op);
  Deviation as_operand(const Op& op, size_t i, DataType compute);
  Deviation after_pointwise(const Op& op, const Pointwise& pointwise);
  static bool rounds_relatively(const Pointwise& op);
  double reach(const Op& op, DataType compute) const;
  void carry_operand(Deviation& total, const Op& op, const Pointwise& pointwise, size_t i,
                     const Deviation& operand) const;
  static void meet_in_product(Deviation& total, const Deviation& a, const Deviation& b);
  static void meet_in_products(Deviation& total, const Deviation& a, const Deviation& b, double count);
  bool carry_parts(Deviation& total, const Op& op, const Pointwise& pointwise, size_t i,
                   const Deviation& operand) const;
  bool carry_beside_pole(Deviation& total, const Op& op, PointwiseMode mode, size_t i,
                         const Deviation& operand) const;
  static void carry_to_parts(Deviation& total, const Deviation& operand, double of_error, double of_parts);
  double steps_of(const Op& op, const Pointwise& pointwise) const;
  double largest_term(const Op& op, PointwiseMode mode) const;
  double tail_steps(const Op& op, PointwiseMode mode) const;
  static double steepness(const Pointwise& op);
  double slope(const Op& op, const Pointwise& pointwise, size_t operand) const;

  // --- Reductions and contractions: sum_errors.cpp ---
  Deviation after_reduction(const Op& op, const Reduction& reduction);
  Line line_of(int tensor, const std::vector<int>& axes, double otherwise) const;
  double line_of_terms(int x, int y) const;
  Deviation after_sum(const Op& op, const Reduction& reduction, const Deviation& operand) const;
  static void meet_in_sum(Deviation& total, const Deviation& operand, double walk, double terms);
  Deviation after_unknown_sum(const Op& op, const Reduction& reduction, const Deviation& operand) const;
  double copies_along(int tensor, const std::vector<int>& axes) const;
  double walk_of(double count, int tensor, double copies) const;
  double repeats(int tensor, double count, double copies) const;
  std::vector<int> axes_of_sum(int x, int y) const;
  Deviation as_multiplied(int tensor, bool rounds) const;
  Line line_of_operand(const Op& op, size_t i) const;
  std::vector<int> summed_axes(const Op& op, size_t i) const;
  void carry_factor(Deviation& total, const Op& op, size_t i, const Deviation& factor, double count) const;
  Deviation after_contraction(const Op& op, DataType compute);
  double cut_sums(int a, int b, int c, double count) const;
  Deviation short_sums(int a, int b, int c, double count) const;
  double growth_of_sums(double count) const;

  const Graph& graph_;
  std::vector<Magnitude> magnitudes_;
  bool measured_;
  Notes notes_;
  std::vector<Deviation> errors_;
  std::vector<bool> has_sum_, is_divided_, is_scaled_;  // by tensor
};

}  // namespace fusor::reference
