// Owns the table of pointwise ops and their rules.
#include "core/ops/pointwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr std::array kRows = {
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) \
  PointwiseInfo{#mode, inputs, PointwiseDomain::domain, alu, sfu},
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
};

// A parameter and the word that the modes which read it have in common.
struct Parameter {
  std::string_view field, mode;
};
constexpr std::array kParameters = {
    Parameter{"lower_clip", "relu"},        Parameter{"upper_clip", "relu"},
    Parameter{"lower_clip_slope", "relu"},  Parameter{"elu_alpha", "elu"},
    Parameter{"softplus_beta", "softplus"}, Parameter{"swish_beta", "swish"},
    Parameter{"axis", "gen_index"},
};

void refuse_parameters_of_others(const Call& call, const Pointwise& op) {
  const Pointwise defaults{.mode = op.mode, .compute = op.compute};
  Pointwise::visit(op, [&]<class Field>(std::string_view name, const Field& value) {
    if constexpr (std::is_same_v<Field, double>)
      if (std::isnan(value)) fail("{}: {} is NaN", call.label, name);
    if (op.has(name)) return;
    bool is_default = true;
    Pointwise::visit(defaults, [&]<class Other>(std::string_view other, const Other& unset) {
      if constexpr (std::is_same_v<Field, Other>)
        if (other == name) is_default = value == unset;
    });
    if (!is_default) fail("{}: has no attribute '{}'", call.label, name);
  });
}

void expect_parameters(const Call& call, const Pointwise& op) {
  refuse_parameters_of_others(call, op);
  const bool clips = op.mode == PointwiseMode::relu || op.mode == PointwiseMode::relu_bwd;
  if (clips && !(op.lower_clip <= op.upper_clip))
    fail("{}: lower_clip {} is above upper_clip {}", call.label, op.lower_clip, op.upper_clip);
  if (clips && !is_real(op.compute))
    for (const auto& [name, value] : {std::pair<std::string_view, double>{"lower_clip", op.lower_clip},
                                      {"upper_clip", op.upper_clip},
                                      {"lower_clip_slope", op.lower_clip_slope}})
      if (std::isfinite(value) && std::trunc(value) != value)
        fail("{}: {} {} is no whole number; compute type {} has only these", call.label, name, value,
             to_string(op.compute));
  if ((op.mode == PointwiseMode::softplus || op.mode == PointwiseMode::softplus_bwd) && op.softplus_beta == 0)
    fail("{}: softplus_beta is 0", call.label);
}

Dims broadcast_all(const Call& call) {
  Dims dims = call.input(0).dims;
  for (const Tensor* input : call.inputs)
    if (!broadcast_dims(dims, input->dims, dims))
      fail("{}: '{}' {} does not broadcast against {}", call.label, input->name, to_string(input->dims),
           to_string(dims));
  // Larger dims may be asked for.
  Dims wider;
  if (!call.given().empty() && broadcast_dims(dims, call.given(), wider) && wider == call.given())
    return wider;
  return dims;
}

}  // namespace

const PointwiseInfo& info(PointwiseMode mode) { return kRows[static_cast<size_t>(mode)]; }
std::string_view to_string(PointwiseMode mode) { return info(mode).name; }
int pointwise_mode_count() { return static_cast<int>(kRows.size()); }

bool Pointwise::has(std::string_view field) const {
  const auto row = std::ranges::find(kParameters, field, &Parameter::field);
  if (row == kParameters.end()) return true;
  std::string_view name = info(mode).name;
  if (name.ends_with("_bwd")) name.remove_suffix(4);
  return name == row->mode;
}

Roles Pointwise::roles() const {
  if (info(mode).name.ends_with("_bwd")) return {{{"dy"}, {"x"}}, {{"y"}}};
  if (gives_words(mode)) return {{{"seed"}, {"offset"}, {"index"}}, {{"y"}}};
  if (mode == PointwiseMode::binary_select) return {{{"a"}, {"b"}, {"t"}}, {{"y"}}};
  if (info(mode).inputs == 1) return {{{"x"}}, {{"y"}}};
  return {{{"a"}, {"b"}}, {{"y"}}};
}

bool gives_words(PointwiseMode mode) { return mode == PointwiseMode::philox; }

DataType index_type(int64_t extent) {
  return extent - 1 > std::numeric_limits<int32_t>::max() ? DataType::i64 : DataType::i32;
}

std::vector<Inferred> Pointwise::infer(const Call& call) const {
  const PointwiseInfo& row = info(mode);
  expect_compute(call, compute);
  expect_parameters(call, *this);
  const Dims dims = broadcast_all(call);
  DataType type = compute;
  if (row.domain == PointwiseDomain::real) expect_real_compute(call, compute);
  if (gives_words(mode) && compute != DataType::i64)
    fail("{}: gives words of 32 bits; its compute type is int64, not {}", call.label, to_string(compute));
  if (row.domain == PointwiseDomain::compare || row.domain == PointwiseDomain::logical) type = DataType::b8;
  if (row.domain == PointwiseDomain::index) {
    if (is_real(compute))
      fail("{}: gives integers, not compute type {}; choose int32 or int64", call.label, to_string(compute));
    if (axis < 0 || axis >= dims.rank()) expect_axis(call, axis, call.input(0));
    type = index_type(dims[static_cast<int>(axis)]);
  }
  for (const Tensor* input : call.inputs)
    if (input->dims == dims) return {in_order_of(call, dims, type, *input)};
  return {in_row_major(call, dims, type)};
}

}  // namespace fusor
