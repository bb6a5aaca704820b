// Owns what holds of ops of every family; the rules of each are in core/ops/.
#include "core/infer.h"

#include <algorithm>

#include "core/fail.h"
#include "core/ops/rules.h"
#include "core/words.h"

namespace fusor {

namespace {

/// Operands as their roles say: none too many, and none left out that must be there.
void expect_operands(const Call& call, const std::vector<Role>& roles) {
  size_t least = roles.size();
  while (least > 0 && roles[least - 1].optional) --least;
  const bool repeats = !roles.empty() && roles.back().repeats;
  const size_t got = call.inputs.size();
  if (got < least || (got > roles.size() && !repeats)) {
    const std::string expected = repeats ? words::count(least, "operand") + " or more"
                                 : least < roles.size()
                                     ? fmt::format("{} to {} operands", least, roles.size())
                                     : words::count(least, "operand");
    fail("{}: takes {}, got {}", call.label, expected, got);
  }
  for (size_t i = 0; i < got; ++i)
    if (!call.has(i) && !roles[std::min(i, roles.size() - 1)].optional)
      fail("{}: the operand {} is missing", call.label, roles[std::min(i, roles.size() - 1)].name);
}

bool defined_for_reals_only(const Attributes& attributes) {
  return std::visit(
      [](const auto& op) {
        if constexpr (requires { op.needs_reals(); })
          return op.needs_reals();
        else
          return false;
      },
      attributes);
}

}  // namespace

std::vector<Inferred> infer_all(const std::string& op_name, const Attributes& attributes,
                                std::span<const Tensor* const> inputs, std::span<const Dims> given) {
  const Call call{op_label(op_name, attributes), inputs, given, roles(attributes)};
  expect_operands(call, call.roles.inputs);
  for (const Dims& dims : given) expect_addressable(call, dims);
  std::vector<Inferred> inferred =
      std::visit([&](const auto& op) { return std::vector<Inferred>(op.infer(call)); }, attributes);
  for (size_t i = 0; i < inferred.size(); ++i)
    if (!call.given(i).empty() && call.given(i) != inferred[i].dims)
      fail("{}: the result has dims {}, the operands give {}", call.label, to_string(call.given(i)),
           to_string(inferred[i].dims));
  return inferred;
}

Inferred infer(const std::string& op_name, const Attributes& attributes,
               std::span<const Tensor* const> inputs, const Dims& given) {
  return infer_all(op_name, attributes, inputs, {&given, 1}).front();
}

DataType default_compute(const Attributes& attributes, std::span<const Tensor* const> inputs) {
  const auto* pointwise = std::get_if<Pointwise>(&attributes);
  if (pointwise != nullptr && pointwise->mode == PointwiseMode::gen_index) {
    const int64_t axis = pointwise->axis;
    const bool known = !inputs.empty() && axis >= 0 && axis < inputs[0]->dims.rank();
    return known ? index_type(inputs[0]->dims[static_cast<int>(axis)]) : DataType::i32;
  }
  if (pointwise != nullptr && gives_words(pointwise->mode)) return DataType::i64;
  const auto any_is = [&](auto&& property) {
    return std::ranges::any_of(
        inputs, [&](const Tensor* input) { return input != nullptr && property(input->type); });
  };
  if (any_is([](DataType type) { return type == DataType::f64; })) return DataType::f64;
  if (defined_for_reals_only(attributes) || any_is(is_real)) return DataType::f32;
  return any_is([](DataType type) { return type == DataType::i64; }) ? DataType::i64 : DataType::i32;
}

bool set_compute(Attributes& attributes, DataType compute) {
  return std::visit(
      [&](auto& op) {
        if constexpr (requires { op.compute; }) {
          op.compute = compute;
          return true;
        } else {
          return false;
        }
      },
      attributes);
}

std::string op_label(const std::string& op_name, const Attributes& attributes) {
  const bool reduces = std::holds_alternative<Reduction>(attributes);
  return fmt::format("{}{} '{}'", short_name(attributes), reduces ? " reduction" : "", op_name);
}

bool keeps_type(const Attributes& attributes) {
  return is_view(attributes) || nature(attributes) == Nature::joins;
}

}  // namespace fusor
