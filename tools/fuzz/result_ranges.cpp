// Owns the rules of each family of ops by which the ranges of its results follow from those of its operands.
#include "tools/fuzz/result_ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/convert.h"
#include "core/infer.h"

namespace fusor::fuzz {

namespace {

Computed chosen(double least, double most, bool exact) { return {{least, most, exact}, false}; }
Computed rounded(double least, double most, bool exact) { return {{least, most, exact}, true}; }
Computed inexact(double least, double most) { return {{least, most, false}, true}; }

Computed symmetric(double bound) { return inexact(-bound, bound); }

Computed corners(const Values& a, const Values& b, bool exact, double (*f)(double, double)) {
  const std::array all{f(a.least, b.least), f(a.least, b.most), f(a.most, b.least), f(a.most, b.most)};
  const auto [least, most] = std::ranges::minmax(all);
  return rounded(least, most, exact);
}

double clipped(const Pointwise& op, double x) {
  if (x < op.lower_clip) return op.lower_clip + op.lower_clip_slope * (x - op.lower_clip);
  return std::min(x, op.upper_clip);
}

std::optional<Computed> clipped_result(const Pointwise& op, const Site& site) {
  const Values& a = site[0];
  if (!a.exact && std::abs(op.lower_clip_slope) > 1) return std::nullopt;
  std::array all{clipped(op, a.least), clipped(op, a.most), op.lower_clip,
                 std::min(op.upper_clip, kLargestReal)};
  const auto [least, most] = std::ranges::minmax(all);
  const bool plain = op.lower_clip_slope == 0;
  return Computed{{least, most, a.exact && (plain || site.integer)}, !plain && !site.integer};
}

std::optional<Computed> backward(const Pointwise& op, const Site& site) {
  const double dy = site[0].largest();
  const Values& x = site[1];
  if (x.largest() > 8) return std::nullopt;
  if (op.mode == PointwiseMode::relu_bwd) {
    if (!x.exact) return std::nullopt;
    const double bound = dy * std::max(1.0, std::abs(op.lower_clip_slope));
    return Computed{{-bound, bound, site[0].exact && (op.lower_clip_slope == 0 || site.integer)}, false};
  }
  if (op.mode == PointwiseMode::elu_bwd && op.elu_alpha != 1 && !x.exact) return std::nullopt;
  return symmetric(dy * 1.2 * std::max(1.0, op.elu_alpha) * std::max(1.0, std::abs(op.swish_beta)));
}

std::optional<Computed> divided(const Site& site, const Values& a, const Values& b) {
  if (site.integer) {
    const double bound = a.largest();
    return chosen(-bound, bound, true);
  }
  if (b.least < 1) return std::nullopt;
  Computed quotient = corners(a, b, false, [](double x, double y) { return x / y; });
  return quotient;
}

std::optional<Computed> computed(const Pointwise& op, const Site& site) {
  using enum PointwiseMode;
  const Values& a = site[0];
  const Values b = site.in.size() > 1 ? site[1] : Values{};
  const bool exact = site.exact();
  switch (op.mode) {
    case identity:
      return Computed{a, false};
    case add:
      return rounded(a.least + b.least, a.most + b.most, exact);
    case sub:
      return rounded(a.least - b.most, a.most - b.least, exact);
    case mul:
      return corners(a, b, exact, [](double x, double y) { return x * y; });
    case div:
      return divided(site, a, b);
    case mod:
      if (!exact || (!site.integer && b.least < 1)) return std::nullopt;
      return chosen(-b.largest(), b.largest(), true);
    case PointwiseMode::pow:
      if (a.least < 1 || a.most > 4 || b.largest() > 3) return std::nullopt;
      return inexact(std::pow(a.most, -3), std::pow(a.most, 3));
    case max:
      return chosen(std::max(a.least, b.least), std::max(a.most, b.most), exact);
    case min:
      return chosen(std::min(a.least, b.least), std::min(a.most, b.most), exact);
    case add_square: {
      if (!site.integer && a.least < 0) return std::nullopt;
      return Computed{{a.least, a.most + b.largest() * b.largest(), exact && site.integer}, true};
    }
    case PointwiseMode::sqrt:
      if (a.least < (a.exact ? 0 : 0.25)) return std::nullopt;
      return inexact(0, std::sqrt(a.most));
    case rsqrt:
    case reciprocal:
      if (a.least < 1) return std::nullopt;
      return inexact(0, 1);
    case PointwiseMode::exp:
      if (a.largest() > 6) return std::nullopt;
      return inexact(std::exp(a.least), std::exp(a.most));
    case PointwiseMode::log:
      if (a.least < 1) return std::nullopt;
      return inexact(0, std::log(a.most));
    case PointwiseMode::sin:
    case PointwiseMode::cos:
      if (a.largest() > 100) return std::nullopt;
      return symmetric(1);
    case PointwiseMode::tan:
      if (a.largest() > (a.exact ? 1 : 0.5)) return std::nullopt;
      return symmetric(1.6);
    case PointwiseMode::abs:
      return chosen(a.least > 0 ? a.least : 0, a.largest(), a.exact);
    case neg:
      return chosen(-a.most, -a.least, a.exact);
    case PointwiseMode::ceil:
    case PointwiseMode::floor:
      if (!a.exact) return std::nullopt;
      return chosen(std::floor(a.least), std::ceil(a.most), true);
    case PointwiseMode::erf:
    case PointwiseMode::tanh:
      return symmetric(1);
    case sigmoid:
      return inexact(0, 1);
    case PointwiseMode::relu:
      return clipped_result(op, site);
    case elu:
      return inexact(std::min(a.least, 0.0) * op.elu_alpha, std::max(a.most, 0.0));
    case gelu:
    case gelu_tanh:
      return inexact(-0.2, std::max(a.most, 0.0) + 0.2);
    case softplus:
      return symmetric(a.largest() + 0.7 / std::abs(op.softplus_beta));
    case swish:
      return symmetric(a.largest());
    case relu_bwd:
    case tanh_bwd:
    case sigmoid_bwd:
    case elu_bwd:
    case gelu_bwd:
    case gelu_tanh_bwd:
    case softplus_bwd:
    case swish_bwd:
      return backward(op, site);
    case cmp_eq:
    case cmp_neq:
    case cmp_gt:
    case cmp_ge:
    case cmp_lt:
    case cmp_le:
    case logical_and:
    case logical_or:
    case logical_not:
      if (!exact) return std::nullopt;
      return chosen(0, 1, true);
    case gen_index: {
      const double most = static_cast<double>(site.dims(site.op.inputs[0])[static_cast<int>(op.axis)] - 1);
      return chosen(0, most, true);
    }
    case philox:
      return std::nullopt;  // too large for what comes after
    case binary_select: {
      const Values& t = site[2];
      if (!t.exact) return std::nullopt;
      return chosen(std::min(a.least, b.least), std::max(a.most, b.most), exact);
    }
  }
  return std::nullopt;
}

std::optional<Computed> computed(const Reduction& op, const Site& site) {
  const Values& x = site[0];
  const double count = static_cast<double>(element_count(site.dims(site.op.inputs[0]))) /
                       static_cast<double>(element_count(site.dims(site.op.outputs[0])));
  switch (op.mode) {
    case ReductionMode::min:
    case ReductionMode::max:
      return chosen(x.least, x.most, x.exact);
    case ReductionMode::amax:
      return chosen(0, x.largest(), x.exact);
    case ReductionMode::add:
      return rounded(count * x.least, count * x.most, site.integer);
    case ReductionMode::norm1:
      return rounded(0, count * x.largest(), site.integer);
    case ReductionMode::avg:
      return inexact(x.least, x.most);
    case ReductionMode::norm2:
      return inexact(0, std::sqrt(count) * x.largest());
    case ReductionMode::mul_no_zeros:
      if (!x.exact) return std::nullopt;
      [[fallthrough]];
    case ReductionMode::mul: {
      if (count > 32) return std::nullopt;
      const double bound = std::pow(std::max(1.0, x.largest()), count);
      return rounded(-bound, bound, site.integer);
    }
  }
  return std::nullopt;
}

Computed contracted(const Site& site, double count) {
  const double bound = count * site[0].largest() * site[1].largest();
  return rounded(-bound, bound, site.integer);
}

std::optional<Computed> computed(const Matmul&, const Site& site) {
  return contracted(site, static_cast<double>(site.dims(site.op.inputs[0]).back()));
}

std::optional<Computed> computed(const Conv& op, const Site& site) {
  // fprop: a filter; dgrad: what all filters say of one channel; wgrad: a channel of dy.
  const bool wgrad = op.pass == ConvPass::wgrad;
  const Dims& operand = site.dims(site.op.inputs[wgrad ? 0 : 1]);
  const int64_t apart = operand[op.pass == ConvPass::fprop ? 0 : 1];
  const int64_t terms = element_count(operand) / apart;
  return contracted(site, static_cast<double>(terms));
}

std::optional<Computed> moved(const Site& site) {
  Computed all{site[0], false};
  for (const Values& each : site.in) {
    all.values.least = std::min(all.values.least, each.least);
    all.values.most = std::max(all.values.most, each.most);
    all.values.exact = all.values.exact && each.exact;
  }
  return all;
}

std::optional<Computed> computed(const Reshape&, const Site& site) { return moved(site); }
std::optional<Computed> computed(const Transpose&, const Site& site) { return moved(site); }
std::optional<Computed> computed(const Slice&, const Site& site) { return moved(site); }
std::optional<Computed> computed(const Concatenate&, const Site& site) { return moved(site); }

// An index outside of its extent reads 0.
std::optional<Computed> computed(const Gather&, const Site& site) {
  if (!site[1].exact) return std::nullopt;
  return chosen(std::min(site[0].least, 0.0), std::max(site[0].most, 0.0), site[0].exact);
}

// Whether no two elements have one place.
bool lies_apart(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (int axis = 0; axis < tensor.dims.rank(); ++axis)
    if (tensor.dims[axis] > 1) steps.emplace_back(tensor.strides[axis], tensor.dims[axis]);
  std::ranges::sort(steps);
  int64_t reach = 0;
  for (const auto& [stride, extent] : steps) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

// Where two elements go to one place, either may be the last.
std::optional<Computed> computed(const Scatter&, const Site& site) {
  const int index = site.op.inputs[1];
  const Tensor& tensor = site.graph.tensors[static_cast<size_t>(index)];
  if (site.graph.producer(index) >= 0 || !is_distinct(tensor) || !lies_apart(tensor)) return std::nullopt;
  return chosen(site[0].least, site[0].most, site[0].exact);
}

using AllComputed = std::optional<std::vector<Computed>>;

/// The operands and dims of a composite by the names of its roles.
class Roled {
 public:
  explicit Roled(const Site& site) : site_(site), roles_(roles(site.op.attributes)) {}

  int input(std::string_view role) const {
    for (size_t i = 0; i < site_.op.inputs.size() && i < roles_.inputs.size(); ++i)
      if (roles_.inputs[i].name == role) return static_cast<int>(i);
    return -1;
  }
  bool has(std::string_view role) const {
    const int place = input(role);
    return place >= 0 && site_.op.inputs[static_cast<size_t>(place)] >= 0;
  }
  Values values(std::string_view role) const { return site_[static_cast<size_t>(input(role))]; }
  /// The size of the largest value; `otherwise` where the operand is left out.
  double largest(std::string_view role, double otherwise) const {
    return has(role) ? values(role).largest() : otherwise;
  }
  double count(std::string_view role) const {
    return static_cast<double>(element_count(site_.dims(site_.op.inputs[static_cast<size_t>(input(role))])));
  }

 private:
  const Site& site_;
  Roles roles_;
};

AllComputed all_of(std::initializer_list<double> bounds) {
  std::vector<Computed> all;
  for (const double bound : bounds) all.push_back(symmetric(bound));
  return all;
}

/// Families of programs that use the library: none is proposed.
AllComputed computed_all(const Composite&, const Site&) { return std::nullopt; }

AllComputed computed_all(const Softmax& op, const Site& site) {
  const Roled roled(site);
  const double n = static_cast<double>(site.dims(site.op.inputs[0])[static_cast<int>(op.axis)]);
  const double size = std::max(site[0].largest(), roled.largest("sink", 0));
  if (size > 20) return std::nullopt;
  const double log_sum = std::log(n + 1);
  const Computed max = chosen(-size, size, site.exact());
  return std::vector{op.log ? inexact(-2 * size - log_sum, 0) : inexact(0, 1), max, inexact(0, n + 1),
                     symmetric(size + log_sum)};
}

AllComputed computed_all(const SoftmaxBackward& op, const Site& site) {
  const Roled roled(site);
  const double n = static_cast<double>(site.dims(site.op.inputs[1])[static_cast<int>(op.axis)]);
  const double dy = site[0].largest(), y = site[1].largest();
  if (op.log && site[1].most > 3) return std::nullopt;
  const double sum = op.log ? n * dy : n * dy * y;
  if (roled.largest("sink", 0) + roled.largest("logsumexp", 0) > 4) return std::nullopt;
  return all_of({op.log ? dy + std::exp(site[1].most) * sum : y * (dy + sum), 60 * roled.count("y") * sum});
}

AllComputed computed_all(const CrossEntropy& op, const Site& site) {
  const double n = static_cast<double>(site.dims(site.op.inputs[0])[static_cast<int>(op.axis)]);
  const double size = site[0].largest(), log_sum = std::log(n);
  if (size > 20 || !site[1].exact) return std::nullopt;
  return all_of({2 * size + log_sum, size + log_sum});
}

AllComputed computed_all(const CrossEntropyBackward&, const Site& site) {
  const Roled roled(site);
  const double size = site[0].largest();
  if (size > 20 || !site[1].exact) return std::nullopt;
  if (roled.has("logsumexp") && size + roled.largest("logsumexp", 0) > 4) return std::nullopt;
  return all_of({roled.largest("dloss", 0) * 60});
}

/// Elements that share their statistics.
template <class Op>
double normalized_count(const Op& op, const Dims& x) {
  double count = 1;
  for (int i = 0; i < x.rank(); ++i) {
    const bool over = !op.axes.empty()                  ? std::ranges::find(op.axes, i) != op.axes.end()
                      : op.norm == NormMode::batch_norm ? i != 1
                                                        : i >= 2;
    if (over) count *= static_cast<double>(x[i]);
  }
  const int64_t channels = op.norm == NormMode::group_norm ? x[1] / op.groups : 1;
  return count * static_cast<double>(channels);
}

AllComputed computed_all(const NormForward& op, const Site& site) {
  const Roled roled(site);
  const Values& x = site[0];
  const double count = normalized_count(op, site.dims(site.op.inputs[0]));
  const double steepest = 1 / std::sqrt(op.epsilon);
  const bool running = op.phase == NormPhase::inference && roled.has("prev_running_mean");
  if (roled.has("prev_running_var") && roled.values("prev_running_var").least < 0) return std::nullopt;
  double unit = std::sqrt(count), inv_std = steepest, mean = x.largest();
  if (roled.has("inv_std")) {
    inv_std = roled.largest("inv_std", 1);
    mean = roled.largest("mean", 0);
    unit = (x.largest() + mean) * inv_std;
  } else if (running) {
    mean = roled.largest("prev_running_mean", 0);
    unit = (x.largest() + mean) * inv_std;
  }
  const double y = unit * roled.largest("scale", 1) + roled.largest("bias", 0);
  if (op.norm == NormMode::rms_norm) return std::vector{symmetric(y), inexact(0, inv_std)};
  const double variance = 2 * x.largest() * x.largest() + roled.largest("prev_running_var", 0);
  return std::vector{symmetric(y), symmetric(mean), inexact(0, inv_std),
                     symmetric(std::max(x.largest(), roled.largest("prev_running_mean", 0))),
                     inexact(0, 2 * variance)};
}

AllComputed computed_all(const NormBackward& op, const Site& site) {
  const Roled roled(site);
  const double count = normalized_count(op, site.dims(site.op.inputs[1]));
  double unit = std::sqrt(count), inv_std = 1 / std::sqrt(op.epsilon);
  if (roled.has("inv_std")) {
    inv_std = roled.largest("inv_std", 1);
    unit = (site[1].largest() + roled.largest("mean", 0)) * inv_std;
  }
  const double dy = site[0].largest(), g = dy * roled.largest("scale", 1), total = roled.count("dy") * dy;
  return all_of({inv_std * g * (2 + unit * unit), total * unit, total});
}

AllComputed computed_all(const GenStats&, const Site& site) {
  const double count = Roled(site).count("x"), size = site[0].largest();
  return std::vector{symmetric(count * size), inexact(0, count * size * size)};
}

AllComputed computed_all(const BnFinalize& op, const Site& site) {
  const Roled roled(site);
  const double share = 1 / static_cast<double>(op.accumulation_count);
  const double mean = site[0].largest() * share, variance = site[1].largest() * share;
  if (!site.exact() || (roled.has("prev_running_var") && roled.values("prev_running_var").least < 0))
    return std::nullopt;
  const double inv_std = 1 / std::sqrt(op.epsilon), scale = roled.largest("scale", 1) * inv_std;
  return all_of({scale, roled.largest("bias", 0) + mean * scale, mean, inv_std,
                 mean + roled.largest("prev_running_mean", 0),
                 2 * variance + roled.largest("prev_running_var", 0)});
}

AllComputed computed_all(const BnBackwardWeights&, const Site& site) {
  const double total = Roled(site).count("dy") * site[0].largest();
  const double inv_std = site[3].largest(), mean = site[2].largest();
  const double unit = (site[1].largest() + mean) * inv_std, factor = site[4].largest() * inv_std;
  const double slope = factor * inv_std * site[0].largest() * unit;
  return all_of({total * unit, total, factor, slope, factor * site[0].largest() + slope * mean});
}

double causal_bound(const Roled& roled, const Site& site) {
  const double width =
      static_cast<double>(site.dims(site.op.inputs[static_cast<size_t>(roled.input("weight"))])[1]);
  const double x = std::max(roled.largest("x", 0), roled.largest("initial_states", 0));
  return width * x * roled.largest("weight", 0) + roled.largest("bias", 0);
}

AllComputed computed_all(const CausalConv1d&, const Site& site) {
  const Roled roled(site);
  const double x = std::max(roled.largest("x", 0), roled.largest("initial_states", 0));
  return std::vector{symmetric(causal_bound(roled, site)), chosen(-x, x, site[0].exact)};
}

AllComputed computed_all(const CausalConv1dBackward&, const Site& site) {
  const Roled roled(site);
  if (causal_bound(roled, site) > 8) return std::nullopt;
  const double x = std::max(roled.largest("x", 0), roled.largest("initial_states", 0));
  const double dy = 1.2 * site[0].largest(), count = roled.count("dy");
  const double dx = dy * roled.largest("weight", 0) * roled.count("weight");
  return all_of({dx, count * dy * x, count * dy, dx});
}

AllComputed computed_all(const ResampleForward& op, const Site& site) {
  const Values& x = site[0];
  const double least = std::min(x.least, 0.0), most = std::max(x.most, 0.0);
  switch (op.mode) {
    case ResampleMode::maxpool:
      // Where values are not the same everywhere, another one may be the largest.
      if (!x.exact && site.op.outputs.size() > 1 && site.op.outputs[1] >= 0) return std::nullopt;
      return std::vector{chosen(x.least, x.most, x.exact),
                         chosen(0, static_cast<double>(element_count(op.window) - 1), true)};
    case ResampleMode::nearest:
      return std::vector{chosen(x.least, x.most, x.exact)};
    default:
      return std::vector{inexact(least, most)};
  }
}

AllComputed computed_all(const ResampleBackward& op, const Site& site) {
  const Roled roled(site);
  if (op.mode == ResampleMode::maxpool && !roled.has("index") && !roled.values("x").exact)
    return std::nullopt;
  double windows = static_cast<double>(element_count(site.dims(site.op.inputs[0])));
  if (op.pools()) windows = std::min(windows, static_cast<double>(element_count(op.window)));
  return all_of({windows * site[0].largest()});
}

AllComputed computed_all(const RnnForward& op, const Site& site) {
  for (const Values& each : site.in)
    if (each.largest() > 4) return std::nullopt;
  if (op.cell == RnnCell::rnn_relu) return std::nullopt;  // grows with every step
  const Roled roled(site);
  if (roled.has("lengths") && !roled.values("lengths").exact) return std::nullopt;
  const double steps = static_cast<double>(site.dims(site.op.inputs[0])[0]);
  const double h = std::max(1.0, roled.largest("h0", 0));
  const double y = op.projection_size > 0 ? 4 * static_cast<double>(op.hidden_size) : h;
  return all_of({y, y, steps + 4});
}

AllComputed computed_all(const RnnBackward& op, const Site& site) {
  const Roled roled(site);
  for (const Values& each : site.in)
    if (each.largest() > 5) return std::nullopt;
  if (op.cell == RnnCell::rnn_relu || (roled.has("lengths") && !roled.values("lengths").exact))
    return std::nullopt;
  const Dims& x = site.dims(site.op.inputs[static_cast<size_t>(roled.input("x"))]);
  const double wide = static_cast<double>(op.gates() * op.hidden_size);
  const double slope = (site[0].largest() + 2) * std::pow(wide, static_cast<double>(x[0])) * wide;
  std::vector<Computed> all(site.op.outputs.size(), symmetric(slope * static_cast<double>(x[0] * x[1])));
  return all;
}

AllComputed computed_all(const Recurrence&, const Site&) { return std::nullopt; }  // a part of the above

AllComputed computed_all(const LrnForward& op, const Site& site) {
  return all_of({site[0].largest() * std::max(1.0, std::pow(op.k, -op.beta))});
}

AllComputed computed_all(const LrnBackward& op, const Site& site) {
  const double x = site[1].largest(), dy = site[0].largest();
  return all_of({dy * (1 + 2 * std::abs(op.alpha * op.beta) * x * x)});
}

AllComputed computed_all(const GridSample& op, const Site& site) {
  // A rounded coordinate may reach another pixel.
  if (!site[1].exact || (op.mode == GridMode::nearest)) return std::nullopt;
  return all_of({site[0].largest()});
}

AllComputed computed_all(const GridSampleBackward& op, const Site& site) {
  // The slopes of the grid jump at pixels; a rounded coordinate may reach another one.
  if (!site[2].exact || op.mode == GridMode::nearest || site.op.outputs[1] >= 0) return std::nullopt;
  const double positions = static_cast<double>(element_count(site.dims(site.op.inputs[0])));
  return all_of({site[0].largest() * positions, 0});
}

AllComputed computed_all(const CtcLoss&, const Site&) { return std::nullopt; }  // labels may name no class

AllComputed computed_all(const Rng& op, const Site& site) {
  if (!site.exact()) return std::nullopt;
  switch (op.distribution) {
    case Distribution::bernoulli:
      return std::vector{chosen(0, 1, true)};
    case Distribution::uniform:
      return std::vector{inexact(op.low, op.high)};
    case Distribution::normal:
      break;
  }
  return all_of({std::abs(op.mean) + 6 * op.deviation});
}

AllComputed computed_all(const Dropout& op, const Site& site) {
  return std::vector{symmetric(site[0].largest() / (1 - op.probability)), chosen(0, 1, true)};
}

AllComputed computed_all(const BlockScaleQuantize& op, const Site& site) {
  if (!site[0].exact || op.scale_type != DataType::f8_e8m0) return std::nullopt;
  return all_of({largest_number(op.y_type), site[0].largest()});
}

AllComputed computed_all(const BlockScaleDequantize&, const Site& site) {
  return all_of({site[0].largest() * site[1].largest()});
}

// Zeros beside what is taken.
AllComputed taken_or_zero(const Site& site) {
  for (size_t i = 1; i < site.in.size(); ++i)
    if (site.op.inputs[i] >= 0 && !site[i].exact) return std::nullopt;
  return std::vector{chosen(std::min(site[0].least, 0.0), std::max(site[0].most, 0.0), site[0].exact)};
}
AllComputed computed_all(const PagedCacheLoad&, const Site& site) { return taken_or_zero(site); }
AllComputed computed_all(const RaggedLoad&, const Site& site) { return taken_or_zero(site); }
AllComputed computed_all(const RaggedStore&, const Site& site) { return taken_or_zero(site); }

AllComputed computed_all(const MatmulLengths& op, const Site& site) {
  for (size_t i = 2; i < site.in.size(); ++i)
    if (site.op.inputs[i] >= 0 && !site[i].exact) return std::nullopt;
  const double terms = static_cast<double>(site.dims(site.op.inputs[0]).back());
  return all_of({terms * site[0].largest() * site[1].largest() + std::abs(op.padding)});
}

AllComputed computed_all(const MoeGroupedMatmul&, const Site& site) {
  for (size_t i = 2; i < site.in.size(); ++i)
    if (!site[i].exact) return std::nullopt;
  const double terms = static_cast<double>(site.dims(site.op.inputs[0]).back());
  return all_of({terms * site[0].largest() * site[1].largest()});
}

/// Whether a query may see no key: its statistics are infinite.
bool may_hide_rows(const SdpaAttributes& op, const Roled& roled) {
  return op.padding_mask || op.left_bound > 0 || op.diagonal_alignment == DiagonalAlignment::bottom_right ||
         roled.has("block_mask");
}

/// The largest score of an attention.
double largest_score(const SdpaAttributes& op, const Site& site) {
  const Roled roled(site);
  const double depth = static_cast<double>(site.dims(site.op.inputs[0]).back());
  const double far =
      static_cast<double>(std::max(site.dims(site.op.inputs[0])[2], site.dims(site.op.inputs[1])[2]));
  return std::abs(op.attn_scale) * depth * site[0].largest() * site[1].largest() + roled.largest("bias", 0) +
         roled.largest("sink", 0) + (op.alibi_mask ? far : 0);
}

AllComputed computed_all(const SdpaForward& op, const Site& site) {
  const double score = largest_score(op, site);
  const double keys = static_cast<double>(site.dims(site.op.inputs[1])[2]);
  const std::vector<int>& outputs = site.op.outputs;
  const bool wants_statistics =
      std::any_of(outputs.begin() + 1, outputs.begin() + 4, [](int output) { return output >= 0; });
  if (score > 20 || (wants_statistics && may_hide_rows(op, Roled(site)))) return std::nullopt;
  return all_of({site[2].largest() / (1 - op.dropout_probability), score + std::log(keys), score, keys, 1});
}

AllComputed computed_all(const SdpaBackward& op, const Site& site) {
  const double score = largest_score(op, site) + site[5].largest();
  if (score > 4) return std::nullopt;
  const double p = std::exp(score) / (1 - op.dropout_probability),
               rows = static_cast<double>(site.dims(site.op.inputs[0])[2]) *
                      static_cast<double>(site.dims(site.op.inputs[0])[1]);
  const double depth = static_cast<double>(site.dims(site.op.inputs[2]).back());
  const double keys = static_cast<double>(site.dims(site.op.inputs[1])[2]);
  const double ds = p * depth * site[4].largest() * (site[2].largest() + site[3].largest());
  const double scale = std::abs(op.attn_scale);
  return all_of({scale * keys * ds * site[1].largest(), scale * rows * ds * site[0].largest(),
                 rows * p * site[4].largest(), rows * ds, rows * ds});
}

/// A family of one result.
template <class Family>
AllComputed computed_all(const Family& op, const Site& site) {
  const auto one = computed(op, site);
  return one ? AllComputed{{*one}} : std::nullopt;
}

}  // namespace

std::optional<std::vector<Computed>> computed_results(const Site& site) {
  return std::visit([&](const auto& attributes) { return computed_all(attributes, site); },
                    site.op.attributes);
}

}  // namespace fusor::fuzz
