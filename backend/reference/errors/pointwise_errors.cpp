// Owns what pointwise ops make of errors: their own roundings, and the slopes by which they carry others on.
#include <algorithm>
#include <cmath>

#include "backend/reference/errors/error_analysis.h"
#include "core/convert.h"
#include "core/expr.h"

namespace fusor::reference {

namespace {

// Slopes of erf, gelu and swish stay below this (1.13, 1.13, 1.10); those of the other activations below 1.
constexpr double kActivationSlope = 1.2;

bool is_backward(PointwiseMode mode) { return info(mode).name.ends_with("_bwd"); }

}  // namespace

bool ErrorAnalysis::picks(const Pointwise& op) {
  switch (op.mode) {
    case PointwiseMode::identity:
    case PointwiseMode::max:
    case PointwiseMode::min:
    case PointwiseMode::neg:
    case PointwiseMode::abs:
    case PointwiseMode::binary_select:
      return true;
    case PointwiseMode::relu:
      return has_default_parameters(op);
    default:
      return false;
  }
}

// The same where an element of it meets several others.
Deviation ErrorAnalysis::as_operand(const Op& op, size_t i, DataType compute) {
  Deviation deviation = as_computed(op.inputs[i], compute);
  if (measured_ && element_count(dims(op.inputs[i])) < element_count(dims(op.outputs[0]))) {
    deviation.absolute = deviation.absolute.shared();
    deviation.relative = deviation.relative.shared();
    deviation.peak = deviation.peak.shared();
    deviation.relative_peak = deviation.relative_peak.shared();
  }
  return deviation;
}

Deviation ErrorAnalysis::after_pointwise(const Op& op, const Pointwise& pointwise) {
  const double unit = epsilon(pointwise.compute);
  const PointwiseDomain domain = info(pointwise.mode).domain;
  if (domain == PointwiseDomain::compare || domain == PointwiseDomain::logical ||
      domain == PointwiseDomain::index)
    return {};
  Deviation total;
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (const Deviation operand = as_operand(op, i, pointwise.compute); operand.any())
      carry_operand(total, op, pointwise, i, operand);
  if (measured_ && (pointwise.mode == PointwiseMode::mul || pointwise.mode == PointwiseMode::add_square)) {
    const size_t first = pointwise.mode == PointwiseMode::mul ? 0 : 1;
    meet_in_product(total, as_operand(op, first, pointwise.compute), as_operand(op, 1, pointwise.compute));
  }
  // Numbers that the compute type holds are packed as they are.
  const bool is_exact = pointwise.mode == PointwiseMode::identity && is_real(pointwise.compute) &&
                        (is_packed(type(op.inputs[0])) || is_packed(type(op.outputs[0]))) &&
                        !holds_more_digits(type(op.inputs[0]), pointwise.compute);
  if (is_exact) return total;
  const double steps = total.any() && keeps_digits(op) ? 0 : steps_of(op, pointwise);
  if (rounds_relatively(pointwise))
    add_parts(total, op.outputs[0], 0, steps * unit);
  else
    total.peak.steps += steps * unit * largest_term(op, pointwise.mode);
  // Stored with more digits than it was computed with, a value keeps that rounding: sums add it up.
  if (is_real(pointwise.compute) && holds_more_digits(type(op.outputs[0]), pointwise.compute))
    total.add({.absolute = {unit * size(op.outputs[0]).rms, 0}}, 1, 1);
  // Below the least normal number there are fewer digits, or none.
  if (total.any() && is_real(pointwise.compute)) total.peak.steps += least_normal(pointwise.compute);
  return total;
}

// Adds the product of two factors' errors: it is all that is left where the factors should be zero.
void ErrorAnalysis::meet_in_product(Deviation& total, const Deviation& a, const Deviation& b) {
  const auto usual = [](const Deviation& factor) {
    return kSpreads * factor.absolute.total() + factor.peak.steps;
  };
  const double product = usual(a) * usual(b);
  total.absolute.common = std::hypot(total.absolute.common, product / kSpreads);
  total.peak.jump += (usual(a) + a.peak.jump) * (usual(b) + b.peak.jump) - product;
}

// Whether a step rounds to a number of its result's size wherever that is.
bool ErrorAnalysis::rounds_relatively(const Pointwise& op) {
  if (!is_real(op.compute)) return false;
  switch (op.mode) {
    case PointwiseMode::add:
    case PointwiseMode::sub:
    case PointwiseMode::mul:
    case PointwiseMode::div:
    case PointwiseMode::exp:
    case PointwiseMode::sqrt:
    case PointwiseMode::rsqrt:
    case PointwiseMode::reciprocal:
      return true;
    default:
      return picks(op);
  }
}

// The largest argument of an exponential that is not as good as 0.
double ErrorAnalysis::reach(const Op& op, DataType compute) const {
  const double least = -std::log(least_normal(compute)) - std::log(epsilon(compute));
  return std::min(size(op.inputs[0]).largest, std::max(size(op.inputs[0]).highest, least));
}

// Adds what an operand's error becomes.
void ErrorAnalysis::carry_operand(Deviation& total, const Op& op, const Pointwise& pointwise, size_t i,
                                  const Deviation& operand) const {
  if (measured_ && is_real(pointwise.compute) && carry_parts(total, op, pointwise, i, operand)) return;
  const double factor = slope(op, pointwise, i);
  total.add(in_absolute_terms(op.inputs[i], operand), factor, factor);
}

// The same by steps that make parts of the result of what are parts of an operand; false for others.
bool ErrorAnalysis::carry_parts(Deviation& total, const Op& op, const Pointwise& pointwise, size_t i,
                                const Deviation& operand) const {
  if (picks(pointwise) || (is_backward(pointwise.mode) && i == 0)) {
    const double factor = slope(op, pointwise, i);
    total.add(operand, factor, factor);
    total.add_relative(operand, 1);
  } else if (pointwise.mode == PointwiseMode::mul) {
    carry(total, operand, as_slope(op.inputs[1 - i], dims(op.outputs[0])));
    total.add_relative(operand, 1);
  } else if (pointwise.mode == PointwiseMode::exp) {
    carry_to_parts(total, operand, 1, reach(op, pointwise.compute));
  } else {
    return carry_beside_pole(total, op, pointwise.mode, i, operand);
  }
  return true;
}

// The same by steps that are steepest where an operand is near 0.
bool ErrorAnalysis::carry_beside_pole(Deviation& total, const Op& op, PointwiseMode mode, size_t i,
                                      const Deviation& operand) const {
  const Magnitude& near = size(op.inputs[mode == PointwiseMode::div ? 1 : i]);
  if (near.smallest == 0) return false;
  const double steepest = 1 / near.smallest;
  if (mode == PointwiseMode::div && i == 0) {
    total.add(operand, steepest, steepest);
    total.add_relative(operand, 1);
  } else if (mode == PointwiseMode::div || mode == PointwiseMode::reciprocal) {
    carry_to_parts(total, operand, steepest, 1);
  } else if (mode == PointwiseMode::rsqrt || (mode == PointwiseMode::sqrt && near.lowest > 0)) {
    carry_to_parts(total, operand, steepest / 2, 0.5);
  } else if (mode == PointwiseMode::log) {
    total.add(operand, steepest, steepest);
    total.add({.absolute = operand.relative, .peak = operand.relative_peak}, 1, 1);
  } else {
    return false;
  }
  return true;
}

// Adds parts of the result: by so much for an operand's error, and for its parts.
void ErrorAnalysis::carry_to_parts(Deviation& total, const Deviation& operand, double of_error,
                                   double of_parts) {
  total.add_relative({.relative = operand.absolute, .relative_peak = operand.peak}, of_error);
  total.add_relative(operand, of_parts);
}

// Roundings of one element. An operand of more digits than the compute type has is rounded elsewhere.
double ErrorAnalysis::steps_of(const Op& op, const Pointwise& pointwise) const {
  if (picks(pointwise)) return 0.5;
  switch (pointwise.mode) {
    case PointwiseMode::add:
    case PointwiseMode::sub:
    case PointwiseMode::mul:
      return 1;
    case PointwiseMode::exp:  // of a multiple of the argument
      return kStepsOfAFormula + (measured_ ? reach(op, pointwise.compute) / 2 : 0);
    default:
      return kStepsOfAFormula + tail_steps(op, pointwise.mode);
  }
}

// The result, or what it is the difference of: slopes of these activations change their sign where two
// terms of about a quarter cancel.
double ErrorAnalysis::largest_term(const Op& op, PointwiseMode mode) const {
  const double result = size(op.outputs[0]).largest;
  const bool cancels = mode == PointwiseMode::gelu_bwd || mode == PointwiseMode::gelu_tanh_bwd ||
                       mode == PointwiseMode::swish_bwd;
  return cancels && measured_ ? std::max(result, size(op.inputs[0]).largest / 4) : result;
}

// In the tail of gelu all results are exponentials of a rounded argument, whose size is the logarithm of
// theirs.
double ErrorAnalysis::tail_steps(const Op& op, PointwiseMode mode) const {
  const bool rounds_argument = mode == PointwiseMode::gelu || mode == PointwiseMode::gelu_tanh ||
                               mode == PointwiseMode::gelu_bwd || mode == PointwiseMode::gelu_tanh_bwd;
  const double result = size(op.outputs[0]).largest;
  if (!measured_ || !rounds_argument || result <= 0) return 0;
  const double scale = is_backward(mode) ? size(op.inputs[0]).largest : 1;
  return 4 * std::max(0.0, std::log(scale / result));
}

// How much steeper the op's parameters make it and, of a backward mode, its slope.
double ErrorAnalysis::steepness(const Pointwise& op) {
  switch (op.mode) {
    case PointwiseMode::relu:
    case PointwiseMode::relu_bwd:
      return std::max(1.0, std::abs(op.lower_clip_slope));
    case PointwiseMode::elu:
    case PointwiseMode::elu_bwd:
      return std::max(1.0, std::abs(op.elu_alpha));
    case PointwiseMode::softplus_bwd:
      return std::max(1.0, std::abs(op.softplus_beta));
    case PointwiseMode::swish_bwd:
      return std::max(1.0, std::abs(op.swish_beta));
    default:
      return 1;
  }
}

double ErrorAnalysis::slope(const Op& op, const Pointwise& pointwise, size_t operand) const {
  if (!measured_) return 1;
  const auto size_of = [&](size_t i) { return size(op.inputs[i]).largest; };
  const double steep = kActivationSlope * steepness(pointwise);
  if (is_backward(pointwise.mode)) return operand == 0 ? steep : steep * size_of(0);
  switch (pointwise.mode) {
    case PointwiseMode::mul:
      return size_of(1 - operand);
    case PointwiseMode::add_square:
      return operand == 0 ? 1 : 2 * size_of(1);
    case PointwiseMode::identity:
    case PointwiseMode::add:
    case PointwiseMode::sub:
    case PointwiseMode::max:
    case PointwiseMode::min:
    case PointwiseMode::abs:
    case PointwiseMode::neg:
    case PointwiseMode::binary_select:
      return 1;
    case PointwiseMode::relu:
    case PointwiseMode::tanh:
    case PointwiseMode::sigmoid:
    case PointwiseMode::elu:
    case PointwiseMode::softplus:
    case PointwiseMode::sin:
    case PointwiseMode::cos:
      return steepness(pointwise);
    case PointwiseMode::gelu:
    case PointwiseMode::gelu_tanh:
    case PointwiseMode::swish:
    case PointwiseMode::erf:
      return steep;
    default: {  // exponentials have the slope of their value, powers that of value / operand
      const double result = size(op.outputs[0]).largest;
      return std::max({1.0, result, size_of(operand) > 0 ? result / size_of(operand) : 0.0});
    }
  }
}

}  // namespace fusor::reference
