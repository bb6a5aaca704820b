// Owns the filling of inputs, their ranges, and how the types of a graph hold the ranges of results.
#include "tools/fuzz/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/convert.h"
#include "core/infer.h"
#include "tools/fuzz/random.h"
#include "tools/fuzz/result_ranges.h"

namespace fusor::fuzz {

namespace {

constexpr std::array<std::string_view, kFillings + 1> kNames = {"unit", "grid", "positive", "sparse",
                                                                "distinct"};

// Beyond it, sums and products of later ops would leave int32's range.
constexpr double kLargestInteger = 1e8;
constexpr double kExactInFloat = 1 << 24;

double real_value(Filling filling, Random& random) {
  switch (filling) {
    case Filling::unit:
    case Filling::distinct:
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
    case Filling::distinct:
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

void fill_in_random_order(const Tensor& tensor, void* buffer, int64_t count, Random& random) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t other = random.below(i + 1);
    store_int(tensor.type, buffer, i, load_int(tensor.type, buffer, other));
    store_int(tensor.type, buffer, other, i);
  }
}

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

double largest_stored(DataType type) {
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
    case DataType::b1:
      return 1;
    case DataType::f4_e2m1:
      return 6;
    case DataType::i4:
      return 7;
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
  if (info(type).kind == NumberKind::boolean) {
    if (!values.exact) return std::nullopt;
    return Values{0, 1, true};
  }
  const double most = largest_stored(type);
  const double least = type == DataType::u8 ? 0 : type == DataType::i4 ? -8 : -most;
  values.least = std::clamp(values.least, least, most);
  values.most = std::clamp(values.most, least, most);
  // So few numbers that small ones move by more than a part of themselves.
  if (type == DataType::f4_e2m1) {
    constexpr double kMargin = 0.01;
    values.least = round_to(type, values.least >= 0 ? values.least * (1 - kMargin) : values.least - kMargin);
    values.most = round_to(type, values.most <= 0 ? values.most * (1 - kMargin) : values.most + kMargin);
    return values;
  }
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

bool is_distinct(const Tensor& tensor) {
  return filling_of(tensor.name) == Filling::distinct && !tensor.is_scalar() &&
         (tensor.type == DataType::i32 || tensor.type == DataType::i64);
}

void fill(const Tensor& tensor, void* buffer, uint64_t seed) {
  const Filling filling = filling_of(tensor.name);
  const int64_t count = tensor.is_scalar() ? 1 : span_elements(tensor.dims, tensor.strides);
  Random random(seed);
  if (is_distinct(tensor)) return fill_in_random_order(tensor, buffer, count, random);
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
  if (is_distinct(tensor))
    return {0, static_cast<double>(span_elements(tensor.dims, tensor.strides) - 1), true};
  if (tensor.memory != Memory::constant) return range_of(filling_of(tensor.name), tensor.type);
  const double value = std::visit([](auto number) { return static_cast<double>(number); }, tensor.value);
  const double rounded_value = round_to(tensor.type, value);
  return {rounded_value, rounded_value, true};
}

std::optional<std::vector<Values>> values_after(const Graph& graph, const Op& op,
                                                std::span<const Values> inputs) {
  const auto type_of = [&](int tensor) { return graph.tensors[static_cast<size_t>(tensor)].type; };
  const auto first = std::ranges::find_if(op.outputs, [](int y) { return y >= 0; });
  const DataType* said = compute_type(op.attributes);
  const bool composite = nature(op.attributes) == Nature::composite;
  DataType compute = said != nullptr ? *said : composite ? DataType::f32 : carrier(type_of(*first));
  for (const int input : op.inputs)
    if (composite && input >= 0 && type_of(input) == DataType::f64) compute = DataType::f64;
  std::vector<Values> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool holds = (said != nullptr || composite) && op.inputs[i] >= 0;
    const auto operand = holds ? held(inputs[i], type_of(op.inputs[i]), compute) : inputs[i];
    if (!operand) return std::nullopt;
    operands.push_back(*operand);
  }
  const Site site{graph, op, operands, !is_real(compute)};
  const auto in_compute = computed_results(site);
  if (!in_compute) return std::nullopt;
  std::vector<Values> results;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    results.emplace_back();
    if (op.outputs[i] < 0) continue;
    const auto result = stored((*in_compute)[i], type_of(op.outputs[i]), compute);
    if (!result) return std::nullopt;
    results.back() = *result;
  }
  return results;
}

bool is_well_conditioned(const Graph& graph) {
  std::vector<Values> values(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.producer(static_cast<int>(i)) < 0) values[i] = values_of(graph.tensors[i]);
  for (const Op& op : graph.ops) {
    std::vector<Values> inputs;
    for (const int input : op.inputs)
      inputs.push_back(input < 0 ? Values{} : values[static_cast<size_t>(input)]);
    const auto results = values_after(graph, op, inputs);
    if (!results) return false;
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (op.outputs[i] >= 0) values[static_cast<size_t>(op.outputs[i])] = (*results)[i];
  }
  return true;
}

}  // namespace fusor::fuzz
