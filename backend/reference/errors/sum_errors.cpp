// Owns what reductions and contractions make of errors: how roundings of terms and of partial sums add up.
#include <algorithm>
#include <cmath>

#include "backend/reference/contraction.h"
#include "backend/reference/errors/error_analysis.h"
#include "core/convert.h"

namespace fusor::reference {

namespace {

// Spacing of TF32's numbers: 10 mantissa bits.
constexpr double kTf32Epsilon = 0x1p-10;
// The rounding unit of sums of fp8 in Hopper's tensor cores.
constexpr double kShortEpsilon = 0x1p-13;

}  // namespace

Deviation ErrorAnalysis::after_reduction(const Op& op, const Reduction& reduction) {
  const double unit = epsilon(reduction.compute);
  const int x = op.inputs[0], y = op.outputs[0];
  const double count =
      static_cast<double>(element_count(dims(x))) / static_cast<double>(element_count(dims(y)));
  const double walk = measured_ ? walk_of(count, x, copies_along(x, axes_of_sum(x, y))) : 1;
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
      total.peak.steps +=
          count * unit * size(y).largest + (is_real(reduction.compute) ? least_normal(reduction.compute) : 0);
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

// `axes`: those of the sum. A mean over several is at most the largest over any of them.
Line ErrorAnalysis::line_of(int tensor, const std::vector<int>& axes, double otherwise) const {
  Line line{otherwise, otherwise};
  for (const int axis : axes) {
    if (!is_long(tensor, axis)) continue;
    line.rms = std::min(line.rms, size(tensor).lines[static_cast<size_t>(axis)]);
    line.drift = std::min(line.drift, size(tensor).drifts[static_cast<size_t>(axis)]);
  }
  return {beyond_cover(tensor, line.rms), line.drift};
}

// The axes of `x` that a sum with the result `y` runs over whole.
std::vector<int> ErrorAnalysis::axes_of_sum(int x, int y) const {
  std::vector<int> axes;
  for (int axis = 0; axis < dims(x).rank(); ++axis)
    if (dims(x)[axis] > 1 && dims(y)[axis] == 1) axes.push_back(axis);
  return axes;
}

double ErrorAnalysis::line_of_terms(int x, int y) const {
  return line_of(x, axes_of_sum(x, y), size(x).largest).rms;
}

// How many terms of a sum over the axes are equal because whole slices are.
double ErrorAnalysis::copies_along(int tensor, const std::vector<int>& axes) const {
  double copies = 1;
  for (const int axis : axes)
    if (static_cast<size_t>(axis) < size(tensor).copies.size())
      copies *= size(tensor).copies[static_cast<size_t>(axis)];
  return copies;
}

Deviation ErrorAnalysis::after_sum(const Op& op, const Reduction& reduction, const Deviation& operand) const {
  const int x = op.inputs[0], y = op.outputs[0];
  const double count =
      static_cast<double>(element_count(dims(x))) / static_cast<double>(element_count(dims(y)));
  const bool is_mean = reduction.mode == ReductionMode::avg;
  const bool cancels = reduction.mode != ReductionMode::norm1 && size(x).lowest < 0;
  const double scale = is_mean ? 1 / count : 1, smallest = size(y).smallest / scale;
  const double copies = copies_along(x, axes_of_sum(x, y));
  const double walk = walk_of(count, x, copies), terms = walk * line_of_terms(x, y);
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
  total.peak.add(stays_parts ? operand.peak : peak_of(x, operand), repeats(x, count, copies), 1);
  if (stays_parts) total.relative_peak.add(operand.relative_peak, 1, 0);
  meet_in_sum(total, operand, count, cancels ? terms : 0);
  total.absolute = {total.absolute.own * scale, total.absolute.common * scale};
  total.peak = {total.peak.steps * scale, total.peak.jump * scale};
  return total;
}

// Adds what a sum is off by where its terms make a jump together: `terms` is as large as terms of either
// sign leave of them.
void ErrorAnalysis::meet_in_sum(Deviation& total, const Deviation& operand, double walk, double terms) {
  total.peak.common = total.relative_peak.common = 0;
  total.peak.jump =
      std::max(total.peak.jump, operand.peak.common * walk + operand.relative_peak.common * terms);
  total.relative_peak.jump = std::max(total.relative_peak.jump, operand.relative_peak.common);
}

Deviation ErrorAnalysis::after_unknown_sum(const Op& op, const Reduction& reduction,
                                           const Deviation& operand) const {
  const double count = static_cast<double>(element_count(dims(op.inputs[0]))) /
                       static_cast<double>(element_count(dims(op.outputs[0])));
  Deviation total;
  add_parts(total, op.outputs[0], growth_of_sums(count) * epsilon(reduction.compute), 0);
  total.add(operand, 1, 1 / std::sqrt(count));
  return total;
}

// How far the errors of `count` terms of a tensor add up: those of equal values are equal.
double ErrorAnalysis::walk_of(double count, int tensor, double copies) const {
  const double distinct = std::min(size(tensor).distinct, count / copies);
  return count / std::sqrt(std::clamp(distinct, 1.0, count));
}

// How many of `count` terms may have one value, and so one error: more than values have in the mean over the
// tensor, as some have more. Of many values a few binades wide, some are equal only because the type has no
// others between them. Where slices are equal, so many are equal by construction.
double ErrorAnalysis::repeats(int tensor, double count, double copies) const {
  constexpr double kBinades = 4, kDeviations = 3;
  const double numbers = kBinades / epsilon(type(tensor));
  const double by_chance = numbers * -std::expm1(-size(tensor).nonzeros / numbers);
  const double mean = std::max(1.0, by_chance / size(tensor).distinct);
  return std::min(std::max(copies, mean + kDeviations * std::sqrt(mean - 1)), count);
}

// The deviation of an operand as the tensor cores see it.
Deviation ErrorAnalysis::as_multiplied(int tensor, bool rounds) const {
  Deviation deviation = error(tensor);
  if (rounds && type(tensor) == DataType::f32)
    add_parts(deviation, tensor, kTf32Epsilon / std::sqrt(12.0), kTf32Epsilon);
  return deviation;
}

Line ErrorAnalysis::line_of_operand(const Op& op, size_t i) const {
  const int x = op.inputs[i];
  const std::vector<int> axes = summed_axes(op, i);
  const bool is_known = std::ranges::any_of(axes, [&](int axis) { return is_long(x, axis); });
  return is_known ? line_of(x, axes, size(x).largest) : Line{size(x).rms, size(x).rms};
}

// Axes of an operand that a contraction sums over for each result; of a window or a group none.
std::vector<int> ErrorAnalysis::summed_axes(const Op& op, size_t i) const {
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
void ErrorAnalysis::carry_factor(Deviation& total, const Op& op, size_t i, const Deviation& factor,
                                 double count) const {
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
  met.peak.add(peak_of(x, factor),
               size(other).largest * repeats(x, count, copies_along(x, summed_axes(op, i))), 0);
  meet_in_sum(met, factor, std::max(walk * line.rms, count * line.drift), products);
  total.peak.add(met.peak, 1, 0);
  total.relative_peak.add(met.relative_peak, 1, 0);
}

// Adds what sums of products of errors come to, where all factors should be zero: a walk of them.
void ErrorAnalysis::meet_in_products(Deviation& total, const Deviation& a, const Deviation& b, double count) {
  Deviation product;
  meet_in_product(product, a, b);
  total.absolute.own = std::hypot(total.absolute.own, std::sqrt(count) * product.absolute.common);
  total.peak.jump += product.peak.jump;
}

Deviation ErrorAnalysis::after_contraction(const Op& op, DataType compute) {
  const double unit = epsilon(compute);
  const bool rounds = notes_.tf32 && compute == DataType::f32;
  const int a = op.inputs[0], b = op.inputs[1], c = op.outputs[0];
  const double count =
      multiply_adds({op.attributes, dims(a), dims(b), dims(c)}) / static_cast<double>(element_count(dims(c)));
  const double rounding = growth_of_sums(count) * unit;
  Deviation total;
  add_parts(total, c, rounding, 0);
  if (measured_)
    total.absolute.own =
        rounding * std::sqrt(count) * line_of_operand(op, 0).rms * line_of_operand(op, 1).rms;
  const Deviation factors[] = {as_multiplied(a, rounds), as_multiplied(b, rounds)};
  for (const size_t i : {0, 1}) carry_factor(total, op, i, factors[i], count);
  if (measured_) meet_in_products(total, factors[0], factors[1], count);
  if (notes_.short_sums && compute == DataType::f32 && is_fp8(type(a)) && is_fp8(type(b)))
    total.add(short_sums(a, b, c, count), 1, 1);
  for (const int operand : {a, b})
    if (rounds && type(operand) == DataType::f32) total.peak.steps += kTf32Epsilon / 2 * size(c).largest;
  if (notes_.tensor_cores && compute == DataType::f32) total.peak.steps += cut_sums(a, b, c, count);
  return total;
}

// Partial sums are as large as sums of random terms are, or as the result.
double ErrorAnalysis::cut_sums(int a, int b, int c, double count) const {
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
Deviation ErrorAnalysis::short_sums(int a, int b, int c, double count) const {
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
double ErrorAnalysis::growth_of_sums(double count) const {
  return 1 + std::sqrt(count) / (measured_ ? 6 : 3);
}

}  // namespace fusor::reference
