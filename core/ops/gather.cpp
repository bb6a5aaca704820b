// Owns the rules of gather and scatter.
#include "core/ops/gather.h"

#include "core/ops/rules.h"

namespace fusor {

namespace {

// Axis, index and operand as both ops have them.
void expect_index(const Call& call, int64_t axis) {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  const Tensor& index = call.input(1);
  expect_axis(call, axis, x);
  if (index.type != DataType::i32 && index.type != DataType::i64)
    fail("{}: the index '{}' is {}; it must be int32 or int64", call.label, index.name,
         to_string(index.type));
  if (index.dims.rank() != x.dims.rank())
    fail("{}: the index '{}' {} and '{}' {} have different ranks", call.label, index.name,
         to_string(index.dims), x.name, to_string(x.dims));
}

}  // namespace

std::vector<Inferred> Gather::infer(const Call& call) const {
  expect_index(call, axis);
  const Tensor& x = call.input(0);
  const Tensor& index = call.input(1);
  const int along = static_cast<int>(axis);
  Dims taken = x.dims, dims;
  taken[along] = index.dims[along];
  if (!broadcast_dims(taken, index.dims, dims))
    fail("{}: the index '{}' {} and '{}' {} do not broadcast in the axes other than {}", call.label,
         index.name, to_string(index.dims), x.name, to_string(x.dims), axis);
  return {in_order_of(call, dims, x.type, x)};
}

std::vector<Inferred> Scatter::infer(const Call& call) const {
  expect_index(call, axis);
  const Tensor& x = call.input(0);
  const Tensor& index = call.input(1);
  Dims joined;
  if (!broadcast_dims(index.dims, x.dims, joined) || joined != x.dims)
    fail("{}: the index '{}' {} does not broadcast to '{}' {}", call.label, index.name, to_string(index.dims),
         x.name, to_string(x.dims));
  const Dims& dims = call.given();
  if (dims.empty()) fail("{}: the dims of the result are missing", call.label);
  expect_extents(call, {"dims", dims});
  const int left_out = x.dims.rank() - dims.rank();
  bool fits = left_out >= 0 && left_out <= axis;
  for (int i = left_out; fits && i < x.dims.rank(); ++i)
    fits = i == axis || dims[i - left_out] == 1 || dims[i - left_out] == x.dims[i];
  if (!fits)
    fail("{}: the result {} has neither the extents of '{}' {} nor 1 in the axes other than {}", call.label,
         to_string(dims), x.name, to_string(x.dims), axis);
  for (int i = 0; i < x.dims.rank(); ++i) {
    const int at = i - (x.dims.rank() - dims.rank());
    const bool is_walked = i != axis && at >= 0 && dims[at] == x.dims[i];
    if (!is_walked && index.dims[i] != x.dims[i])
      fail("{}: the index '{}' {} gives many elements of '{}' {} one place: it must vary along axis {}",
           call.label, index.name, to_string(index.dims), x.name, to_string(x.dims), i);
  }
  return {in_row_major(call, dims, x.type)};
}

}  // namespace fusor
