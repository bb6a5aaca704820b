// Owns the filling of inputs and the ranges of all ops' results.
#include "tools/fuzz/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/convert.h"
#include "core/infer.h"
#include "tools/fuzz/random.h"

namespace fusor::fuzz {

namespace {

constexpr std::array<std::string_view, kFillings> kNames = {"unit", "grid", "positive", "sparse"};

// Beyond these, sums and products of later ops would leave the narrow types' ranges or int32's.
constexpr double kLargestReal = 1e4, kLargestInteger = 1e8, kExactInFloat = 1 << 24;

double real_value(Filling filling, Random& random) {
  switch (filling) {
    case Filling::unit:
      return 2 * (static_cast<double>(random.next() >> 11) * 0x1p-53) - 1;
    case Filling::grid:
      return static_cast<double>(random.between(-8, 8)) / 4;
    case Filling::positive:
      return 1 + static_cast<double>(random.next() >> 11) * 0x1p-53;
    case Filling::sparse:
      return random.once_in(2) ? random.pick({0.0, -0.0}) : random.pick({1.0, -1.0, 0.5});
  }
  return 0;
}

int64_t integer_value(Filling filling, Random& random) {
  switch (filling) {
    case Filling::unit:
      return random.between(-4, 4);
    case Filling::grid:
      return random.between(-2, 2);
    case Filling::positive:
      return random.between(1, 5);
    case Filling::sparse:
      return random.once_in(2) ? 0 : random.pick<int64_t>({1, -1, 3});
  }
  return 0;
}

Values range_of(Filling filling, DataType type) {
  if (info(type).kind == NumberKind::boolean) return {0, 1, true};
  if (is_real(type))
    return filling == Filling::positive ? Values{1, 2, true}
           : filling == Filling::grid   ? Values{-2, 2, true}
                                        : Values{-1, 1, true};
  const double most = filling == Filling::positive ? 5
                      : filling == Filling::grid   ? 2
                      : filling == Filling::sparse ? 3
                                                   : 4;
  const double least = filling == Filling::positive ? 1 : filling == Filling::sparse ? -1 : -most;
  return {type == DataType::u8 ? std::max(least, 0.0) : least, most, true};
}

/// A result in the compute type. `rounds`: by one correct rounding; otherwise it is a number that was read,
/// or whole.
struct Computed {
  Values values;
  bool rounds = true;
};

Computed chosen(double least, double most, bool exact) { return {{least, most, exact}, false}; }
Computed rounded(double least, double most, bool exact) { return {{least, most, exact}, true}; }
Computed inexact(double least, double most) { return {{least, most, false}, true}; }

Computed symmetric(double bound) { return inexact(-bound, bound); }

/// What the rules of one op look at: its operands as the compute type holds them.
struct Site {
  const Graph& graph;
  const Op& op;
  std::span<const Values> in;
  bool integer = false;  ///< the compute type is

  const Dims& dims(int tensor) const { return graph.tensors[static_cast<size_t>(tensor)].dims; }
  const Values& operator[](size_t i) const { return in[i]; }
  bool exact() const {
    return std::ranges::all_of(in, [](const Values& each) { return each.exact; });
  }
};

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

std::optional<Computed> computed(const Composite&, const Site&) { return std::nullopt; }  // none is proposed

/// An operand as the compute type holds it.
std::optional<Values> held(Values values, DataType type, DataType compute) {
  if (!is_real(type) && !values.exact)
    return std::nullopt;  // one integer more or less, which nothing allows for
  if (!is_real(compute)) {
    if (is_real(type) && !values.exact) return std::nullopt;
    values.least = std::nearbyint(values.least);
    values.most = std::nearbyint(values.most);
    return values;
  }
  const bool loses = type == DataType::f64 || (!is_real(type) && values.largest() > kExactInFloat);
  if (compute == DataType::f32 && loses) values.exact = false;
  return values;
}

double largest_number(DataType type) {
  switch (type) {
    case DataType::f8_e4m3:
      return 448;
    case DataType::f8_e5m2:
      return 57344;
    case DataType::i8:
      return 127;
    case DataType::u8:
      return 255;
    case DataType::b8:
      return 1;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

/// The result as its tensor's type holds it.
std::optional<Values> stored(const Computed& result, DataType type, DataType compute) {
  Values values = result.values;
  const double bound = is_real(compute) ? kLargestReal : kLargestInteger;
  if (!(values.largest() <= bound)) return std::nullopt;
  if (type == DataType::f16 && values.largest() > 6e4) return std::nullopt;
  if (is_real(compute) && result.rounds && type != compute) values.exact = false;
  if (type == DataType::b8) {
    if (!values.exact) return std::nullopt;
    return Values{0, 1, true};
  }
  const double most = largest_number(type), least = type == DataType::u8 ? 0 : -most;
  values.least = std::clamp(values.least, least, most);
  values.most = std::clamp(values.most, least, most);
  // Rounding moves the bounds outwards by at most one place.
  const double slack = is_real(type) ? epsilon(type) : 0;
  values.least -= slack * std::abs(values.least);
  values.most += slack * std::abs(values.most);
  if (is_real(compute) && !is_real(type)) {
    values.least = std::floor(values.least);
    values.most = std::ceil(values.most);
  }
  return values;
}

}  // namespace

std::string_view to_string(Filling filling) { return kNames[static_cast<size_t>(filling)]; }

Filling filling_of(std::string_view tensor_name) {
  const std::string_view ending = tensor_name.substr(tensor_name.rfind('.') + 1);
  const auto found = std::ranges::find(kNames, ending);
  return found == kNames.end() ? Filling::unit : static_cast<Filling>(found - kNames.begin());
}

void fill(const Tensor& tensor, void* buffer, uint64_t seed) {
  const Filling filling = filling_of(tensor.name);
  const int64_t count = tensor.is_scalar() ? 1 : span_elements(tensor.dims, tensor.strides);
  Random random(seed);
  for (int64_t i = 0; i < count; ++i) {
    if (is_real(tensor.type)) {
      store_real(tensor.type, buffer, i, real_value(filling, random));
    } else if (tensor.type == DataType::b8) {
      // Every byte but 0 is true.
      static_cast<uint8_t*>(buffer)[i] = random.pick<uint8_t>({0, 1, 0, 1, 2, 0xff});
    } else {
      store_int(tensor.type, buffer, i, integer_value(filling, random));
    }
  }
}

double Values::largest() const { return std::max(std::abs(least), std::abs(most)); }

Values values_of(const Tensor& tensor) {
  if (tensor.memory != Memory::constant) return range_of(filling_of(tensor.name), tensor.type);
  const double value = std::visit([](auto number) { return static_cast<double>(number); }, tensor.value);
  const double rounded_value = round_to(tensor.type, value);
  return {rounded_value, rounded_value, true};
}

std::optional<Values> values_after(const Graph& graph, const Op& op, std::span<const Values> inputs) {
  const Tensor& result = graph.tensors[static_cast<size_t>(op.outputs[0])];
  const DataType* said = compute_type(op.attributes);
  const DataType compute = said != nullptr ? *said : carrier(result.type);
  std::vector<Values> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DataType type = graph.tensors[static_cast<size_t>(op.inputs[i])].type;
    const auto operand = said != nullptr ? held(inputs[i], type, compute) : inputs[i];
    if (!operand) return std::nullopt;
    operands.push_back(*operand);
  }
  const Site site{graph, op, operands, !is_real(compute)};
  const auto in_compute =
      std::visit([&](const auto& attributes) { return computed(attributes, site); }, op.attributes);
  if (!in_compute) return std::nullopt;
  return stored(*in_compute, result.type, compute);
}

bool is_well_conditioned(const Graph& graph) {
  std::vector<Values> values(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.producer(static_cast<int>(i)) < 0) values[i] = values_of(graph.tensors[i]);
  for (const Op& op : graph.ops) {
    std::vector<Values> inputs;
    for (const int input : op.inputs) inputs.push_back(values[static_cast<size_t>(input)]);
    const auto result = values_after(graph, op, inputs);
    if (!result) return false;
    values[static_cast<size_t>(op.outputs[0])] = *result;
  }
  return true;
}

}  // namespace fusor::fuzz
