// Owns the error analysis behind verify's tolerance.
//
// A right run differs from the oracle by roundings. Each tensor carries two numbers: `spread`, the standard
// deviation of an element's error, and `peak`, what a single element may be off by without being part of a
// crowd. Both have an absolute part and one in parts of the element's own value, which products, quotients,
// exponentials and sums of one sign keep: where sizes differ much (a masked softmax), what is true of the
// largest element is far too much for the others.
//  1. Pointwise steps round a few times in their compute type: peak, in epsilons of that type of the value,
//     or of the largest one where a formula may cancel. A sum or a product rounds once; what picks one of its
//     operands rounds nothing.
//  2. Accumulation: K terms added one after the other are rounded K times, at partial sums that grow like the
//     result.
//     These roundings are as good as random: a walk of sqrt(K) steps, together 0.12 sqrt(K) epsilons of the
//     result's size (spread; with what it takes for the worst of many, sqrt(K) / 6). Sums of random terms
//     that cancel have those of sqrt(K) terms besides. Other orders of accumulation (tiles, warps, threads)
//     stay below. Where only the output's values are known, sqrt(K) / 3.
//  3. The rounding to a virtual tensor's type: an error e moves a value across a rounding boundary once in q
//  / e times,
//     q being that type's spacing at the value, and then the two sides are q apart: variance e * q, peak q.
//     Over the values between two powers of two the spacing is 0.72 epsilons of the value in the mean (1 / (2
//     ln 2)). Such a jump is rare: it makes no other element jump, as the roundings that all of them have do.
//     What is a number of the type already is not rounded again, and what was computed with no more digits
//     than the type has is rounded by the oracle alone, by half a spacing.
//  4. Later steps carry errors on by their slope: spreads by its root mean square over the worst of the lines
//     that a sum may run along, and four of them to a peak for the few elements where it is steeper. A sum
//     carries K independent ones: sqrt(K) times the spread; a peak is met once. Equal values have equal
//     errors: of D values that differ there are D independent ones, each K / D times. What is broadcast is an
//     error, or a jump, that its readers have in common: a sum carries it K times, a product with other terms
//     as often as these do not cancel.
//  5. Operands rounded to TF32 are as good as random by up to one spacing at the value (spread: a spacing
//     over sqrt(12)); where they are cut off instead, all are a little too small, and so is the result: half
//     a spacing for each of the two (peak of the result).
//  6. Short sums of fp8 lose the bits behind the 13th of the largest addend: each addend up to a spacing of
//     it, as good as random (spread), and all toward zero (peak of the result).
//  7. A softmax that is divided behind a product rounds its probabilities as other numbers than the oracle
//     does: the two differ by up to a spacing, as good as random (spread: a spacing over sqrt(6)).
//  8. Tensor cores add the products of one instruction (32 bytes of k) to a sum of 16-bit or TF32 operands
//     and cut off what the sum has no digits for: always toward zero, half a spacing each time in the mean.
//     So the error grows like the number of instructions, not like its root (peak of the result).
// The bound is eight spreads and the peak. Behind the parts of the value comes the output's own rounding: one
// epsilon, the two sides of a boundary.
#include "backend/reference/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/contraction.h"
#include "backend/reference/deviation.h"
#include "core/convert.h"
#include "core/expr.h"

namespace fusor::reference {

namespace {

double least_normal(DataType compute) {
  return compute == DataType::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

// Roundings inside one formula of core/pointwise.def: elementary functions of 2 ulp, a handful of steps.
constexpr double kStepsOfAFormula = 8;
// A type's spacing at a value as a part of epsilon times the value, in the mean over a binade.
constexpr double kMeanSpacing = 0.75;
// Slopes of erf, gelu and swish stay below this (1.13, 1.13, 1.10); those of the other activations below 1.
constexpr double kActivationSlope = 1.2;
// Spacing of TF32's numbers: 10 mantissa bits.
constexpr double kTf32Epsilon = 0x1p-10;
// The rounding unit of sums of fp8 in Hopper's tensor cores.
constexpr double kShortEpsilon = 0x1p-13;

// Whether numbers of `type` may have digits that `compute`, a real type, has no room for.
bool holds_more_digits(DataType type, DataType compute) {
  if (compute == DataType::f64) return type == DataType::i64;
  return type == DataType::f64 || type == DataType::i64 || type == DataType::i32;
}

bool is_backward(PointwiseMode mode) { return info(mode).name.ends_with("_bwd"); }

class ErrorAnalysis {
 public:
  /// `measured`: magnitudes are those of the tensors; otherwise all are the output's and only ratios of 1 are
  /// known.
  ErrorAnalysis(const Graph& graph, std::vector<Magnitude> magnitudes, bool measured, const Notes& notes)
      : graph_(graph),
        magnitudes_(std::move(magnitudes)),
        measured_(measured),
        notes_(notes),
        errors_(graph.tensors.size()),
        has_sum_(graph.tensors.size()),
        is_divided_(graph.tensors.size()) {}

  Bound bound(int output, const std::vector<bool>& cone) {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!cone[i]) continue;
      const int y = graph_.ops[i].outputs[0];
      error(y) = after(graph_.ops[i]);
      follow_softmax(graph_.ops[i]);
      if (y != output && !keeps_digits(graph_.ops[i])) round(y, rounds_once(graph_.ops[i]));
    }
    return at_output(output);
  }

 private:
  Deviation& error(int tensor) { return errors_[static_cast<size_t>(tensor)]; }
  const Magnitude& size(int tensor) const { return magnitudes_[static_cast<size_t>(tensor)]; }
  const Deviation& error(int tensor) const { return errors_[static_cast<size_t>(tensor)]; }
  const Dims& dims(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].dims; }
  DataType type(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].type; }

  // Which values were divided by a sum, if only on their way through other steps.
  void follow_softmax(const Op& op) {
    const auto is_any = [&](const std::vector<bool>& of) {
      return std::ranges::any_of(op.inputs, [&](int x) { return of[static_cast<size_t>(x)]; });
    };
    const auto y = static_cast<size_t>(op.outputs[0]);
    if (const auto* const reduction = std::get_if<Reduction>(&op.attributes)) {
      has_sum_[y] = reduction->mode == ReductionMode::add;
    } else if (std::holds_alternative<Matmul>(op.attributes) || std::holds_alternative<Conv>(op.attributes)) {
      return;
    } else {
      const auto* const pointwise = std::get_if<Pointwise>(&op.attributes);
      const bool divides = pointwise != nullptr && pointwise->mode == PointwiseMode::div;
      has_sum_[y] = is_any(has_sum_);
      is_divided_[y] = is_any(is_divided_) || (divides && has_sum_[static_cast<size_t>(op.inputs[1])]);
    }
  }

  // Whether the result's elements are elements of operands, which are numbers of its type already.
  bool keeps_digits(const Op& op) const {
    if (!measured_) return false;
    const DataType to = type(op.outputs[0]);
    if (!std::ranges::all_of(op.inputs, [&](int x) { return !error(x).any() || type(x) == to; }))
      return false;
    if (const auto* const pointwise = std::get_if<Pointwise>(&op.attributes))
      return picks(*pointwise) && is_real(pointwise->compute) && !holds_more_digits(to, pointwise->compute);
    if (const auto* const reduction = std::get_if<Reduction>(&op.attributes))
      return picks(reduction->mode) && is_real(reduction->compute) &&
             !holds_more_digits(to, reduction->compute);
    return !is_contraction(op.attributes);
  }

  static bool picks(ReductionMode mode) {
    return mode == ReductionMode::min || mode == ReductionMode::max || mode == ReductionMode::amax;
  }

  static bool picks(const Pointwise& op) {
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

  // Adds errors in parts of the tensor's elements.
  void add_parts(Deviation& to, int tensor, double spread, double peak) const {
    if (measured_)
      to.add_relative({.relative = {spread, 0}, .relative_peak = {peak, 0}}, 1);
    else
      to.add({.absolute = {spread * size(tensor).rms, 0}, .peak = {peak * size(tensor).largest, 0}}, 1, 1);
  }

  // The largest error that an element is off by without being part of a crowd.
  Peak peak_of(int tensor, const Deviation& deviation) const {
    const double largest = size(tensor).largest;
    Peak peak = deviation.peak;
    peak.add(deviation.relative_peak, largest, measured_ ? as_slope(tensor, dims(tensor)).line : largest);
    const double rounding = epsilon(type(tensor)) * largest;
    if (deviation.top_spacing > 0) peak.jump += std::min(deviation.top_spacing - rounding, 0.0);
    return peak;
  }

  Deviation in_absolute_terms(int tensor, const Deviation& deviation) const {
    Deviation absolute{.absolute = deviation.absolute, .peak = peak_of(tensor, deviation)};
    if (!measured_) return absolute;
    const Slope slope = as_slope(tensor, dims(tensor));
    absolute.absolute.add(deviation.relative, slope.line);
    absolute.peak.jump += of_the_worst(deviation.relative, slope);
    return absolute;
  }

  // What elements where the slope is steepest are off by beyond the spread.
  static double of_the_worst(const Spread& spread, const Slope& slope) {
    constexpr double kDeviations = 4, kCovered = 2;  // of one element; of the eight of the bound
    return kDeviations * spread.total() * std::max(0.0, slope.largest - kCovered * slope.line);
  }

  static void carry(Deviation& total, const Deviation& operand, const Slope& slope) {
    total.add(operand, slope.line, slope.largest);
    total.peak.jump += of_the_worst(operand.absolute, slope);
  }

  // A tensor as the slope of what multiplies it, in a result of `result` dims.
  Slope as_slope(int tensor, const Dims& result) const {
    const double largest = size(tensor).largest;
    if (element_count(dims(tensor)) < element_count(result)) return {largest, largest};
    double line = 0;
    for (int axis = 0; axis < dims(tensor).rank(); ++axis)
      if (is_long(tensor, axis)) line = std::max(line, size(tensor).lines[static_cast<size_t>(axis)]);
    return {beyond_cover(tensor, line > 0 ? line : largest), largest};
  }

  // Eight spreads cover lines that are a little larger than the others.
  double beyond_cover(int tensor, double line) const {
    constexpr double kCovered = 1.5;
    return std::max(size(tensor).rms, line / kCovered);
  }

  bool is_long(int tensor, int axis) const {
    return static_cast<size_t>(axis) < size(tensor).lines.size() && dims(tensor)[axis] >= kLongLine;
  }

  // Whether the result is stored with the digits that it is computed in: then the oracle alone rounds it
  // once more.
  bool rounds_once(const Op& op) const {
    const DataType* const compute = compute_type(op.attributes);
    const DataType to = type(op.outputs[0]);
    return measured_ && compute != nullptr && is_real(*compute) && is_real(to) && !is_packed(to) &&
           epsilon(to) <= epsilon(*compute);
  }

  void round(int tensor, bool once) {
    Deviation& deviation = error(tensor);
    if (!deviation.any()) return;
    if (notes_.late_division && is_divided_[static_cast<size_t>(tensor)] && is_real(type(tensor)))
      add_parts(deviation, tensor, epsilon(type(tensor)) / std::sqrt(6.0), 0);
    if (is_packed(type(tensor))) return round_packed(tensor);
    if (!measured_ || !is_real(type(tensor))) return round_absolutely(tensor);
    const double unit = epsilon(type(tensor)), spacing = least_spacing(type(tensor));
    if (once) return add_parts(deviation, tensor, unit / std::sqrt(12.0), unit / 2);
    const double top = largest_spacing(tensor);
    add_flips(deviation.relative, deviation.relative_peak, kMeanSpacing * unit);
    add_flips(deviation.absolute, deviation.peak, std::max(kMeanSpacing * unit * size(tensor).rms, spacing));
    deviation.relative_peak.jump += unit;
    deviation.peak.jump += spacing;
    deviation.top_spacing = top;
  }

  // An error moves values across a boundary, whose sides are a quantum apart.
  void add_flips(Spread& spread, const Peak& peak, double quantum) const {
    const double crossing =
        std::max(spread.total(), (measured_ ? peak.steps : peak.total()) / kStepsOfAFormula);
    spread.own = std::hypot(spread.own, std::sqrt(std::min(crossing, quantum) * quantum));
  }

  void round_absolutely(int tensor) {
    Deviation& deviation = error(tensor);
    deviation = in_absolute_terms(tensor, deviation);
    const double spacing = is_real(type(tensor)) ? least_spacing(type(tensor)) : 1;
    const double quantum = std::max(kMeanSpacing * epsilon(type(tensor)) * size(tensor).rms, spacing);
    add_flips(deviation.absolute, deviation.peak, quantum);
    deviation.peak.jump += std::max(epsilon(type(tensor)) * size(tensor).largest, spacing);
  }

  // The type's spacing at the largest value, which the rounding may have carried into the next binade.
  double largest_spacing(int tensor) const {
    const double unit = epsilon(type(tensor)), largest = size(tensor).largest;
    if (!std::isfinite(largest) || largest <= 0) return unit * largest;
    return std::ldexp(unit, std::ilogb(largest + peak_of(tensor, error(tensor)).total()));
  }

  // Rounds to a type whose numbers are a few steps apart: no error is larger than from one end to the
  // other.
  void round_packed(int tensor) {
    Deviation& deviation = error(tensor);
    deviation = in_absolute_terms(tensor, deviation);
    const double step = widest_step(type(tensor)), range = 2 * largest_number(type(tensor)) + 1;
    add_flips(deviation.absolute, deviation.peak, step);
    deviation.absolute.own = std::min(deviation.absolute.own, range);
    deviation.absolute.common = std::min(deviation.absolute.common, range);
    deviation.peak.jump += step;
    deviation.peak = {std::min(deviation.peak.steps, range), std::min(deviation.peak.jump, range),
                      std::min(deviation.peak.common, range)};
  }

  // Between the two largest numbers of a packed type.
  static double widest_step(DataType type) {
    return is_real(type) ? std::ldexp(epsilon(type), std::ilogb(largest_number(type))) : 1;
  }

  // The spacing of the type's smallest numbers, where the relative part of a rounding vanishes.
  static double least_spacing(DataType type) {
    const uint64_t smallest_bits = 1;
    return load_real(type, &smallest_bits, 0);
  }

  Deviation after(const Op& op) {
    return std::visit(
        Overloaded{
            [&](const Pointwise& pointwise) { return after_pointwise(op, pointwise); },
            [&](const Reduction& reduction) { return after_reduction(op, reduction); },
            [&](const Matmul& matmul) { return after_contraction(op, matmul.compute); },
            [&](const Conv& conv) { return after_contraction(op, conv.compute); },
            [&](const Reshape&) { return moved(op); }, [&](const Transpose&) { return moved(op); },
            [&](const Slice&) { return moved(op); }, [&](const Concatenate&) { return moved(op); },
            [&](const Gather&) { return gathered(op); }, [&](const Scatter&) { return gathered(op); },
            [&](const CompositeFamily auto&) { return moved(op); },  // expanded before it comes here
        },
        op.attributes);
  }

  // The operand as an op computes with it: rounded once more where the compute type holds fewer digits.
  Deviation as_computed(int tensor, DataType compute) {
    Deviation deviation = error(tensor);
    if (!is_real(compute) || !holds_more_digits(type(tensor), compute)) return deviation;
    const double unit = epsilon(compute);
    add_parts(deviation, tensor, unit / std::sqrt(12.0), unit / 2);
    return deviation;
  }

  // The same where an element of it meets several others.
  Deviation as_operand(const Op& op, size_t i, DataType compute) {
    Deviation deviation = as_computed(op.inputs[i], compute);
    if (measured_ && element_count(dims(op.inputs[i])) < element_count(dims(op.outputs[0]))) {
      deviation.absolute = deviation.absolute.shared();
      deviation.relative = deviation.relative.shared();
      deviation.peak = deviation.peak.shared();
      deviation.relative_peak = deviation.relative_peak.shared();
    }
    return deviation;
  }

  Deviation moved(const Op& op) {
    Deviation carried = error(op.inputs[0]);
    for (const int x : op.inputs) {
      const Deviation& other = error(x);
      carried.absolute.raise_to(other.absolute);
      carried.relative.raise_to(other.relative);
      carried.peak.raise_to(other.peak);
      carried.relative_peak.raise_to(other.relative_peak);
      if (other.top_spacing == 0) carried.top_spacing = 0;
      if (carried.top_spacing > 0) carried.top_spacing = std::max(carried.top_spacing, other.top_spacing);
    }
    return carried;
  }

  // An index that is off by one takes another element.
  Deviation gathered(const Op& op) {
    Deviation taken = error(op.inputs[0]);
    if (error(op.inputs[1]).any()) taken.peak.steps += 2 * size(op.inputs[0]).largest;
    return taken;
  }

  Deviation after_pointwise(const Op& op, const Pointwise& pointwise) {
    const double unit = epsilon(pointwise.compute);
    const PointwiseDomain domain = info(pointwise.mode).domain;
    if (domain == PointwiseDomain::compare || domain == PointwiseDomain::logical ||
        domain == PointwiseDomain::index)
      return {};
    Deviation total;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      if (const Deviation operand = as_operand(op, i, pointwise.compute); operand.any())
        carry_operand(total, op, pointwise, i, operand);
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

  // Whether a step rounds to a number of its result's size wherever that is.
  static bool rounds_relatively(const Pointwise& op) {
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
  double reach(const Op& op, DataType compute) const {
    const double least = -std::log(least_normal(compute)) - std::log(epsilon(compute));
    return std::min(size(op.inputs[0]).largest, std::max(size(op.inputs[0]).highest, least));
  }

  // Adds what an operand's error becomes.
  void carry_operand(Deviation& total, const Op& op, const Pointwise& pointwise, size_t i,
                     const Deviation& operand) const {
    if (measured_ && is_real(pointwise.compute) && carry_parts(total, op, pointwise, i, operand)) return;
    const double factor = slope(op, pointwise, i);
    total.add(in_absolute_terms(op.inputs[i], operand), factor, factor);
  }

  // The same by steps that make parts of the result of what are parts of an operand; false for others.
  bool carry_parts(Deviation& total, const Op& op, const Pointwise& pointwise, size_t i,
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
  bool carry_beside_pole(Deviation& total, const Op& op, PointwiseMode mode, size_t i,
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
  static void carry_to_parts(Deviation& total, const Deviation& operand, double of_error, double of_parts) {
    total.add_relative({.relative = operand.absolute, .relative_peak = operand.peak}, of_error);
    total.add_relative(operand, of_parts);
  }

  // Roundings of one element. An operand of more digits than the compute type has is rounded elsewhere.
  double steps_of(const Op& op, const Pointwise& pointwise) const {
    switch (pointwise.mode) {
      case PointwiseMode::identity:
        return 0.5;
      case PointwiseMode::add:
      case PointwiseMode::sub:
      case PointwiseMode::mul:
        return 1;
      case PointwiseMode::max:
      case PointwiseMode::min:
      case PointwiseMode::neg:
      case PointwiseMode::abs:
      case PointwiseMode::binary_select:
        return 0.5;
      case PointwiseMode::relu:
        return has_default_parameters(pointwise) ? 0.5 : kStepsOfAFormula;
      case PointwiseMode::exp:  // of a multiple of the argument
        return kStepsOfAFormula + (measured_ ? reach(op, pointwise.compute) / 2 : 0);
      default:
        return kStepsOfAFormula + tail_steps(op, pointwise.mode);
    }
  }

  // The result, or what it is the difference of: slopes of these activations change their sign where two
  // terms of about a quarter cancel.
  double largest_term(const Op& op, PointwiseMode mode) const {
    const double result = size(op.outputs[0]).largest;
    const bool cancels = mode == PointwiseMode::gelu_bwd || mode == PointwiseMode::gelu_tanh_bwd ||
                         mode == PointwiseMode::swish_bwd;
    return cancels && measured_ ? std::max(result, size(op.inputs[0]).largest / 4) : result;
  }

  // In the tail of gelu all results are exponentials of a rounded argument, whose size is the logarithm of
  // theirs.
  double tail_steps(const Op& op, PointwiseMode mode) const {
    const bool rounds_argument = mode == PointwiseMode::gelu || mode == PointwiseMode::gelu_tanh ||
                                 mode == PointwiseMode::gelu_bwd || mode == PointwiseMode::gelu_tanh_bwd;
    const double result = size(op.outputs[0]).largest;
    if (!measured_ || !rounds_argument || result <= 0) return 0;
    const double scale = is_backward(mode) ? size(op.inputs[0]).largest : 1;
    return 4 * std::max(0.0, std::log(scale / result));
  }

  // How much steeper the op's parameters make it and, of a backward mode, its slope.
  static double steepness(const Pointwise& op) {
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

  double slope(const Op& op, const Pointwise& pointwise, size_t operand) const {
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

  Deviation after_reduction(const Op& op, const Reduction& reduction) {
    const double unit = epsilon(reduction.compute);
    const int x = op.inputs[0], y = op.outputs[0];
    const double count =
        static_cast<double>(element_count(dims(x))) / static_cast<double>(element_count(dims(y)));
    const double walk = measured_ ? walk_of(count, size(x).distinct) : 1;
    const Deviation operand = as_computed(x, reduction.compute);
    Deviation total;
    switch (reduction.mode) {
      case ReductionMode::min:
      case ReductionMode::max:
      case ReductionMode::amax:
        return operand;
      case ReductionMode::mul:
      case ReductionMode::mul_no_zeros: {
        const double growth =
            measured_ && size(x).largest > 0 ? std::max(1.0, size(y).largest / size(x).largest) : 1;
        total.add(in_absolute_terms(x, operand), walk * growth, growth);
        total.peak.steps += count * unit * size(y).largest +
                            (is_real(reduction.compute) ? least_normal(reduction.compute) : 0);
        return total;
      }
      case ReductionMode::norm2:
        add_parts(total, y, growth_of_sums(count) * unit, 0);
        total.absolute.own =
            std::hypot(total.absolute.own, operand.absolute.own * (measured_ ? walk / std::sqrt(count) : 1));
        total.absolute.common = operand.absolute.common * std::sqrt(count);
        total.peak.add(operand.peak, 1, std::sqrt(count));
        total.add_relative(operand, 1);
        return total;
      case ReductionMode::add:
      case ReductionMode::norm1:
      case ReductionMode::avg:
        return measured_ ? after_sum(op, reduction, operand) : after_unknown_sum(op, reduction, operand);
    }
    return total;
  }

  // The root mean square, and the mean, of a tensor's elements that are summed to one, where they are
  // largest.
  struct Line {
    double rms = 0, drift = 0;
  };
  // `axes`: those of the sum. A mean over several is at most the largest over any of them.
  Line line_of(int tensor, const std::vector<int>& axes, double otherwise) const {
    Line line{otherwise, otherwise};
    for (const int axis : axes) {
      if (!is_long(tensor, axis)) continue;
      line.rms = std::min(line.rms, size(tensor).lines[static_cast<size_t>(axis)]);
      line.drift = std::min(line.drift, size(tensor).drifts[static_cast<size_t>(axis)]);
    }
    return {beyond_cover(tensor, line.rms), line.drift};
  }

  double line_of_terms(int x, int y) const {
    std::vector<int> axes;
    for (int axis = 0; axis < dims(x).rank(); ++axis)
      if (dims(x)[axis] > 1 && dims(y)[axis] == 1) axes.push_back(axis);
    return line_of(x, axes, size(x).largest).rms;
  }

  Deviation after_sum(const Op& op, const Reduction& reduction, const Deviation& operand) const {
    const int x = op.inputs[0], y = op.outputs[0];
    const double count =
        static_cast<double>(element_count(dims(x))) / static_cast<double>(element_count(dims(y)));
    const bool is_mean = reduction.mode == ReductionMode::avg;
    const bool cancels = reduction.mode != ReductionMode::norm1 && size(x).lowest < 0;
    const double scale = is_mean ? 1 / count : 1, smallest = size(y).smallest / scale;
    const double walk = walk_of(count, size(x).distinct), terms = walk * line_of_terms(x, y);
    const double rounding = growth_of_sums(count) * epsilon(reduction.compute);
    Deviation total{.relative = {rounding, operand.relative.common}};
    if (cancels) total.absolute.own = rounding * std::sqrt(count) * size(x).rms;
    total.absolute.add(operand.absolute, walk);
    total.absolute.common = std::max(total.absolute.common, operand.absolute.common * count);
    // Parts of terms of one sign are at most the same parts of their sum.
    if (!cancels && terms > smallest)
      total.relative.own = std::hypot(total.relative.own, operand.relative.own);
    else
      total.absolute.own = std::hypot(total.absolute.own, operand.relative.own * terms);
    if (cancels) total.absolute.own = std::hypot(total.absolute.own, operand.relative.common * terms);
    const bool stays_parts = !cancels && size(x).largest > smallest;
    total.peak = stays_parts ? operand.peak : peak_of(x, operand);
    if (stays_parts) total.relative_peak.add(operand.relative_peak, 1, 0);
    meet_in_sum(total, operand, count, cancels ? terms : 0);
    total.absolute = {total.absolute.own * scale, total.absolute.common * scale};
    total.peak = {total.peak.steps * scale, total.peak.jump * scale};
    return total;
  }

  // Adds what a sum is off by where its terms make a jump together: `terms` is as large as terms of either
  // sign leave of them.
  static void meet_in_sum(Deviation& total, const Deviation& operand, double walk, double terms) {
    total.peak.common = total.relative_peak.common = 0;
    total.peak.jump =
        std::max(total.peak.jump, operand.peak.common * walk + operand.relative_peak.common * terms);
    total.relative_peak.jump = std::max(total.relative_peak.jump, operand.relative_peak.common);
  }

  Deviation after_unknown_sum(const Op& op, const Reduction& reduction, const Deviation& operand) const {
    const double count = static_cast<double>(element_count(dims(op.inputs[0]))) /
                         static_cast<double>(element_count(dims(op.outputs[0])));
    Deviation total;
    add_parts(total, op.outputs[0], growth_of_sums(count) * epsilon(reduction.compute), 0);
    total.add(operand, 1, 1 / std::sqrt(count));
    return total;
  }

  // How far the errors of `count` terms of so many values add up: those of equal values are equal.
  static double walk_of(double count, double distinct) {
    return count / std::sqrt(std::clamp(distinct, 1.0, count));
  }

  // The deviation of an operand as the tensor cores see it.
  Deviation as_multiplied(int tensor, bool rounds) const {
    Deviation deviation = error(tensor);
    if (rounds && type(tensor) == DataType::f32)
      add_parts(deviation, tensor, kTf32Epsilon / std::sqrt(12.0), kTf32Epsilon);
    return deviation;
  }

  Line line_of_operand(const Op& op, size_t i) const {
    const int x = op.inputs[i];
    const std::vector<int> axes = summed_axes(op, i);
    const bool is_known = std::ranges::any_of(axes, [&](int axis) { return is_long(x, axis); });
    return is_known ? line_of(x, axes, size(x).largest) : Line{size(x).rms, size(x).rms};
  }

  // Axes of an operand that a contraction sums over for each result; of a window or a group none.
  std::vector<int> summed_axes(const Op& op, size_t i) const {
    const Dims& x = dims(op.inputs[i]);
    const auto* const conv = std::get_if<Conv>(&op.attributes);
    if (conv == nullptr) return {x.rank() - (i == 0 ? 1 : 2)};
    if (conv->pass == ConvPass::wgrad) {
      std::vector<int> axes{0};
      for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
      return axes;
    }
    const bool is_forward = conv->pass == ConvPass::fprop;
    if (is_forward && i == 1) return {1};
    const Dims& source = dims(op.inputs[0]);
    const Dims& filter = dims(op.inputs[1]);
    const bool has_groups =
        source[1] != filter[is_forward ? 1 : 0] || (!is_forward && dims(op.outputs[0])[1] != filter[1]);
    if (has_groups) return {};
    return {i == 1 ? 0 : 1};
  }

  // Adds what the error of one of the factors becomes in sums of `count` products.
  void carry_factor(Deviation& total, const Op& op, size_t i, const Deviation& factor, double count) const {
    const int x = op.inputs[i], other = op.inputs[1 - i];
    const double walk = std::sqrt(count);
    if (!measured_) return total.add(factor, 1, 1 / walk);
    const Line line = line_of_operand(op, 1 - i);
    const double products = walk * line_of_operand(op, i).rms * line.rms;
    total.absolute.add(factor.absolute, walk * line.rms);
    total.absolute.common = std::max(total.absolute.common, factor.absolute.common * count * line.drift);
    total.absolute.own = std::hypot(total.absolute.own, factor.relative.total() * products);
    total.relative.common = std::hypot(total.relative.common, factor.relative.common);
    Deviation met{.peak = {}};
    met.peak.add(peak_of(x, factor), size(other).largest, 0);
    meet_in_sum(met, factor, std::max(walk * line.rms, count * line.drift), products);
    total.peak.add(met.peak, 1, 0);
    total.relative_peak.add(met.relative_peak, 1, 0);
  }

  Deviation after_contraction(const Op& op, DataType compute) {
    const double unit = epsilon(compute);
    const bool rounds = notes_.tf32 && compute == DataType::f32;
    const int a = op.inputs[0], b = op.inputs[1], c = op.outputs[0];
    const double count = multiply_adds({op.attributes, dims(a), dims(b), dims(c)}) /
                         static_cast<double>(element_count(dims(c)));
    const double rounding = growth_of_sums(count) * unit;
    Deviation total;
    add_parts(total, c, rounding, 0);
    if (measured_)
      total.absolute.own =
          rounding * std::sqrt(count) * line_of_operand(op, 0).rms * line_of_operand(op, 1).rms;
    for (const size_t i : {0, 1}) carry_factor(total, op, i, as_multiplied(op.inputs[i], rounds), count);
    if (notes_.short_sums && compute == DataType::f32 && is_fp8(type(a)) && is_fp8(type(b)))
      total.add(short_sums(a, b, c, count), 1, 1);
    for (const int operand : {a, b})
      if (rounds && type(operand) == DataType::f32) total.peak.steps += kTf32Epsilon / 2 * size(c).largest;
    if (notes_.tensor_cores && compute == DataType::f32) total.peak.steps += cut_sums(a, b, c, count);
    return total;
  }

  // Partial sums are as large as sums of random terms are, or as the result.
  double cut_sums(int a, int b, int c, double count) const {
    constexpr int64_t kBytes = 32;  // of k, in an instruction
    const bool cut = byte_size(type(a)) == 2 || (notes_.tf32 && type(a) == DataType::f32);
    if (!cut || !is_real(type(a))) return 0;
    const int64_t products = kBytes / byte_size(type(a));  // of an instruction
    const double instructions = count / static_cast<double>(products);
    const double term = measured_ ? size(a).rms * size(b).rms : 0;
    return instructions * epsilon(DataType::f32) / 2 * std::max(size(c).largest, std::sqrt(count) * term);
  }

  // Sums of 128 products grow in four wgmmas, each of which cuts 32 products and the sum so far off at a
  // spacing of the largest of them.
  Deviation short_sums(int a, int b, int c, double count) const {
    constexpr double kGroup = 128, kInstructions = 4, kAddends = 33;
    const double groups = std::max(count / kGroup, 1.0);
    double group = size(c).rms / std::sqrt(groups);
    if (measured_)
      group = std::max(
          {group, std::sqrt(count / groups) * size(a).rms * size(b).rms, size(a).largest * size(b).largest});
    const double cut = kShortEpsilon * std::sqrt(kInstructions * kAddends / 12);
    return {.absolute = {cut * group * std::sqrt(groups), 0},
            .peak = {kInstructions * kShortEpsilon * size(c).largest, 0}};
  }

  // The spread of a sum of `count` terms, in epsilons of what is as large as its partial sums.
  double growth_of_sums(double count) const { return 1 + std::sqrt(count) / (measured_ ? 6 : 3); }

  // In the output's type: integers are exact unless a real value may round to either neighbour; reals may
  // differ by the spacing of the smallest numbers, where the relative part vanishes. Packed types have so
  // few numbers that a bound of more than one step would say nothing.
  Bound at_output(int output) const {
    constexpr double kSpreads = 8;
    const Deviation& deviation = error(output);
    if (!deviation.any() || info(type(output)).kind == NumberKind::boolean) return {};
    if (is_packed(type(output))) return {widest_step(type(output)), 0};
    const double absolute = kSpreads * deviation.absolute.total() + deviation.peak.total();
    const double relative = kSpreads * deviation.relative.total() + deviation.relative_peak.total();
    if (!is_real(type(output))) return {absolute + relative * size(output).largest + 1, 0};
    return {absolute + least_spacing(type(output)), relative};
  }

  const Graph& graph_;
  std::vector<Magnitude> magnitudes_;
  bool measured_;
  Notes notes_;
  std::vector<Deviation> errors_;
  std::vector<bool> has_sum_, is_divided_;  // by tensor
};

}  // namespace

Bound error_bound(const Graph& graph, int output, const std::vector<bool>& cone,
                  const std::vector<Magnitude>& magnitudes, const Notes& notes) {
  return ErrorAnalysis(graph, magnitudes, true, notes).bound(output, cone);
}

Bound error_bound(const Graph& graph, int output, const std::vector<bool>& cone, const Magnitude& magnitude,
                  const Notes& notes) {
  return ErrorAnalysis(graph, std::vector<Magnitude>(graph.tensors.size(), magnitude), false, notes)
      .bound(output, cone);
}

}  // namespace fusor::reference
