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
//     errors: of D values that differ there are D independent ones, each K / D times; and a peak is met as
//     often as one value may be among the terms. What is broadcast is an error, or a jump, that its readers
//     have in common: a sum carries it K times, a product with other terms as often as these do not cancel.
//     Slices of a tensor that have the same elements have the same errors: a sum across them meets each as
//     often as there are such slices. Two factors that should both be zero leave the product of their errors.
//  5. Operands rounded to TF32 are as good as random by up to one spacing at the value (spread: a spacing
//     over sqrt(12)); where they are cut off instead, all are a little too small, and so is the result: half
//     a spacing for each of the two (peak of the result).
//  6. Short sums of fp8 lose the bits behind the 13th of the largest addend: each addend up to a spacing of
//     it, as good as random (spread), and all toward zero (peak of the result).
//  7. A softmax that is divided behind a product rounds its probabilities as other numbers than the oracle
//     does: the two differ by up to a spacing, as good as random (spread: a spacing over sqrt(6)). So do
//     gradients of scores that are scaled behind a product.
//  8. Tensor cores add the products of one instruction (32 bytes of k) to a sum of 16-bit or TF32 operands
//     and cut off what the sum has no digits for: always toward zero, half a spacing each time in the mean.
//     So the error grows like the number of instructions, not like its root (peak of the result).
// The bound is eight spreads and the peak. Behind the parts of the value comes the output's own rounding: one
// epsilon, the two sides of a boundary.
#include "backend/reference/errors/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/errors/error_analysis.h"
#include "core/convert.h"

namespace fusor::reference {

namespace {

// A type's spacing at a value as a part of epsilon times the value, in the mean over a binade.
constexpr double kMeanSpacing = 0.75;

}  // namespace

ErrorAnalysis::ErrorAnalysis(const Graph& graph, std::vector<Magnitude> magnitudes, bool measured,
                             const Notes& notes)
    : graph_(graph),
      magnitudes_(std::move(magnitudes)),
      measured_(measured),
      notes_(notes),
      errors_(graph.tensors.size()),
      has_sum_(graph.tensors.size()),
      is_divided_(graph.tensors.size()),
      is_scaled_(graph.tensors.size()) {}

Bound ErrorAnalysis::bound(int output, const std::vector<bool>& cone) {
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!cone[i]) continue;
    const int y = graph_.ops[i].outputs[0];
    error(y) = after(graph_.ops[i]);
    error(y).unbound_unknown();
    follow_softmax(graph_.ops[i]);
    follow_scale(graph_.ops[i]);
    if (y == output || keeps_digits(graph_.ops[i])) continue;
    round(y, rounds_once(graph_.ops[i]));
    error(y).unbound_unknown();
  }
  return at_output(output);
}

// Which values were divided by a sum, if only on their way through other steps.
void ErrorAnalysis::follow_softmax(const Op& op) {
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

// Which values were multiplied by a number that all of them have in common, if only on their way through
// views, selections and roundings.
void ErrorAnalysis::follow_scale(const Op& op) {
  const auto y = static_cast<size_t>(op.outputs[0]);
  const auto* const pointwise = std::get_if<Pointwise>(&op.attributes);
  if (pointwise != nullptr && pointwise->mode == PointwiseMode::mul)
    is_scaled_[y] = std::ranges::any_of(op.inputs, [&](int x) { return element_count(dims(x)) == 1; });
  else if (pointwise == nullptr || pointwise->mode == PointwiseMode::identity || picks(*pointwise))
    is_scaled_[y] = !is_contraction(op.attributes) && !std::holds_alternative<Reduction>(op.attributes) &&
                    std::ranges::any_of(op.inputs, [&](int x) { return is_scaled_[static_cast<size_t>(x)]; });
}

// Whether a run may round it as another number than the oracle does, which comes later to the same.
bool ErrorAnalysis::rounds_otherwise(int tensor) const {
  const auto at = static_cast<size_t>(tensor);
  return (notes_.late_division && is_divided_[at]) || (notes_.late_scale && is_scaled_[at]);
}

// Whether the result's elements are elements of operands, which are numbers of its type already.
bool ErrorAnalysis::keeps_digits(const Op& op) const {
  if (!measured_) return false;
  const DataType to = type(op.outputs[0]);
  if (!std::ranges::all_of(op.inputs, [&](int x) { return !error(x).any() || type(x) == to; })) return false;
  if (const auto* const pointwise = std::get_if<Pointwise>(&op.attributes))
    return picks(*pointwise) && is_real(pointwise->compute) && !holds_more_digits(to, pointwise->compute);
  if (const auto* const reduction = std::get_if<Reduction>(&op.attributes))
    return picks(reduction->mode) && is_real(reduction->compute) &&
           !holds_more_digits(to, reduction->compute);
  return !is_contraction(op.attributes);
}

bool ErrorAnalysis::picks(ReductionMode mode) {
  return mode == ReductionMode::min || mode == ReductionMode::max || mode == ReductionMode::amax;
}

// Adds errors in parts of the tensor's elements.
void ErrorAnalysis::add_parts(Deviation& to, int tensor, double spread, double peak) const {
  if (measured_)
    to.add_relative({.relative = {spread, 0}, .relative_peak = {peak, 0}}, 1);
  else
    to.add({.absolute = {spread * size(tensor).rms, 0}, .peak = {peak * size(tensor).largest, 0}}, 1, 1);
}

// The largest error that an element is off by without being part of a crowd.
Peak ErrorAnalysis::peak_of(int tensor, const Deviation& deviation) const {
  const double largest = size(tensor).largest;
  Peak peak = deviation.peak;
  peak.add(deviation.relative_peak, largest, measured_ ? as_slope(tensor, dims(tensor)).line : largest);
  const double rounding = epsilon(type(tensor)) * largest;
  if (deviation.top_spacing > 0) peak.jump += std::min(deviation.top_spacing - rounding, 0.0);
  return peak;
}

Deviation ErrorAnalysis::in_absolute_terms(int tensor, const Deviation& deviation) const {
  Deviation absolute{.absolute = deviation.absolute, .peak = peak_of(tensor, deviation)};
  if (!measured_) return absolute;
  const Slope slope = as_slope(tensor, dims(tensor));
  absolute.absolute.add(deviation.relative, slope.line);
  absolute.peak.jump += of_the_worst(deviation.relative, slope);
  return absolute;
}

// The error of elements where the slope is steepest, beyond what the spread covers.
double ErrorAnalysis::of_the_worst(const Spread& spread, const Slope& slope) {
  constexpr double kDeviations = 4, kCovered = 2;  // of one element; of the eight of the bound
  return kDeviations * spread.total() * std::max(0.0, slope.largest - kCovered * slope.line);
}

void ErrorAnalysis::carry(Deviation& total, const Deviation& operand, const Slope& slope) {
  total.add(operand, slope.line, slope.largest);
  total.peak.jump += of_the_worst(operand.absolute, slope);
}

// A tensor as the slope of what multiplies it, in a result of `result` dims.
Slope ErrorAnalysis::as_slope(int tensor, const Dims& result) const {
  const double largest = size(tensor).largest;
  if (element_count(dims(tensor)) < element_count(result)) return {largest, largest};
  double line = 0;
  for (int axis = 0; axis < dims(tensor).rank(); ++axis)
    if (is_long(tensor, axis)) line = std::max(line, size(tensor).lines[static_cast<size_t>(axis)]);
  return {beyond_cover(tensor, line > 0 ? line : largest), largest};
}

// Eight spreads cover lines that are a little larger than the others.
double ErrorAnalysis::beyond_cover(int tensor, double line) const {
  constexpr double kCovered = 1.5;
  return std::max(size(tensor).rms, line / kCovered);
}

bool ErrorAnalysis::is_long(int tensor, int axis) const {
  return static_cast<size_t>(axis) < size(tensor).lines.size() && dims(tensor)[axis] >= kLongLine;
}

// Whether the result is stored with the digits that it is computed in: then the oracle alone rounds it
// once more.
bool ErrorAnalysis::rounds_once(const Op& op) const {
  const DataType* const compute = compute_type(op.attributes);
  const DataType to = type(op.outputs[0]);
  return measured_ && compute != nullptr && is_real(*compute) && is_real(to) && !is_packed(to) &&
         epsilon(to) <= epsilon(*compute);
}

void ErrorAnalysis::round(int tensor, bool once) {
  Deviation& deviation = error(tensor);
  if (!deviation.any()) return;
  if (is_real(type(tensor)) && rounds_otherwise(tensor)) {
    // Numbers below the smallest normal one are as far apart as those above it.
    add_parts(deviation, tensor, epsilon(type(tensor)) / std::sqrt(6.0), 0);
    deviation.absolute.own = std::hypot(deviation.absolute.own, least_spacing(type(tensor)) / std::sqrt(6.0));
  }
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
void ErrorAnalysis::add_flips(Spread& spread, const Peak& peak, double quantum) const {
  const double crossing =
      std::max(spread.total(), (measured_ ? peak.steps : peak.total()) / kStepsOfAFormula);
  spread.own = std::hypot(spread.own, std::sqrt(std::min(crossing, quantum) * quantum));
}

void ErrorAnalysis::round_absolutely(int tensor) {
  Deviation& deviation = error(tensor);
  deviation = in_absolute_terms(tensor, deviation);
  const double spacing = is_real(type(tensor)) ? least_spacing(type(tensor)) : 1;
  const double quantum = std::max(kMeanSpacing * epsilon(type(tensor)) * size(tensor).rms, spacing);
  add_flips(deviation.absolute, deviation.peak, quantum);
  deviation.peak.jump += std::max(epsilon(type(tensor)) * size(tensor).largest, spacing);
}

// The type's spacing at the largest value, which the rounding may have carried into the next binade.
double ErrorAnalysis::largest_spacing(int tensor) const {
  const double unit = epsilon(type(tensor)), largest = size(tensor).largest;
  if (!std::isfinite(largest) || largest <= 0) return unit * largest;
  return std::ldexp(unit, std::ilogb(largest + peak_of(tensor, error(tensor)).total()));
}

// Rounds to a type whose numbers are a few steps apart: no error is larger than from one end to the
// other.
void ErrorAnalysis::round_packed(int tensor) {
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
double ErrorAnalysis::widest_step(DataType type) {
  return is_real(type) ? std::ldexp(epsilon(type), std::ilogb(largest_number(type))) : 1;
}

// The spacing of the type's smallest numbers, where the relative part of a rounding vanishes.
double ErrorAnalysis::least_spacing(DataType type) {
  const uint64_t smallest_bits = 1;
  return load_real(type, &smallest_bits, 0);
}

Deviation ErrorAnalysis::after(const Op& op) {
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
Deviation ErrorAnalysis::as_computed(int tensor, DataType compute) {
  Deviation deviation = error(tensor);
  if (!is_real(compute) || !holds_more_digits(type(tensor), compute)) return deviation;
  const double unit = epsilon(compute);
  add_parts(deviation, tensor, unit / std::sqrt(12.0), unit / 2);
  return deviation;
}

Deviation ErrorAnalysis::moved(const Op& op) {
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
Deviation ErrorAnalysis::gathered(const Op& op) {
  Deviation taken = error(op.inputs[0]);
  if (error(op.inputs[1]).any()) taken.peak.steps += 2 * size(op.inputs[0]).largest;
  return taken;
}

// In the output's type: integers are exact unless a real value may round to either neighbour; reals may
// differ by the spacing of the smallest numbers, where the relative part vanishes. Packed types have so
// few numbers that a bound of more than one step would say nothing.
Bound ErrorAnalysis::at_output(int output) const {
  const Deviation& deviation = error(output);
  if (!deviation.any() || info(type(output)).kind == NumberKind::boolean) return {};
  if (is_packed(type(output))) return {widest_step(type(output)), 0};
  const double absolute = kSpreads * deviation.absolute.total() + deviation.peak.total();
  const double relative = kSpreads * deviation.relative.total() + deviation.relative_peak.total();
  if (!std::isfinite(absolute + relative)) return {std::numeric_limits<double>::infinity(), 0};
  if (!is_real(type(output))) return {absolute + relative * size(output).largest + 1, 0};
  return {absolute + least_spacing(type(output)), relative};
}

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
