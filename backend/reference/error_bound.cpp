// Owns the error analysis behind verify's tolerance.
//
// A right run differs from the oracle by roundings. Each tensor carries two numbers: `spread`, the standard
// deviation of an element's error, and `peak`, what a single element may be off by without being part of a
// crowd.
//  1. Pointwise steps round a few times in their compute type: peak, in epsilons of that type of the largest
//  value. A sum or a product rounds once; what picks one of its operands rounds nothing.
//  2. Accumulation: K terms added one after the other are rounded K times, at partial sums that grow like the
//  result.
//     These roundings are as good as random: a walk of sqrt(K) steps, together sqrt(K) / 3 epsilons of the
//     result's size (spread). The size is at least sqrt(K) terms, which is what a sum of random terms has, so
//     that sums that cancel are covered. Other orders of accumulation (tiles, warps, threads) stay below.
//  3. The rounding to a virtual tensor's type: an error e moves a value across a rounding boundary once in q
//  / e times,
//     q being that type's spacing at the value, and then the two sides are q apart: variance e * q, peak q.
//     Over the values between two powers of two the spacing is 0.72 epsilons of the value in the mean (1 / (2
//     ln 2)).
//  4. Later steps carry errors on by their slope. A sum carries K independent ones: sqrt(K) times the
//     spread; a peak is met once. Equal values have equal errors: of D values that differ there are D
//     independent ones, each K / D times.
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
// The bound is eight spreads and the peak. The output's own rounding is the relative part of the tolerance:
// one epsilon, the two sides of a boundary.
#include "backend/reference/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/contraction.h"
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

struct Deviation {
  double spread = 0;
  double peak = 0;
  bool any() const { return spread > 0 || peak > 0; }
  void add(const Deviation& other, double spread_factor, double peak_factor) {
    spread = std::hypot(spread, other.spread * spread_factor);
    peak += other.peak * peak_factor;
  }
};

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

  double bound(int output, const std::vector<bool>& cone) {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!cone[i]) continue;
      const int y = graph_.ops[i].outputs[0];
      error(y) = after(graph_.ops[i]);
      follow_softmax(graph_.ops[i]);
      if (y != output) round(y);
    }
    return at_output(output);
  }

 private:
  Deviation& error(int tensor) { return errors_[static_cast<size_t>(tensor)]; }
  const Magnitude& size(int tensor) const { return magnitudes_[static_cast<size_t>(tensor)]; }
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

  void round(int tensor) {
    Deviation& deviation = error(tensor);
    if (!deviation.any()) return;
    if (notes_.late_division && is_divided_[static_cast<size_t>(tensor)] && is_real(type(tensor)))
      deviation.add({epsilon(type(tensor)) * size(tensor).rms / std::sqrt(6.0), 0}, 1, 1);
    const double spacing = is_real(type(tensor)) ? least_spacing(type(tensor)) : 1;
    if (is_packed(type(tensor))) return round_packed(tensor);
    const double quantum = std::max(kMeanSpacing * epsilon(type(tensor)) * size(tensor).rms, spacing);
    const double crossing = std::max(deviation.spread, deviation.peak / kStepsOfAFormula);
    deviation.spread = std::hypot(deviation.spread, std::sqrt(std::min(crossing, quantum) * quantum));
    deviation.peak += std::max(largest_spacing(tensor), spacing);
  }

  // The type's spacing at the largest value, which the rounding may have carried into the next binade.
  double largest_spacing(int tensor) {
    const double unit = epsilon(type(tensor)), largest = size(tensor).largest;
    if (!measured_ || !is_real(type(tensor)) || !std::isfinite(largest) || largest <= 0)
      return unit * largest;
    return std::ldexp(unit, std::ilogb(largest + error(tensor).peak));
  }

  // Rounds to a type whose numbers are a few steps apart: no error is larger than from one end to the other.
  void round_packed(int tensor) {
    Deviation& deviation = error(tensor);
    const double step = widest_step(type(tensor)), range = 2 * largest_number(type(tensor)) + 1;
    const double crossing = std::max(deviation.spread, deviation.peak / kStepsOfAFormula);
    deviation.spread = std::hypot(deviation.spread, std::sqrt(std::min(crossing, step) * step));
    deviation.spread = std::min(deviation.spread, range);
    deviation.peak = std::min(deviation.peak + step, range);
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
    deviation.add({unit * size(tensor).rms / std::sqrt(12.0), unit / 2 * size(tensor).largest}, 1, 1);
    return deviation;
  }

  Deviation moved(const Op& op) {
    Deviation carried;
    for (const int x : op.inputs) {
      carried.spread = std::max(carried.spread, error(x).spread);
      carried.peak = std::max(carried.peak, error(x).peak);
    }
    return carried;
  }

  // An index that is off by one takes another element.
  Deviation gathered(const Op& op) {
    Deviation taken = error(op.inputs[0]);
    if (error(op.inputs[1]).any()) taken.peak += 2 * size(op.inputs[0]).largest;
    return taken;
  }

  Deviation after_pointwise(const Op& op, const Pointwise& pointwise) {
    const double unit = epsilon(pointwise.compute);
    const PointwiseDomain domain = info(pointwise.mode).domain;
    if (domain == PointwiseDomain::compare || domain == PointwiseDomain::logical ||
        domain == PointwiseDomain::index)
      return {};
    Deviation total;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Deviation operand = as_computed(op.inputs[i], pointwise.compute);
      const double factor = operand.any() ? slope(op, pointwise, i) : 0;
      total.add(operand, factor, factor);
    }
    // Numbers that the compute type holds are packed as they are.
    const bool is_exact = pointwise.mode == PointwiseMode::identity && is_real(pointwise.compute) &&
                          (is_packed(type(op.inputs[0])) || is_packed(type(op.outputs[0]))) &&
                          !holds_more_digits(type(op.inputs[0]), pointwise.compute);
    if (is_exact) return total;
    const double steps = steps_of(op, pointwise);
    total.peak += steps * unit * largest_term(op, pointwise.mode);
    // Stored with more digits than it was computed with, a value keeps that rounding: sums add it up.
    if (is_real(pointwise.compute) && holds_more_digits(type(op.outputs[0]), pointwise.compute))
      total.spread = std::hypot(total.spread, unit * size(op.outputs[0]).rms);
    // Below the least normal number there are fewer digits, or none.
    if (total.any() && is_real(pointwise.compute)) total.peak += least_normal(pointwise.compute);
    return total;
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
        total.add(operand, walk * growth, growth);
        total.peak += count * unit * size(y).largest +
                      (is_real(reduction.compute) ? least_normal(reduction.compute) : 0);
        return total;
      }
      case ReductionMode::norm2:
        total.spread = sum_spread(size(y).rms, 0, count, unit);
        total.add(operand, measured_ ? walk / std::sqrt(count) : 1, 1);
        return total;
      case ReductionMode::add:
      case ReductionMode::norm1:
        total.spread = sum_spread(size(y).rms, size(x).rms, count, unit);
        total.add(operand, walk, measured_ ? 1 : 1 / std::sqrt(count));
        return total;
      case ReductionMode::avg:
        total.spread = sum_spread(size(y).rms * count, size(x).rms, count, unit) / count;
        total.add(operand, measured_ ? walk / count : 1, 1 / (measured_ ? count : std::sqrt(count)));
        return total;
    }
    return total;
  }

  // How far the errors of `count` terms of so many values add up: those of equal values are equal.
  static double walk_of(double count, double distinct) {
    return count / std::sqrt(std::clamp(distinct, 1.0, count));
  }

  // The deviation of an operand as the tensor cores see it.
  Deviation as_multiplied(int tensor, bool rounds) {
    Deviation deviation = error(tensor);
    if (rounds && type(tensor) == DataType::f32)
      deviation.add({kTf32Epsilon * size(tensor).rms / std::sqrt(12.0), kTf32Epsilon * size(tensor).largest},
                    1, 1);
    return deviation;
  }

  Deviation after_contraction(const Op& op, DataType compute) {
    const double unit = epsilon(compute);
    const bool rounds = notes_.tf32 && compute == DataType::f32;
    const int a = op.inputs[0], b = op.inputs[1], c = op.outputs[0];
    const double count = multiply_adds({op.attributes, dims(a), dims(b), dims(c)}) /
                         static_cast<double>(element_count(dims(c)));
    Deviation total;
    total.spread = sum_spread(size(c).rms, size(a).rms * size(b).rms, count, unit);
    const double walk = std::sqrt(count);
    total.add(as_multiplied(a, rounds), measured_ ? walk * size(b).rms : 1,
              measured_ ? size(b).largest : 1 / walk);
    total.add(as_multiplied(b, rounds), measured_ ? walk * size(a).rms : 1,
              measured_ ? size(a).largest : 1 / walk);
    if (notes_.short_sums && compute == DataType::f32 && is_fp8(type(a)) && is_fp8(type(b)))
      total.add(short_sums(a, b, c, count), 1, 1);
    for (const int operand : {a, b})
      if (rounds && type(operand) == DataType::f32) total.peak += kTf32Epsilon / 2 * size(c).largest;
    if (notes_.tensor_cores && compute == DataType::f32) total.peak += cut_sums(a, b, c, count);
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
    return {cut * group * std::sqrt(groups), kInstructions * kShortEpsilon * size(c).largest};
  }

  // The spread of a sum of `count` terms; `result` and `term` are typical sizes.
  double sum_spread(double result, double term, double count, double unit) const {
    const double walk = std::sqrt(count);
    return (1 + walk / 3) * unit * (measured_ ? std::max(result, walk * term) : result);
  }

  // In the output's type: integers are exact unless a real value may round to either neighbour; reals may
  // differ by the spacing of the smallest numbers, where the relative part vanishes. Packed types have so few
  // numbers that a bound of more than one step would say nothing.
  double at_output(int output) {
    constexpr double kSpreads = 8;
    const double carried = kSpreads * error(output).spread + error(output).peak;
    if (info(type(output)).kind == NumberKind::boolean) return 0;
    if (is_packed(type(output))) return carried > 0 ? widest_step(type(output)) : 0;
    if (!is_real(type(output))) return carried > 0 ? carried + 1 : 0;
    return carried == 0 ? 0 : carried + least_spacing(type(output));
  }

  const Graph& graph_;
  std::vector<Magnitude> magnitudes_;
  bool measured_;
  Notes notes_;
  std::vector<Deviation> errors_;
  std::vector<bool> has_sum_, is_divided_;  // by tensor
};

}  // namespace

double error_bound(const Graph& graph, int output, const std::vector<bool>& cone,
                   const std::vector<Magnitude>& magnitudes, const Notes& notes) {
  return ErrorAnalysis(graph, magnitudes, true, notes).bound(output, cone);
}

double error_bound(const Graph& graph, int output, const std::vector<bool>& cone, const Magnitude& magnitude,
                   const Notes& notes) {
  return ErrorAnalysis(graph, std::vector<Magnitude>(graph.tensors.size(), magnitude), false, notes)
      .bound(output, cone);
}

}  // namespace fusor::reference
