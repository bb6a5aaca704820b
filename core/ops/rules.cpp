// Owns the checks that the rules of several families share.
#include "core/ops/rules.h"

#include <algorithm>

namespace fusor {

void refuse_scalars(const Call& call) {
  for (const Tensor* input : call.inputs)
    if (input != nullptr && input->is_scalar())
      fail("{}: '{}' is a by-value scalar; only pointwise ops take those", call.label, input->name);
}

void refuse_scalars_but(const Call& call, std::initializer_list<std::string_view> roles) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const std::string_view role = call.roles.inputs[std::min(i, call.roles.inputs.size() - 1)].name;
    if (call.has(i) && call.input(i).is_scalar() && std::ranges::find(roles, role) == roles.end())
      fail("{}: the operand {}, '{}', is a by-value scalar; it must be a tensor", call.label, role,
           call.input(i).name);
  }
}

void expect_broadcast(const Call& call, std::string_view role, const Dims& dims) {
  const Tensor* operand = call.operand(role);
  Dims both;
  if (operand != nullptr && (!broadcast_dims(operand->dims, dims, both) || both != dims))
    fail("{}: {} {} does not broadcast to {}", call.label, role, to_string(operand->dims), to_string(dims));
}

void expect_dims(const Call& call, std::string_view role, const Dims& dims) {
  const Tensor* operand = call.operand(role);
  if (operand != nullptr && operand->dims != dims)
    fail("{}: {} is {}; it must be {}", call.label, role, to_string(operand->dims), to_string(dims));
}

void expect_integers(const Call& call, std::string_view role) {
  const Tensor* operand = call.operand(role);
  if (operand != nullptr && is_real(operand->type))
    fail("{}: {} is {}; it must be an integer type", call.label, role, to_string(operand->type));
}

DataType real_type(const Call& call) {
  for (const Tensor* input : call.inputs)
    if (input != nullptr && input->type == DataType::f64) return DataType::f64;
  return DataType::f32;
}

void expect_compute(const Call& call, DataType compute) {
  if (!is_compute_type(compute))
    fail("{}: {} is not a compute type; choose fp32, fp64, int32 or int64", call.label, to_string(compute));
}

void expect_real_compute(const Call& call, DataType compute) {
  if (!is_real(compute))
    fail("{}: is defined for real numbers, not for compute type {}; choose fp32 or fp64", call.label,
         to_string(compute));
}

void expect_extents(const Call& call, const NamedDims& named) {
  for (int64_t extent : named.dims)
    if (extent < 1) fail("{}: {} {} has an extent below 1", call.label, named.name, to_string(named.dims));
}

void expect_entries(const Call& call, std::string_view list_name, const Dims& list, int count,
                    std::string_view axes) {
  if (list.rank() != count)
    fail("{}: {} {} has {} entries; it needs one for each of the {} {}", call.label, list_name,
         to_string(list), list.rank(), count, axes);
}

Dims or_filled(const Dims& list, int count, int64_t value) {
  return list.empty() ? Dims::filled(count, value) : list;
}

void expect_axis(const Call& call, int64_t axis, const Tensor& x) {
  if (axis < 0 || axis >= x.dims.rank())
    fail("{}: axis {} is out of range for '{}' {}", call.label, axis, x.name, to_string(x.dims));
}

void expect_addressable(const Call& call, const Dims& dims) {
  int64_t bytes = 8;  // of an element of the widest type: ops compute in types of their own
  for (int64_t extent : dims)
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxTensorBytes)
      fail("{}: a result of dims {} takes more than 2^48 bytes at 8 bytes an element", call.label,
           to_string(dims));
}

namespace {

Inferred finish(const Call& call, const Dims& dims, DataType type, const Dims* like_dims,
                const Strides* like_strides) {
  expect_addressable(call, dims);
  const bool follow = like_dims != nullptr && like_dims->rank() == dims.rank();
  return {dims, follow ? packed_strides_like(dims, *like_dims, *like_strides) : packed_strides(dims), type};
}

}  // namespace

Inferred in_order_of(const Call& call, const Dims& dims, DataType type, const Tensor& like) {
  return finish(call, dims, type, &like.dims, &like.strides);
}

Inferred in_row_major(const Call& call, const Dims& dims, DataType type) {
  return finish(call, dims, type, nullptr, nullptr);
}

}  // namespace fusor
